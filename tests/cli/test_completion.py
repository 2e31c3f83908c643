"""Completion in bash, zsh and fish: what the program answers, and what the printed scripts make of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from aileron.cli import completing
from aileron.cli.typer_app import app
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon

ROOT = Path(__file__).parents[2]
OURS = f"env PYTHONPATH='{ROOT}' '{sys.executable}' -m tests.cli.patient"
"""Command with which a shell starts the program in any directory."""


@pytest.fixture
def aileron(home: Path) -> Command:
    """The command line of that home; it waits longer for the daemon, so that a stalled machine loses no completions."""
    return Command(home, module="tests.cli.patient")


@pytest.mark.parametrize(
    ("words", "offered"),
    [("aileron ru", {"run"}), ("aileron run s", {"send", "sum"}), ("aileron action show su", {"sum"})],
)
def test_commands_and_action_names_are_completed(
    fake: FakeDaemon, aileron: Command, words: str, offered: set[str]
) -> None:
    """Typer completes commands, the daemon gives the names of actions; a name with a control character is left out."""
    for name in ("send", "sum", "other", "s\x1b[2J"):
        fake.add_action(name)
    cword = str(len(words.split()) - 1)
    said = aileron(COMP_WORDS=words, COMP_CWORD=cword, _AILERON_COMPLETE="complete_bash")

    assert set(said.out.split()) == offered


def test_shell_completion_never_starts_a_daemon(aileron: Command, home: Path) -> None:
    """Completion must be quick and free of side effects while a person is typing."""
    said = aileron(COMP_WORDS="aileron run s", COMP_CWORD="2", _AILERON_COMPLETE="complete_bash")

    assert (said.code, said.out.strip()) == (0, "")
    assert not home.exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("aileron run s", ["send"]),
        ("aileron run send ", ["to=", "copies="]),
        ("aileron run send co", ["copies="]),
        ("aileron run send to=me ", ["copies="]),
        ("aileron run other ", []),
        ("aileron approve ", ["act-1a", "act-2b"]),
        ("aileron deny act-2", ["act-2b"]),
        ("aileron approve act-1a ", ["act-2b"]),
        ("aileron deny act-1a act-2b ", []),
        ("aileron approval show act-1a ", []),
        ("aileron deny none", []),
        ("aileron approval show act-1", ["act-1a"]),
    ],
)
def test_approval_ids_and_inputs_are_completed(
    fake: FakeDaemon, aileron: Command, typed: str, offered: list[str]
) -> None:
    """The daemon provides them; an input that has its value and an id on the line are not offered again."""
    fake.add_action("send", "to:string", "copies:integer?")
    fake.approvals = [{"approval_id": "act-1a"}, {"approval_id": "act-2b"}, {"approval_id": "act-$(reboot)"}]
    words = typed.split(" ")
    said = aileron(COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1), _AILERON_COMPLETE="complete_bash")

    assert (said.code, said.out.split()) == (0, offered)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["aileron", "run", "send", ""], "to= / -o nospace"),
        (["aileron", "run", "send", "x"], " / +o default"),
        (["aileron", "approve", ""], " / +o default"),
        (["aileron", "action", "add", ""], " / "),
    ],
)
def test_bash_offers_files_only_if_a_word_can_be_a_file(
    fake: FakeDaemon, aileron: Command, home: Path, typed: list[str], offered: str
) -> None:
    """Bash runs the printed script; it offers files by default if there are no words to offer."""
    fake.add_action("send", "to:string")
    words = " ".join(f"'{word}'" for word in typed)
    script = f"""
        compopt() {{ told="$*"; }}
        {aileron("completion", "bash").out}
        COMP_WORDS=({words}) COMP_CWORD={len(typed) - 1}; _aileron_completion aileron
        echo "${{COMPREPLY[*]}} / $told"
    """
    script = script.replace("complete_bash $1", f"complete_bash {OURS}")
    environment = {**os.environ, "AILERON_HOME": str(home)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=30)

    assert done.stdout.split() == offered.split(), done


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("aileron run s", '_arguments *: :(("send"))'),
        ("aileron run send ", "compadd -S  -- to="),
        ("aileron approve ", ""),
        ("aileron connector show g", r'_arguments *: :(("github\\://acme/mail"))'),
        ("aileron action add ", "_files"),
    ],
)
@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_offers_files_only_if_a_word_can_be_a_file(
    fake: FakeDaemon, aileron: Command, home: Path, path_of_ours: str, typed: str, offered: str
) -> None:
    """Zsh runs the printed script, with functions that record calls in place of its own."""
    fake.add_action("send", "to:string")
    fake.script("GET", "/v1/connectors", (200, {"connectors": [{"name": "github://acme/mail"}]}))
    words = typed.split(" ")
    script = f"""
        for told in compdef _arguments _files compadd; do eval $told'() {{ print -r -- '$told' "$@" }}'; done
        {aileron("completion", "zsh").out.replace("compdef _aileron_completion aileron", "")}
        words=({" ".join(f"'{word}'" for word in words)}); CURRENT={len(words)}; _aileron_completion
    """
    assert _completed(["zsh", "-f", "-c", script], home, path_of_ours) == offered


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("aileron run s", "send"),
        ("aileron run send ", "to="),
        ("aileron approve ", ""),
        ("aileron connector show g", "github://acme/mail"),
        ("aileron action add f", "file.md"),
    ],
)
@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_offers_files_only_if_a_word_can_be_a_file(
    fake: FakeDaemon, aileron: Command, home: Path, path_of_ours: str, typed: str, offered: str
) -> None:
    """The printed script runs in fish, which completes a line."""
    fake.add_action("send", "to:string")
    fake.script("GET", "/v1/connectors", (200, {"connectors": [{"name": "github://acme/mail"}]}))
    (home.parent / "file.md").write_text("")
    script = f"{aileron('completion', 'fish').out}\ncomplete -C '{typed}'"

    assert _completed(["fish", "--private", "-c", script], home, path_of_ours) == offered


@pytest.fixture
def path_of_ours(tmp_path: Path) -> str:
    """Make a PATH on which `aileron` is the program under test."""
    command = tmp_path / "bin" / "aileron"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {OURS} "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


def _completed(shell: list[str], home: Path, path: str) -> str:
    environment = {**os.environ, "AILERON_HOME": str(home), "HOME": str(home.parent), "PATH": path}
    done = subprocess.run(shell, cwd=home.parent, env=environment, capture_output=True, text=True, timeout=30)
    assert not done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_supported_shell(aileron: Command, shell: str) -> None:
    """Each supported shell has one."""
    said = aileron("completion", shell).exits(0)
    assert "_AILERON_COMPLETE" in said.out


LISTED: dict[str, tuple[str, Any]] = {
    "audit show ": ("audit", {"events": [{"audit_id": "run-2"}, {"audit_id": "run-1"}, {"audit_id": "run-2"}, {}]}),
    "connector show ": ("connectors", {"connectors": [{"name": "github://acme/run-2"}, {"name": None}]}),
    "binding inspect ": ("bindings", {"bindings": [{"name": "basic/notes/run-2"}]}),
    "secret remove ": ("secrets", {"secrets": [{"name": "run-2"}]}),
    "secret set pw --from-token ": ("secrets", {"secrets": [{"name": "run-2"}]}),
    "binding rebind basic/a/b --secret ": ("secrets", {"secrets": [{"name": "run-2"}]}),
    "sessions end ": ("sessions", {"sessions": [{"id": "run-2"}]}),
    "grant revoke ": ("grants", {"grants": [{"id": "run-2"}]}),
    "open approval ": ("action-approvals", {"approvals": [{"approval_id": "run-2"}]}),
}


@pytest.mark.parametrize("typed", LISTED)
def test_ids_and_names_of_every_kind_are_completed(fake: FakeDaemon, aileron: Command, typed: str) -> None:
    """Each word is offered once, in the daemon's order."""
    route, body = LISTED[typed]
    fake.script("GET", f"/v1/{route}", (200, body))
    said = complete(aileron, f"aileron {typed}")

    assert said[0].removeprefix("github://acme/").removeprefix("basic/notes/") == "run-2"
    assert said[1:] == (["run-1"] if route == "audit" else [])


