"""The directory of actions: what it lists and refuses, and that it never holds a half-written file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from aileron.actions.store import ActionStore
from aileron.model.failure import MAX_MESSAGE, AileronError, FailureClass

Text = Callable[..., str]


def drop(tmp_path: Path, name: str, text: str) -> Path:
    """Write a file into the directory by hand, as an editor would."""
    (tmp_path / "actions").mkdir(mode=0o700, exist_ok=True)
    path = tmp_path / "actions" / name
    path.write_text(text, encoding="utf-8")
    return path


def named(action_text: Text, name: str) -> str:
    """Return the valid file under another name."""
    return action_text(('name = "send-email"', f'name = "{name}"'))


def test_an_added_action_is_listed_and_loaded_and_its_file_is_private(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The action is the user's own file, 0600 in a 0700 directory, whatever the umask is."""
    before = os.umask(0)
    try:
        added = store.add(action_text())
    finally:
        os.umask(before)
    path = tmp_path / "actions" / "send-email.md"

    assert [(found.name, found.action, found.problem, found.enabled) for found in store.list_actions()] == [
        ("send-email", added, None, True)
    ]
    assert store.load("send-email") == added
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.read_text(encoding="utf-8") == action_text()
    assert sorted(os.listdir(path.parent)) == [".actions.lock", "send-email.md"]


@pytest.mark.abuse_case("T6")
def test_the_error_message_of_a_broken_action_file_is_truncated(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The message has a maximum length however broken the file is, because people and agents read the list."""
    drop(tmp_path, "send-email.md", action_text(('name = "send-email"', f'name = "send-email"\n{"k" * 100_000} = 1')))
    (found,) = store.list_actions()

    assert found.problem is not None
    assert len(found.problem) <= MAX_MESSAGE
    assert "send-email.md:3: unknown key 'kkk" in found.problem
    assert "characters left out" in found.problem


def test_a_home_without_an_actions_directory_lists_no_actions(store: ActionStore) -> None:
    """A missing directory means no actions, and is not an error."""
    assert store.list_actions() == ()


def test_an_action_file_written_by_hand_is_loaded_anew_for_each_request(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """An edit takes effect at the next request, with another digest."""
    path = drop(tmp_path, "send-email.md", action_text())
    first = store.load("send-email")
    path.write_text(action_text(("Sends it.", "Sends it now.")), encoding="utf-8")

    assert store.load("send-email").digest != first.digest
    path.unlink()
    with pytest.raises(AileronError, match="no action 'send-email' is installed") as caught:
        store.load("send-email")
    assert caught.value.failure.failure_class is FailureClass.NOT_FOUND


def test_a_broken_file_is_listed_with_its_problem_and_not_loaded(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The good file beside it still works."""
    drop(tmp_path, "send-email.md", action_text())
    path = drop(tmp_path, "broken.md", "+++\nnmae = 1\n+++\n")
    found = {listed.name: listed for listed in store.list_actions()}

    assert found["send-email"].action is not None
    assert found["broken"].action is None
    assert f"{path}:2: unknown key 'nmae'; did you mean 'name'?" in (found["broken"].problem or "")
    with pytest.raises(AileronError, match="unknown key"):
        store.load("broken")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("other.md", None, "action 'send-email' must be in a file named send-email.md; rename it"),
        ("Send.md", None, "is not an action name"),
        ("a\u202eb.md", None, "is not an action name"),
        ("bytes.md", b"+++\n\xff", "is not valid UTF-8 (byte 4)"),
        ("bom.md", b"\xef\xbb\xbf+++\n", "a hidden character: U+FEFF"),
        ("large.md", b"x" * 300_000, "is larger than 262144 bytes"),
    ],
)
def test_an_invalid_file_in_the_directory_is_shown_as_a_problem(
    store: ActionStore, tmp_path: Path, action_text: Text, name: str, content: bytes | None, problem: str
) -> None:
    """Every file in the directory is listed, and unprintable names are escaped."""
    drop(tmp_path, name, "").write_bytes(action_text().encode() if content is None else content)
    (listed,) = store.list_actions()

    assert problem in (listed.problem or "")
    assert listed.name.isascii()


