"""Every exit code of the reference page, from the program itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.model.failure import FailureClass
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
RUN = "/v1/actions/act/run"


def test_a_successful_command_exits_with_0(fake: FakeDaemon, aileron: Command) -> None:
    """Standard error stays empty."""
    fake.add_action("act")
    said = aileron("run", "act")

    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize("kind", list(FailureClass), ids=lambda kind: kind.value)
def test_a_failed_run_exits_with_the_code_of_its_failure_class(
    fake: FakeDaemon, aileron: Command, kind: FailureClass
) -> None:
    """A single table decides, both for a run that failed at once and for one that failed later."""
    fake.script("POST", RUN, error(kind.value, kind.http_status), (202, {"status": "running", "run_id": "run-1"}))
    _, failed = error(kind.value, kind.http_status)
    fake.script("GET", "/v1/runs/run-1", (200, {"status": "failed", "audit_id": "run-1", **failed}))

    at_once, later = aileron("run", "act"), aileron("run", "act", "--json")
    assert (at_once.code, later.code) == (kind.exit_code, kind.exit_code)
    assert at_once.err.startswith("error: it did not work\n")
    assert later.json["error"]["class"] == kind.value


@pytest.mark.parametrize(
    ("status", "code"), [("denied", 5), ("expired", 6), ("cancelled", 6), ("unknown", 8), ("newer-word", 1)]
)
def test_a_run_that_ended_without_a_failure_class_has_an_exit_code(
    fake: FakeDaemon, aileron: Command, status: str, code: int
) -> None:
    """The response says how the run ended and has no failure class."""
    fake.script("POST", RUN, (202, {"status": "running", "run_id": "run-1"}))
    fake.script("GET", "/v1/runs/run-1", (200, {"status": status, "audit_id": "run-1"}))

    assert aileron("run", "act").code == code


def test_an_unknown_failure_class_of_a_newer_daemon_exits_with_1(fake: FakeDaemon, aileron: Command) -> None:
    """The code says that it failed, and nothing more."""
    fake.script("POST", RUN, error("quantum_error", 418))

    assert aileron("run", "act").code == 1


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"error": "no"}'])
def test_a_response_that_does_not_follow_the_daemons_api_is_an_error(
    fake: FakeDaemon, aileron: Command, body: bytes
) -> None:
    """Another program may have the socket, or a daemon of another version."""
    fake.script("POST", RUN, (500, body))
    said = aileron("run", "act")

    assert said.code in (1, 8)
    assert said.err.startswith("error: the daemon ")


@pytest.mark.parametrize(
    "failure",
    [
        {"class": "hash_mismatch", "message": "it differs", "details": 5},
        {"class": "capability_denied", "message": "denied", "details": {}, "requested": "host:a", "granted": 5},
    ],
)
def test_an_error_with_unexpected_details_still_shows_its_message(
    fake: FakeDaemon, aileron: Command, failure: dict[str, object]
) -> None:
    """Only the advice that depends on the details is left out."""
    fake.script("POST", RUN, (409, json.dumps({"error": failure}).encode()))
    said = aileron("run", "act")

    assert said.err.startswith(f"error: {failure['message']}\n")
    assert said.code == FailureClass(str(failure["class"])).exit_code


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--wait", "soon", "act"),
        ("run", "act", "--nope"),
        ("run", "act", "word"),
        ("nope",),
        ("action", "nope"),
        ("action", "show"),
        ("audit", "list", "--limit", "many"),
    ],
)
def test_wrong_usage_exits_with_2_and_sends_nothing(fake: FakeDaemon, aileron: Command, words: tuple[str, ...]) -> None:
    """The error has the same three lines as any failure."""
    said = aileron(*words).exits(2)
    assert re.match(r"error: [^\n]+\n(  why: [^\n]+\n)?  fix: aileron [^\n]+\n\Z", said.err)
    assert fake.seen == []


def test_the_error_for_a_damaged_file_does_not_suggest_checking_connectors(fake: FakeDaemon, aileron: Command) -> None:
    """The message names the fix; only an integrity error without a file points to `connector list`."""
    for details, is_there in (({"file": "/home/me/.aileron/vault.json"}, False), ({}, True)):
        fake.script("GET", "/v1/bindings", error("hash_mismatch", 409, "it is not as it was", details=details))
        said = aileron("binding", "list").exits(9)
        assert ("fix: aileron connector list" in said.err) is is_there


@pytest.mark.parametrize(
    ("typed", "why", "fix"),
    [
        (("runn", "act"), "did you mean 'run'?", "aileron run act"),
        (("approval", "lst"), "did you mean 'list'?", "aileron approval list"),
        (("audit", "list", "--limt", "1"), "did you mean '--limit'?", "aileron audit list --limit 1"),
        (("run", "act", "--dryrun"), "did you mean '--dry-run'?", "aileron run act --dry-run"),
        (("version",), "did you mean '--version'?", "aileron --version"),
        (("help",), "did you mean '--help'?", "aileron --help"),
        (("versions",), None, "aileron --help"),
        (("run", "list-note"), "did you mean 'list-notes'?", "aileron run list-notes"),
        (("run", "list-notes", "nme=x"), "did you mean 'name'?", "aileron run list-notes name=x"),
        (("action", "show", "list-note"), "did you mean 'list-notes'?", "aileron action show list-notes"),
        (("action", "disable", "delete"), None, "aileron action list"),
        (
            ("config", "set", "egress.privat", "x"),
            "did you mean 'egress.private'?",
            "aileron config set egress.private x",
        ),
    ],
)
def test_the_fix_for_a_mistyped_word_is_the_command_with_the_nearest_known_word(
    fake: FakeDaemon, aileron: Command, typed: tuple[str, ...], why: str | None, fix: str
) -> None:
    """The fix suggests nothing if no word is similar."""
    fake.add_action("list-notes", "name:string")
    said = aileron(*typed)

    assert said.code in (2, 3)
    assert said.err.splitlines()[1:] == [*([f"  why: {why}"] if why else []), f"  fix: {fix}"]


def test_a_command_group_without_a_command_exits_with_2_and_lists_its_commands(aileron: Command) -> None:
    """The list is on standard error, because it is no data."""
    said = aileron("vault")

    assert (said.code, said.out) == (2, "")
    assert "unlock" in said.err


def file(home: Path) -> Path:
    """Make a home that is not a directory."""
    home.write_text("")
    return home


def open_to_all(home: Path) -> Path:
    """Make a home that every user can write to."""
    home.mkdir()
    home.chmod(0o777)
    return home


def link(home: Path) -> Path:
    """Make a home that is a symbolic link."""
    home.symlink_to("/tmp")
    return home


def in_proc(home: Path) -> Path:
    """Return a home that cannot be created."""
    return Path("/proc") / home.name


@pytest.mark.parametrize(
    ("spoiled", "fix"),
    [
        (file, "set AILERON_HOME to a directory of your own"),
        (in_proc, "set AILERON_HOME to a directory of your own"),
        (link, "put the real thing in its place"),
        (open_to_all, "chmod 700 {home}"),
    ],
)
def test_a_daemon_that_cannot_start_exits_with_69_and_a_fix(
    home: Path, spoiled: Callable[[Path], Path], fix: str
) -> None:
    """The error says what is wrong with the home, and what fixes it."""
    said = Command(spoiled(home))("run", "act", "--json").exits(69)
    assert said.json["error"]["class"] == "daemon_unreachable"
    assert said.json["error"]["fix"] == fix.format(home=home)


def test_a_home_with_a_path_too_long_for_sockets_exits_with_69_and_a_fix(tmp_path: Path) -> None:
    """A socket's path has at most 107 bytes."""
    said = Command(tmp_path / ("x" * 107))("action", "list").exits(69)
    assert said.err.endswith("\n  fix: set AILERON_HOME to a shorter path\n")


