"""Tests of kubeconfig files: found, merged and selected as kubectl does, with errors in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders import kubeconfigs
from trimtab.kube.auth.connection import ContextSummary, list_contexts
from trimtab.kube.auth.kubeconfig import Kubeconfig, KubeconfigEntry, _merge, read_kubeconfig
from trimtab.kube.auth.kubeconfig_file import KubeconfigUser
from trimtab.kube.errors import ConfigError


def read(text: str, folder: Path) -> Kubeconfig:
    path = folder / "config"
    path.write_text(text)
    return read_kubeconfig(path, environ={})


def complaint(text: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def from_files(*files: Path) -> Kubeconfig:
    return read_kubeconfig(None, environ={"KUBECONFIG": ":".join(map(str, files)), "HOME": "/nonexistent"})


# Finding


def test_kubeconfig_defaults_to_the_file_in_the_home_directory(tmp_path: Path) -> None:
    kubeconfigs.write(tmp_path / ".kube" / "config", name="home")
    assert read_kubeconfig(None, environ={"HOME": str(tmp_path)}).current_context == "home"


def test_kubeconfig_prefers_the_environment_even_if_its_files_are_missing(tmp_path: Path) -> None:
    kubeconfigs.write(tmp_path / ".kube" / "config", name="home")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "missing")}
    assert read_kubeconfig(None, environ=environ) == Kubeconfig()


def test_kubeconfig_prefers_the_requested_file_to_the_environment(tmp_path: Path) -> None:
    asked = kubeconfigs.write(tmp_path / "asked", name="asked")
    other = kubeconfigs.write(tmp_path / "other", name="other")
    assert read_kubeconfig(asked, environ={"KUBECONFIG": str(other)}).contexts.keys() == {"asked"}


def test_kubeconfig_requires_the_requested_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig .*/missing does not exist"):
        read_kubeconfig(tmp_path / "missing", environ={})


def test_kubeconfig_reports_an_unreadable_default_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        from_files(tmp_path)
    # As of a home that is another user's: even to look there fails.
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        from_files(tmp_path / ("x" * 300))


def test_kubeconfig_is_empty_without_a_home_directory() -> None:
    assert read_kubeconfig(None, environ={}) == Kubeconfig()


# Merging


def test_kubeconfig_skips_missing_empty_and_repeated_files_of_a_list(tmp_path: Path) -> None:
    one = kubeconfigs.write(tmp_path / "one", name="one")
    empty = tmp_path / "empty"
    empty.touch()
    listed = f"{tmp_path / 'missing'}:{one}::{empty}:{one}"
    assert read_kubeconfig(None, environ={"KUBECONFIG": listed}).files == (one, empty)


def test_kubeconfig_takes_each_entry_whole_from_the_first_file(tmp_path: Path) -> None:
    first = kubeconfigs.write(tmp_path / "first", name="same", user={"token": "a"})
    second = kubeconfigs.write(tmp_path / "second", name="same", user={"username": "b", "password": "c"})
    user = from_files(first, second).users["same"].value
    assert user.token.reveal() == "a"
    assert not user.username


def test_kubeconfig_takes_the_first_current_context_that_is_set(tmp_path: Path) -> None:
    unset = tmp_path / "unset"
    unset.write_text(yaml.safe_dump({"contexts": [{"name": "x", "context": {}}], "current-context": ""}))
    first = kubeconfigs.write(tmp_path / "first", name="first")
    second = kubeconfigs.write(tmp_path / "second", name="second")
    assert from_files(unset, first, second).current_context == "first"


def test_kubeconfig_context_may_name_entries_of_other_files(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    cluster.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "https://c"}}]}))
    user = tmp_path / "user"
    user.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"token": "t"}}]}))
    context = tmp_path / "context"
    entry = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    context.write_text(yaml.safe_dump({"contexts": [entry], "current-context": "x"}))
    merged = from_files(cluster, user, context)
    _, chosen = merged.select_context(None)
    assert merged.get_cluster(chosen).value.server == "https://c"
    assert merged.get_user(chosen).value.token.reveal() == "t"


def test_kubeconfig_resolves_relative_paths_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfigs.write(tmp_path / "a" / "config", name="a")
    kubeconfigs.write(tmp_path / "b" / "config", name="b")
    monkeypatch.chdir(tmp_path)
    merged = from_files(Path("a/config"), Path("b/config"))
    monkeypatch.chdir("/")
    kept = merged.users["b"]
    monkeypatch.chdir(tmp_path)
    assert kept.resolve_path("keys/k.pem") == tmp_path / "b" / "keys" / "k.pem"
    assert kept.resolve_path("/etc/k.pem") == Path("/etc/k.pem")


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers()), max_size=5))
def test_merging_is_looking_a_name_up_in_the_first_file_that_has_it(files: list[dict[str, int]]) -> None:
    merged = _merge(
        Kubeconfig(
            users={
                name: KubeconfigEntry(KubeconfigUser(as_uid=str(uid)), Path(), name)
                for name, uid in file.items()
            }
        )
        for file in files
    )
    found = {name: int(entry.value.as_uid) for name, entry in merged.users.items()}
    assert found == {name: next(file[name] for file in files if name in file) for name in found}
    assert found.keys() == {name for file in files for name in file}


# Choosing


def test_kubeconfig_lists_contexts_if_the_requested_one_is_unknown(tmp_path: Path) -> None:
    merged = from_files(
        kubeconfigs.write(tmp_path / "b", name="beta"), kubeconfigs.write(tmp_path / "a", name="alpha")
    )
    with pytest.raises(
        ConfigError, match="context 'gamma', which does not exist; the contexts are: alpha, beta"
    ):
        merged.select_context("gamma")


def test_kubeconfig_names_a_missing_context_as_the_current_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"current-context names context 'gone'.*the contexts are: none"):
        read("current-context: gone", tmp_path).select_context(None)


def test_kubeconfig_without_current_context_asks_for_one(tmp_path: Path) -> None:
    config = read("contexts: [{name: a}, {name: b}]", tmp_path)
    with pytest.raises(ConfigError, match="no current-context; choose one of these contexts: a, b"):
        config.select_context(None)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"cluster": "lost"}, "context 'x': cluster: there is no cluster named 'lost'"),
        ({}, "context 'x': cluster: names no cluster"),
    ],
)
def test_kubeconfig_rejects_a_context_without_its_cluster(
    context: dict[str, str], message: str, tmp_path: Path
) -> None:
    config = read(yaml.safe_dump({"contexts": [{"name": "x", "context": context}]}), tmp_path)
    with pytest.raises(ConfigError, match=message):
        config.get_cluster(config.contexts["x"])


def test_kubeconfig_rejects_a_missing_user_and_allows_none(tmp_path: Path) -> None:
    config = read("contexts: [{name: x, context: {user: lost}}, {name: y, context: {}}]", tmp_path)
    with pytest.raises(ConfigError, match="context 'x': user: there is no user named 'lost'"):
        config.get_user(config.contexts["x"])
    assert not config.get_user(config.contexts["y"]).value.token


def test_kubeconfig_lists_its_contexts(tmp_path: Path) -> None:
    first = kubeconfigs.write(tmp_path / "first", name="prod", namespace="shop")
    second = kubeconfigs.write(tmp_path / "second", name="dev")
    assert list_contexts(environ={"KUBECONFIG": f"{first}:{second}"}) == [
        ContextSummary(name="dev", cluster="dev", user="dev", namespace="default", current=False),
        ContextSummary(name="prod", cluster="prod", user="prod", namespace="shop", current=True),
    ]


# Reading


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "clusters: null\nusers: null\ncontexts: null\n"])
def test_kubeconfig_accepts_an_empty_file(text: str, tmp_path: Path) -> None:
    assert not read(text, tmp_path).contexts


def test_kubeconfig_ignores_null_and_unknown_fields(tmp_path: Path) -> None:
    text = "users: [{name: a, user: {exec: null, token: null, password: x, tomorrow: [1]}}]\nnews: 1"
    user = read(text, tmp_path).users["a"].value
    assert (user.exec, bool(user.token), user.password.reveal()) == (None, False, "x")


def test_kubeconfig_keeps_names_that_look_like_dates_as_text(tmp_path: Path) -> None:
    assert read("contexts: [{name: 2026-11-15}]", tmp_path).contexts.keys() == {"2026-11-15"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: [", r"config: line \d: not valid YAML: "),
        ("a: b\n\tc: d", r"config: line 2: not valid YAML: found"),
        ("just words", r"config: the file: Expected `object`, got `str`"),
        ("clusters: {}", r"config: clusters: Expected `array`, got `object`"),
        (
            "clusters: [{name: a, cluster: {server: 1}}]",
            r"config: clusters\[0\].cluster.server: Expected `str`, got `int`",
        ),
        (
            "users: [{name: a, user: {token: 12345}}]",
            r"config: users\[0\].user.token: Expected `str`, got `int`",
        ),
        ("users: [{user: {}}]", r"config: users\[0\]: Object missing required field `name`"),
        ("users: [{name: a}, {name: a}]", r"config: two entries named 'a' under users; rename or remove one"),
        ("\x00", r"config: not valid YAML"),
    ],
)
def test_kubeconfig_error_names_file_and_field_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read(text, tmp_path)


@pytest.mark.parametrize(
    "value", ["*hunter2", "!hunter2", "*hunter2 x: y", "'hunter2", "[hunter2", "hunter2: b: c", "@hunter2"]
)
@pytest.mark.parametrize("field", ["password", "token", "client-key-data", "proxy-url"])
def test_kubeconfig_error_quotes_no_secret(field: str, value: str, tmp_path: Path) -> None:
    kind = "cluster" if field == "proxy-url" else "user"
    assert "hunter2" not in complaint(f"{kind}s:\n- name: a\n  {kind}:\n    {field}: {value}\n", tmp_path)


def test_kubeconfig_hides_secrets_when_printed(tmp_path: Path) -> None:
    secrets: dict[str, Any] = {
        "token": "hunter2",
        "password": "hunter2",
        "client-key-data": "hunter2",
        "exec": {"command": "x", "args": ["hunter2"], "env": [{"name": "A", "value": "hunter2"}]},
    }
    path = kubeconfigs.write(tmp_path / "config", user=secrets, cluster={"proxy-url": "http://a:hunter2@b"})
    config = read_kubeconfig(path, environ={})
    assert "hunter2" not in f"{config!r} {config} {config.users['here'].value}"
    assert config.users["here"].value.token.reveal() == "hunter2"