def test_links_and_special_files_are_refused(store: ActionStore, tmp_path: Path, action_text: Text) -> None:
    """The target of a link could be changed by others, and a FIFO would block the daemon."""
    outside = tmp_path / "outside.md"
    outside.write_text(action_text(), encoding="utf-8")
    (tmp_path / "actions").mkdir(mode=0o700)
    (tmp_path / "actions" / "send-email.md").symlink_to(outside)
    os.mkfifo(tmp_path / "actions" / "fifo.md")
    (tmp_path / "actions" / "folder.md").mkdir()

    problems = {listed.name: listed.problem or "" for listed in store.list_actions()}
    assert "symbolic link" in problems["send-email"]
    assert "not a regular file" in problems["fifo"]
    assert "not a regular file" in problems["folder"]


def test_an_actions_directory_that_is_a_link_or_writable_by_others_is_refused(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """Everyone who can write to the directory decides what runs."""
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (tmp_path / "actions").symlink_to(real)
    with pytest.raises(AileronError, match="symbolic link"):
        store.list_actions()

    (tmp_path / "actions").unlink()
    store.add(action_text())
    (tmp_path / "actions").chmod(0o770)
    with pytest.raises(AileronError, match=r"is open for others to write: chmod 750 "):
        store.load("send-email")


@pytest.mark.parametrize("name", ["../send-email", "/etc/passwd", "", ".", "a/b", "a\0b", "A", "x" * 65, "a\n"])
def test_an_action_name_cannot_lead_out_of_the_directory(
    store: ActionStore, tmp_path: Path, action_text: Text, name: str
) -> None:
    """A text such as `../x` is not found, whatever the operation is."""
    (tmp_path / "send-email.md").write_text(action_text(), encoding="utf-8")
    store.add(action_text())

    for operation in (store.load, store.load_enabled, store.remove, lambda n: store.set_enabled(n, False)):
        with pytest.raises(AileronError, match="is not an action name") as caught:
            operation(name)
        assert caught.value.failure.failure_class is FailureClass.NOT_FOUND
    assert (tmp_path / "send-email.md").exists()


def test_two_actions_with_the_same_tool_name_are_refused_and_both_are_named(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The second is not added; if it is put there by hand, neither is used."""
    store.add(named(action_text, "send-email"))
    with pytest.raises(AileronError, match=r"'send\.email' and 'send-email' would both get the tool name 'send_email'"):
        store.add(named(action_text, "send.email"))
    assert [listed.name for listed in store.list_actions()] == ["send-email"]

    drop(tmp_path, "send_email.md", named(action_text, "send_email"))
    assert ["both get the tool name" in (listed.problem or "") for listed in store.list_actions()] == [True, True]


@pytest.mark.abuse_case("A6")
@pytest.mark.parametrize("name", ["list-pending", "check_action.status", "wait_for_action", "cancel-action"])
def test_an_action_cannot_take_the_name_of_one_of_ailerons_tools(
    store: ActionStore, tmp_path: Path, action_text: Text, name: str
) -> None:
    """The action is not added; if it is put there by hand, it is shown as a problem and does not run. An action with
    another name is fine.
    """
    with pytest.raises(
        AileronError, match=r"would get the tool name '\w+', which Aileron uses itself; rename the action"
    ):
        store.add(named(action_text, name))
    with pytest.raises(AileronError, match="Aileron uses itself"):
        store.check_addable(named(action_text, name))
    assert store.add(named(action_text, f"{name}s")).name == f"{name}s"

    drop(tmp_path, f"{name}.md", named(action_text, name))
    problems = {listed.name: listed.problem or "" for listed in store.list_actions()}
    assert ["Aileron uses itself" in problems[name], problems[f"{name}s"]] == [True, ""]
    with pytest.raises(AileronError, match="Aileron uses itself"):
        store.load_enabled(name)


def test_replacing_an_action_by_a_different_text_needs_the_replace_option(
    store: ActionStore, action_text: Text
) -> None:
    """The option prevents overwriting the user's file by accident."""
    store.add(action_text())
    store.add(action_text())
    changed = action_text(("Sends it.", "Sends two."))

    with pytest.raises(AileronError, match=r"installed with different content; .*aileron action add --force"):
        store.add(changed)
    assert store.add(changed, replace=True) == store.load("send-email")


def test_an_invalid_action_file_is_not_added(store: ActionStore, tmp_path: Path) -> None:
    """Every file is validated before it is written to the directory."""
    with pytest.raises(AileronError, match="the first line is not"):
        store.add("hello")
    assert not (tmp_path / "actions").exists()


def test_a_disabled_action_loads_but_does_not_run_until_enabled(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The disabled state is remembered across processes, and removing the action clears it."""
    store.add(action_text())
    store.set_enabled("send-email", False)
    again = ActionStore(tmp_path / "actions", tmp_path / "action-state.json")

    assert [listed.enabled for listed in again.list_actions()] == [False]
    assert again.load("send-email")
    with pytest.raises(AileronError, match="is disabled: aileron action enable send-email") as caught:
        again.load_enabled("send-email")
    assert caught.value.failure.failure_class is FailureClass.ACTION_DISABLED

    again.set_enabled("send-email", True)
    assert again.load_enabled("send-email")
    again.set_enabled("send-email", False)
    again.remove("send-email")
    again.add(action_text())
    assert again.load_enabled("send-email")


@pytest.mark.parametrize("content", ["{", '{"version": 2}', '{"disabld": []}', '{"disabled": "x"}'])
def test_no_action_runs_if_the_file_of_disabled_actions_is_unreadable(
    store: ActionStore, tmp_path: Path, action_text: Text, content: str
) -> None:
    """The file says which actions are disabled, and a disabled action must not run because the file is broken."""
    store.add(action_text())
    (tmp_path / "action-state.json").write_text(content, encoding="utf-8")

    with pytest.raises(AileronError, match=r"action-state\.json"):
        store.load_enabled("send-email")
    with pytest.raises(AileronError, match=r"action-state\.json"):
        store.list_actions()


def test_a_missing_action_cannot_be_removed(store: ActionStore) -> None:
    """The action is not found, and the message says where to look."""
    with pytest.raises(AileronError, match="no action 'gone' is installed"):
        store.remove("gone")


def test_an_actions_directory_with_too_many_files_is_refused(store: ActionStore, tmp_path: Path) -> None:
    """A directory with too many files would slow every listing down; the error names the bound."""
    (tmp_path / "actions").mkdir(mode=0o700)
    for number in range(1001):
        (tmp_path / "actions" / f"a{number}.md").touch()

    with pytest.raises(AileronError, match="holds 1001 actions; at most 1000"):
        store.list_actions()


def test_a_failed_write_keeps_the_old_action_file_and_leaves_no_temporary_file(
    store: ActionStore, tmp_path: Path, action_text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: the previous file stays, and no temporary file."""
    store.add(action_text())

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AileronError, match="No space left on device; free some space and try again"):
        store.add(action_text(("Sends it.", "Sends two.")), replace=True)
    monkeypatch.undo()

    assert store.load("send-email").text == action_text()
    assert sorted(os.listdir(tmp_path / "actions")) == [".actions.lock", "send-email.md"]


def test_the_work_of_listing_actions_grows_in_proportion_to_their_number(
    store: ActionStore, tmp_path: Path, action_text: Text
) -> None:
    """The search for duplicate tool names must not compare all pairs, because every agent lists up to a thousand."""

    def steps(count: int) -> int:
        for number in range(count):
            drop(tmp_path, f"send-{number:03}.md", named(action_text, f"send-{number:03}"))
        store.list_actions()  # everything is parsed
        return lines_of(store.list_actions)

    few, many = steps(80), steps(160)

    assert many < 2.2 * few


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of Python work runs: the same number each time, on every machine."""
    count, before = 0, sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
