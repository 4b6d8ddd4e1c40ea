"""What is learned in tests is tiny, and compiling it well would take longer than all the rest."""

import os

import jax

os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for processes that a test starts
jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]  # JAX's own has no types