def test_settings_and_the_entries_of_a_list_are_completed(aileron: Command, home: Path) -> None:
    """Commands for lists are offered list settings, and `remove` the entries of the list; no daemon is needed."""
    assert aileron("config", "add", "egress.private", "a.lan:1", "b.lan:2").code == 0

    assert complete(aileron, "aileron config set egress.c") == ["egress.ca_file"]
    assert complete(aileron, "aileron config add egress.") == ["egress.private", "egress.private_plain"]
    assert complete(aileron, "aileron config remove egress.private ") == ["a.lan:1", "b.lan:2"]
    assert complete(aileron, "aileron config remove egress.private_plain ") == []
    assert not (home / "run").exists()


def test_the_completion_table_matches_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completion reads a table in place of importing typer, so the two must agree about each command."""
    monkeypatch.setattr(completing, "words_of", lambda kind, incomplete: [f"{kind}:"])
    found = {}
    for path, command in commands(typer.main.get_command(app)):
        first = next((parameter for parameter in command.params if parameter.param_type_name == "argument"), None)
        words = (
            [] if first is None else first.shell_complete(command.make_context(path, [], resilient_parsing=True), "")
        )
        if words and words[0].value.endswith(":"):
            found[path] = words[0].value.rstrip(":")

    assert found == completing.TAKES


def test_completion_leaves_out_names_that_are_unsafe_in_a_shell_or_invisible(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The harmless name beside them is offered, for ids and for inputs."""
    hostile = [
        "act-$(reboot)",
        "act-`x`",
        "act-\x1b[2J",
        "act-a b",
        "act-\u202eb",
        "act-'",
        "act-;x",
        "-act",
        "act-\n",
        7,
    ]
    fake.approvals = [{"approval_id": name} for name in (*hostile, "act-1a")]
    fake.add_action("send", *(f"{name}:string" for name in ("to", "x$(y)", "z\x1b")))

    assert complete(aileron, "aileron approve ") == ["act-1a"]
    assert complete(aileron, "aileron run send ") == ["to="]


