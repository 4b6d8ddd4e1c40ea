"""kubeconfig files are found, merged and chosen from as kubectl does it; what is wrong with them is said in a line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders import kubeconfigs
from trimtab.kube.auth.cluster_access import ContextSummary, list_contexts
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


def test_the_file_in_the_home_directory_is_read_when_nothing_else_is_named(tmp_path: Path) -> None:
    kubeconfigs.write(tmp_path / ".kube" / "config", name="home")
    assert read_kubeconfig(None, environ={"HOME": str(tmp_path)}).current_context == "home"


def test_the_environment_wins_over_the_home_directory_even_when_its_files_are_missing(tmp_path: Path) -> None:
    kubeconfigs.write(tmp_path / ".kube" / "config", name="home")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "missing")}
    assert read_kubeconfig(None, environ=environ) == Kubeconfig()


def test_a_file_that_was_asked_for_wins_over_the_environment(tmp_path: Path) -> None:
    asked = kubeconfigs.write(tmp_path / "asked", name="asked")
    other = kubeconfigs.write(tmp_path / "other", name="other")
    assert read_kubeconfig(asked, environ={"KUBECONFIG": str(other)}).contexts.keys() == {"asked"}


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig .*/missing does not exist"):
        read_kubeconfig(tmp_path / "missing", environ={})


def test_an_unreadable_file_is_an_error_also_when_nobody_asked_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        from_files(tmp_path)
    # As of a home that is another user's: even to look there fails.
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        from_files(tmp_path / ("x" * 300))


def test_without_a_home_there_is_nothing_to_read() -> None:
    assert read_kubeconfig(None, environ={}) == Kubeconfig()


# Merging


def test_missing_empty_and_repeated_files_of_a_list_are_skipped(tmp_path: Path) -> None:
    one = kubeconfigs.write(tmp_path / "one", name="one")
    empty = tmp_path / "empty"
    empty.touch()
    listed = f"{tmp_path / 'missing'}:{one}::{empty}:{one}"
    assert read_kubeconfig(None, environ={"KUBECONFIG": listed}).files == (one, empty)


def test_the_first_file_to_name_something_wins_whole(tmp_path: Path) -> None:
    first = kubeconfigs.write(tmp_path / "first", name="same", user={"token": "a"})
    second = kubeconfigs.write(tmp_path / "second", name="same", user={"username": "b", "password": "c"})
    user = from_files(first, second).users["same"].value
    assert user.token.reveal() == "a"
    assert not user.username


def test_the_first_current_context_that_is_set_wins(tmp_path: Path) -> None:
    unset = tmp_path / "unset"
    unset.write_text(yaml.safe_dump({"contexts": [{"name": "x", "context": {}}], "current-context": ""}))
    first = kubeconfigs.write(tmp_path / "first", name="first")
    second = kubeconfigs.write(tmp_path / "second", name="second")
    assert from_files(unset, first, second).current_context == "first"


def test_a_context_may_name_a_cluster_and_a_user_of_other_files(tmp_path: Path) -> None:
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


def test_a_relative_path_is_relative_to_the_file_that_it_stands_in(
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


def test_an_unknown_context_is_answered_with_those_that_exist(tmp_path: Path) -> None:
    merged = from_files(
        kubeconfigs.write(tmp_path / "b", name="beta"), kubeconfigs.write(tmp_path / "a", name="alpha")
    )
    with pytest.raises(
        ConfigError, match="context 'gamma', which does not exist; the contexts are: alpha, beta"
    ):
        merged.select_context("gamma")


def test_a_current_context_that_does_not_exist_is_said_to_be_the_current_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"current-context names context 'gone'.*the contexts are: none"):
        read("current-context: gone", tmp_path).select_context(None)


def test_no_current_context_asks_for_a_choice(tmp_path: Path) -> None:
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
def test_a_context_without_its_cluster_is_an_error(
    context: dict[str, str], message: str, tmp_path: Path
) -> None:
    config = read(yaml.safe_dump({"contexts": [{"name": "x", "context": context}]}), tmp_path)
    with pytest.raises(ConfigError, match=message):
        config.get_cluster(config.contexts["x"])


def test_a_user_that_does_not_exist_is_an_error_but_none_is_anonymous(tmp_path: Path) -> None:
    config = read("contexts: [{name: x, context: {user: lost}}, {name: y, context: {}}]", tmp_path)
    with pytest.raises(ConfigError, match="context 'x': user: there is no user named 'lost'"):
        config.get_user(config.contexts["x"])
    assert not config.get_user(config.contexts["y"]).value.token


def test_contexts_are_listed_for_people_to_choose_from(tmp_path: Path) -> None:
    first = kubeconfigs.write(tmp_path / "first", name="prod", namespace="shop")
    second = kubeconfigs.write(tmp_path / "second", name="dev")
    assert list_contexts(environ={"KUBECONFIG": f"{first}:{second}"}) == [
        ContextSummary(name="dev", cluster="dev", user="dev", namespace="default", current=False),
        ContextSummary(name="prod", cluster="prod", user="prod", namespace="shop", current=True),
    ]


# Reading


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "clusters: null\nusers: null\ncontexts: null\n"])
def test_a_file_that_says_nothing_holds_nothing(text: str, tmp_path: Path) -> None:
    assert not read(text, tmp_path).contexts


def test_null_fields_and_unknown_fields_are_left_alone(tmp_path: Path) -> None:
    text = "users: [{name: a, user: {exec: null, token: null, password: x, tomorrow: [1]}}]\nnews: 1"
    user = read(text, tmp_path).users["a"].value
    assert (user.exec, bool(user.token), user.password.reveal()) == (None, False, "x")


def test_a_name_that_looks_like_a_date_stays_text(tmp_path: Path) -> None:
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
def test_a_malformed_file_gets_one_line_that_names_file_and_field(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(text, tmp_path)


@pytest.mark.parametrize(
    "value", ["*hunter2", "!hunter2", "*hunter2 x: y", "'hunter2", "[hunter2", "hunter2: b: c", "@hunter2"]
)
@pytest.mark.parametrize("field", ["password", "token", "client-key-data", "proxy-url"])
def test_no_message_about_a_malformed_file_quotes_a_secret(field: str, value: str, tmp_path: Path) -> None:
    kind = "cluster" if field == "proxy-url" else "user"
    assert "hunter2" not in complaint(f"{kind}s:\n- name: a\n  {kind}:\n    {field}: {value}\n", tmp_path)


def test_what_is_secret_in_a_file_does_not_show_when_it_is_printed(tmp_path: Path) -> None:
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
