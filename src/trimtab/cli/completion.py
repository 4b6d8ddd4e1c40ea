"""`trimtab completion`: what a shell needs to complete our commands and options."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script with which a shell completes commands and options.

    For this session, and for all later ones:

        source <(trimtab completion bash)
        trimtab completion bash > ~/.local/share/bash-completion/completions/trimtab

    Parameters
    ----------
    shell
        The shell to print it for.
    """
    from trimtab.cli import build_app

    print(build_app().generate_completion(prog_name="trimtab", shell=shell))