@pytest.mark.parametrize("body", [b"not JSON", [], {"approvals": None}, {"approvals": [1]}, {"error": {}}, b"\xff"])
def test_completion_offers_nothing_after_an_invalid_response_of_the_daemon(
    fake: FakeDaemon, aileron: Command, body: Any
) -> None:
    """The shell shows no message beside what the person is typing."""
    fake.script("GET", "/v1/action-approvals", (200, body))
    said = aileron(COMP_WORDS="aileron approve a", COMP_CWORD="2", _AILERON_COMPLETE="complete_bash")

    assert (said.out.strip(), said.err) == ("", "")


def test_completion_waits_one_second_for_a_silent_daemon(home: Path) -> None:
    """The daemon's socket accepts the connection and sends nothing; completion then offers no words."""
    (home / "run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home / "run" / "operator.sock"))
        silent.listen()
        began = time.monotonic()
        said = Command(home)(COMP_WORDS="aileron approve a", COMP_CWORD="2", _AILERON_COMPLETE="complete_bash")

    assert (said.code, said.out.strip(), said.err) == (0, "", "")
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("words", ["aileron run 's", "", "aileron run send 'a b"])
def test_completing_an_unfinished_command_line_prints_no_message(
    fake: FakeDaemon, aileron: Command, words: str
) -> None:
    """The line may have words to offer or none."""
    fake.add_action("send", "to:string")
    for cword in ("2", "x"):
        said = aileron(COMP_WORDS=words, COMP_CWORD=cword, _AILERON_COMPLETE="complete_bash")
        assert said.err == ""


def test_words_from_the_daemon_are_completed_without_typer(fake: FakeDaemon, home: Path) -> None:
    """Importing typer takes too long for a person who is typing; for options and commands it is imported."""
    fake.add_action("send", "to:string")
    loaded = {}
    for words in ("aileron run send ", "aileron run --wa"):
        given = {"AILERON_HOME": str(home), "COMP_WORDS": words, "_AILERON_COMPLETE": "complete_bash"}
        code = "import sys; from tests.cli.patient import main; main(); print(sorted({'typer', 'rich'} & set(sys.modules)))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **given, "COMP_CWORD": str(words.count(" "))},
            capture_output=True,
            text=True,
            timeout=30,
        )
        loaded[words] = done.stdout.split("\n")
    assert loaded["aileron run send "][:2] == ["to=", "[]"]
    assert "--wait" in loaded["aileron run --wa"][0]


def complete(aileron: Command, typed: str) -> list[str]:
    """Return what the program offers bash for the last word."""
    cword = str(typed.count(" "))
    said = aileron(COMP_WORDS=typed, COMP_CWORD=cword, _AILERON_COMPLETE="complete_bash")
    assert (said.code, said.err) == (0, ""), said
    return said.out.split()


def commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that is not a group, with the words that name it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command