def test_a_command_whose_response_is_incomplete_exits_with_69(fake: FakeDaemon, aileron: Command) -> None:
    """The connection closes in the middle of the response."""
    fake.script("GET", "/v1/actions", (200, b'{"actions": ['))

    assert aileron("action", "list").code == 69


def test_a_change_whose_response_is_incomplete_exits_with_8(fake: FakeDaemon, aileron: Command) -> None:
    """The outcome is unknown, so the fix is the command that shows it; a --dry-run exits with 69."""
    fake.script("POST", RUN, (200, b'{"resul'))
    said = aileron("run", "act", "--json").exits(8)
    assert (said.json["error"]["class"], said.json["error"]["boundary"]) == ("outcome_unknown", "runtime")
    assert said.json["error"]["fix"] == "aileron audit list --action act"
    assert fake.asked("POST")[0].headers["idempotency-key"] in said.json["error"]["why"]
    assert aileron("run", "act", "--dry-run").code == 69


def test_a_run_that_waits_for_a_person_exits_with_75_at_once(fake: FakeDaemon, aileron: Command) -> None:
    """The value of --wait makes no difference: otherwise the test would time out."""
    answer = {"status": "pending_approval", "approval_id": "act-1", "audit_id": "run-1", "message": "Ask Mira."}
    answer["review_url"] = "http://localhost:1/approvals/act-1"
    fake.script("POST", RUN, (202, {**answer, "expires_at": "2026-11-21T04:13:00Z", "poll_after_ms": 2000}))
    said = aileron("run", "act", "--wait", "1h")

    assert (said.code, said.out) == (75, "")
    assert said.err.splitlines() == [
        "act is waiting for approval",
        "  Ask Mira.",
        "  expires: 2026-11-21T04:13:00Z",
        "  look: aileron approval show act-1",
        "  approve: aileron approve act-1",
        "  deny: aileron deny act-1",
        "  review: http://localhost:1/approvals/act-1",
        "  open: aileron open approval act-1",
    ]
    assert aileron("run", "act", "--wait", "1h", "--json").json["approval_id"] == "act-1"


def test_a_run_that_outlasts_the_wait_exits_with_75(fake: FakeDaemon, aileron: Command) -> None:
    """The output has the run's id."""
    fake.script("POST", RUN, (202, {"status": "running", "run_id": "run-1", "poll_after_ms": 10}))
    fake.script("GET", "/v1/runs/run-1", (200, {"status": "running", "audit_id": "run-1"}))
    said = aileron("run", "act", "--wait", "100ms").exits(75)
    assert "aileron audit show run-1" in said.err
    assert aileron("run", "act", "--wait", "0", "--json").json["run_id"] == "run-1"


def interrupted(fake: FakeDaemon, aileron: Command, *words: str, unanswered: tuple[str, str]) -> tuple[int, str]:
    """Interrupt the command once it waits for an answer to this request. Return its exit code and standard error."""
    waiting, over = threading.Event(), threading.Event()

    def never(_: Seen) -> Reply:
        waiting.set()
        over.wait(30)
        return 200, {}

    fake.script(*unanswered, never)
    with aileron.start(*words) as process:
        assert waiting.wait(30)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    over.set()
    return process.returncode, err


@pytest.mark.parametrize("is_known", [False, True])
def test_interrupting_the_run_command_exits_with_130_and_does_not_cancel_the_run(
    fake: FakeDaemon, aileron: Command, is_known: bool
) -> None:
    """The command says how to look, whether or not it knows the run's id yet."""
    fake.script("POST", RUN, (202, {"status": "running", "run_id": "run-1", "poll_after_ms": 10}))
    unanswered = ("GET", "/v1/runs/run-1") if is_known else ("POST", RUN)
    code, err = interrupted(fake, aileron, "run", "act", unanswered=unanswered)

    assert code == 130
    assert f"aileron audit {'show run-1' if is_known else 'list --action act'}" in err
    assert "Traceback" not in err
    assert fake.asked("DELETE") == []


def test_interrupting_any_other_command_exits_with_130(fake: FakeDaemon, aileron: Command) -> None:
    """The command prints no traceback."""
    code, err = interrupted(fake, aileron, "action", "list", unanswered=("GET", "/v1/actions"))

    assert (code, err.strip()) == (130, "interrupted")


def test_an_interrupt_during_an_import_exits_with_130(tmp_path: Path) -> None:
    """Some modules use exec(), and `python -m` treats an interrupt that left exec() in its own way."""
    (tmp_path / "sitecustomize.py").write_text("""
import sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "aileron.cli.run":
        exec("import os, signal; os.kill(os.getpid(), signal.SIGINT)")

sys.addaudithook(interrupt)
""")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-m", "aileron", "run", "act"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


def test_a_broken_audit_chain_exits_with_9(aileron: Command, home: Path) -> None:
    """The ledger of this test is not a database at all."""
    home.mkdir()
    (home / "ledger.db").write_bytes(b"not a ledger" * 1000)
    said = aileron("audit", "verify").exits(9)
    assert said.err.startswith("error: the audit chain is broken")


def test_a_closed_output_pipe_is_no_error(fake: FakeDaemon, aileron: Command) -> None:
    """The command in `aileron … | head` keeps the exit code that it would have had."""
    for number in range(3000):
        fake.add_action(f"action-{number}", intent="x" * 200)
    with aileron.start("action", "list") as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("words", ["run act", "action list", "run nope"])
def test_output_to_a_full_disk_is_an_error(fake: FakeDaemon, home: Path, words: str) -> None:
    """The exit code reports the lost output; a command that failed anyway keeps its own code."""
    fake.add_action("act")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m aileron {words} > /dev/full"],
        env={**os.environ, "AILERON_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
    )

    if words == "run nope":
        assert done.returncode == 3
    else:
        assert (done.returncode, done.stderr) == (
            1,
            "error: standard output cannot be written: No space left on device\n",
        )


def test_the_reference_page_lists_each_failure_class_with_its_exit_code() -> None:
    """Each class appears once, in the row of its code."""
    rows = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", PAGE, re.MULTILINE)
    shown = {name: int(code) for code, names in rows for name in re.findall(r"`(\w+)`", names)}

    assert shown == {kind.value: kind.exit_code for kind in FailureClass}
