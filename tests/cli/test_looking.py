"""`audit`, `status`, `doctor` and `daemon logs`: what happened, and the state of the daemon and the machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from aileron.audit.verify import verify
from aileron.ledger import Ledger
from tests.cli.command import Command
from tests.cli.questions import SUBJECTS, subject_question
from tests.support.fake_daemon import FakeDaemon, Seen, error

EVENTS: list[dict[str, Any]] = [
    {
        "seq": 3,
        "at": "2026-11-21T05:29:24.500000Z",
        "type": "run.finished",
        "run": "run-1",
        "action": "send",
        "status": "failed",
        "class": "network_error",
        "message": "no route",
        "hash": "00",
    },
    {
        "seq": 2,
        "at": "2026-11-21T05:29:24.400000Z",
        "type": "egress.finished",
        "run": "run-1",
        "status": 502,
        "bytes_down": 7,
        "hash": "00",
    },
    {"seq": 1, "at": "2026-11-20T01:00:00.000000Z", "type": "vault.locked", "reason": "asked", "hash": "00"},
]


# Audit


def test_the_filters_of_audit_list_are_sent_to_the_daemon(fake: FakeDaemon, aileron: Command) -> None:
    """Each option becomes a query parameter under the daemon's name; an option that is not given is not sent."""
    words = ["--run", "run-1", "--type", "run.finished", "--class", "network_error", "--since", "2h", "--limit", "5"]
    aileron("audit", "list", *words, "--action", "a&b=c", "--after", "7")

    assert fake.seen[0].query == {
        "run": "run-1",
        "type": "run.finished",
        "class": "network_error",
        "since": "2h",
        "limit": "5",
        "action": "a&b=c",
        "after": "7",
    }


def test_audit_list_prints_tab_separated_lines_in_a_pipe(fake: FakeDaemon, aileron: Command) -> None:
    """A line has the number, time, type, run, and each fact with its name."""
    fake.events = EVENTS

    assert aileron("audit", "list").out.splitlines() == [
        "3\t2026-11-21T05:29:24.500000Z\trun.finished\trun-1\t"
        'action=send status=failed class=network_error message="no route"',
        "2\t2026-11-21T05:29:24.400000Z\tegress.finished\trun-1\tstatus=502 bytes_down=7",
        "1\t2026-11-20T01:00:00.000000Z\tvault.locked\t-\treason=asked",
    ]
    assert aileron("audit", "list", "--json").json == {"events": EVENTS}


def test_audit_list_groups_events_by_run_at_a_terminal(fake: FakeDaemon, aileron: Command) -> None:
    """Each event takes one line, which is cut at the terminal's width."""
    fake.events = [*EVENTS, {**EVENTS[2], "reason": "x" * 200}]
    lines = aileron.at_terminal("audit", "list", NO_COLOR="1").out.splitlines()

    assert lines[:5] == [
        "2026-11-21  run-1  send",
        "     3  05:29:24  run.finished       failed  network_error  no route",
        "     2  05:29:24  egress.finished    502  bytes_down 7",
        "2026-11-20",
        "     1  01:00:00  vault.locked       asked",
    ]
    assert (len(lines[5]), lines[5][-1]) == (80, "…")


def test_audit_show_includes_the_result_of_a_run(fake: FakeDaemon, aileron: Command) -> None:
    """The result comes from the run's own route, because the audit events do not contain it."""
    fake.script("GET", "/v1/audit/run-1", (200, {"audit_id": "run-1", "status": "completed", "events": EVENTS[:1]}))
    fake.script("GET", "/v1/runs/run-1", (200, {"status": "completed", "result": {"id": 7}}))
    said = aileron("audit", "show", "run-1")

    assert said.out.startswith("run\trun-1\nstatus\tcompleted\n")
    assert said.out.endswith('{"id": 7}\n')
    assert aileron("audit", "show", "run-1", "--json").json["result"] == {"id": 7}


RUN = "run-20261121T035800-0f7c1dd8f7b7a1ba1d0e"


def test_ids_are_short_at_a_terminal_and_short_ids_are_accepted(fake: FakeDaemon, aileron: Command) -> None:
    """A terminal shows the end of an id, a pipe the whole id. An end that matches two runs is refused."""
    of_run = {**EVENTS[0], "run": RUN}
    other = {**of_run, "run": RUN[:-8] + "01ba1d0e"}
    approval = "act-20261121T035801-72a3869059febd0fb889"
    fake.events = [of_run, other, {**of_run, "seq": 4, "type": "approval.decided", "approval": approval}]
    fake.script("GET", f"/v1/audit/{RUN}", (200, {"audit_id": RUN, "events": [of_run]}))
    listed = aileron.at_terminal("audit", "list", NO_COLOR="1").out

    assert (RUN in listed, f"  {RUN[-8:]}  send" in listed) == (False, True)
    assert (approval in listed, approval[-8:] in listed) == (False, True)
    assert RUN in aileron("audit", "list").out
    assert aileron("audit", "show", RUN[-8:]).out.startswith(f"run\t{RUN}\n")
    ambiguous = aileron("audit", "show", RUN[-6:])
    assert (ambiguous.code, f"is ambiguous: {RUN} or {other['run']}" in ambiguous.err) == (2, True)
    aileron("audit", "list", "--run", RUN[-8:])
    assert fake.seen[-1].query["run"] == RUN
    assert aileron("audit", "show", "00000000").code == 3
    failed = error("network_error", 502, "no route", audit_id=RUN)
    fake.add_action("act")
    fake.script("POST", "/v1/actions/act/run", failed)
    assert aileron.at_terminal("run", "act", NO_COLOR="1").out.endswith(f"\n  look: aileron audit show {RUN[-8:]}\n")
    assert aileron("run", "act").err.endswith(f"\n  look: aileron audit show {RUN}\n")


def test_audit_show_of_a_refused_request_does_not_fetch_a_result(fake: FakeDaemon, aileron: Command) -> None:
    """A request that was refused never became a run, so there is no result to fetch."""
    fake.script("GET", "/v1/audit/run-2", (200, {"audit_id": "run-2", "events": EVENTS[:1]}))

    assert aileron("audit", "show", "run-2").out.startswith("run\trun-2\nstatus\trefused\n")
    assert len(fake.seen) == 1


@pytest.fixture
def ledger(home: Path) -> Path:
    """Path of a ledger in this home with one row."""
    home.mkdir(mode=0o700)
    with Ledger.open(home / "ledger.db", home, "0.1.0"):
        pass
    return home / "ledger.db"


def test_audit_verify_of_an_intact_chain_exits_with_0_without_a_daemon(
    aileron: Command, ledger: Path, home: Path
) -> None:
    """The output also says what this does not prove."""
    said = aileron("audit", "verify").exits(0)
    assert re.search(r"^rows\t1\nhead\t1:[0-9a-f]{64}$", said.out, re.MULTILINE)
    assert "This does not prove:" in said.err
    assert not (home / "run").exists()
    found = aileron("audit", "verify", "--json").json
    assert (found["ok"], found["rows"], found["problem"]) == (True, 1, None)
    assert found["cannot_prove"]


def test_audit_verify_of_an_altered_chain_exits_with_9(aileron: Command, ledger: Path) -> None:
    """A single byte of one row is changed; the JSON says that the chain is not ok."""
    ledger.write_bytes(ledger.read_bytes().replace(b'"genesis"', b'"genesiz"'))
    said = aileron("audit", "verify", "--json").exits(9)
    assert said.err.startswith("error: the audit chain is broken")
    assert '"ok": false' in said.out


def test_audit_verify_fails_if_the_given_head_is_not_in_the_chain(aileron: Command, ledger: Path) -> None:
    """The head was kept elsewhere. A wrong one exits with 9, and a malformed one is wrong usage."""
    head = verify(ledger).head
    assert head is not None
    wrong = head[:-1] + ("0" if head[-1] != "0" else "1")

    assert aileron("audit", "verify", "--head", head).code == 0
    assert aileron("audit", "verify", "--head", wrong).code == 9
    assert aileron("audit", "verify", "--head", "seven").code == 2


def test_audit_verify_can_check_a_copy_of_any_homes_ledger(aileron: Command, ledger: Path, tmp_path: Path) -> None:
    """The option --file names the copy; a missing file exits with 3."""
    copy = shutil.copy(ledger, tmp_path / "copy.db")

    assert Command(tmp_path / "another")("audit", "verify", "--file", str(copy)).code == 0
    assert aileron("audit", "verify", "--file", "/nowhere").code == 3


# Status and doctor


def test_status_describes_the_daemon(fake: FakeDaemon, aileron: Command) -> None:
    """The command prints tab-separated lines, or JSON with --json."""
    fake.passphrase = "x"
    said = aileron("status")

    assert "daemon\trunning, pid 4242\n" in said.out
    assert "vault\tlocked\n" in said.out
    assert "decisions\tnot signed: any process of this user can make them\n" in said.out
    assert aileron("status", "--json").json["pid"] == 4242


KEY = "ed25519:" + "ab" * 16


@pytest.mark.parametrize(
    ("approver", "told", "check"),
    [
        ({"status": "none"}, "not signed: any process", ("note", "aileron approver init")),
        ({"status": "ready", "key_id": KEY}, f"signed by {KEY}", ("ok", None)),
        (
            {"status": "ready", "key_id": KEY, "passkeys": 1},
            f"signed by {KEY} or by 1 enrolled passkey",
            ("ok", None),
        ),
        (
            {"status": "ready", "key_id": KEY, "passkeys": 2},
            f"signed by {KEY} or by 2 enrolled passkeys",
            ("ok", None),
        ),
        ({"status": "locked"}, "signed; unlock the vault to see by whom", ("note", "aileron vault unlock")),
        ({"status": "problem", "problem": "an older vault"}, "an older vault", ("bad", "aileron approver status")),
    ],
)
def test_status_and_doctor_say_whether_decisions_are_signed(
    fake: FakeDaemon, aileron: Command, approver: Any, told: str, check: tuple[str, str | None]
) -> None:
    """Both commands agree on each state of the approver."""
    status = fake.reply(Seen("operator", "GET", "/v1/status", {}, {}, None))[1]
    fake.script("GET", "/v1/status", (200, {**status, "approver": approver}))

    assert f"decisions\t{told}" in aileron("status").out
    assert checks_of(aileron("doctor", "--json"))["decisions"] == check


def test_status_and_doctor_report_changed_settings_that_wait_for_consent(fake: FakeDaemon, aileron: Command) -> None:
    """Earlier values remain in effect meanwhile; the line is absent if no setting waits."""
    assert "settings" not in aileron("status").out
    status = fake.reply(Seen("operator", "GET", "/v1/status", {}, {}, None))[1]
    fake.script("GET", "/v1/status", (200, {**status, "settings_waiting": ["egress.private", "sandbox.mode"]}))

    assert "config.toml is not in effect for egress.private, sandbox.mode: " in aileron("status").out
    assert ("note", "aileron approval list") in [
        (check["state"], check["fix"])
        for check in aileron("doctor", "--json").json["checks"]
        if check["name"] == "settings"
    ]


def test_status_lists_pending_approvals(fake: FakeDaemon, aileron: Command) -> None:
    """The output has their number, and the first three in words with the agent that asked."""
    kinds = ("binding", "action_file", "grant", "secret")
    fake.approvals = [
        subject_question(SUBJECTS[kind], approval_id=f"act-{number}", agent="claude")
        for number, kind in enumerate(kinds)
    ]

    assert (
        "waiting\t4 for approval: aileron approval list\t"
        "claude: ! LASTING  Let “github://example/connector-mail” use the secret “pw” as “mira”\t"
        "claude: ! LASTING  ! runs without approval  Change the action “send-mail”\t"
        "claude: ! LASTING  ! no limit +1  Let “send-mail” run up to 10 times without asking\n"
    ) in aileron("status").out
    fake.approvals = []
    assert "waiting\t0 for approval\n" in aileron("status").out


@pytest.mark.parametrize("words", [("status",), ("daemon", "status")])
def test_status_starts_no_daemon(aileron: Command, home: Path, words: tuple[str, ...]) -> None:
    """The command exits with 69, and creates no home either."""
    said = aileron(*words).exits(69)
    assert said.err.endswith("  fix: aileron daemon start\n")
    assert not home.exists()


def test_stopping_a_daemon_that_does_not_run_succeeds(aileron: Command, home: Path) -> None:
    """The command starts no daemon and creates no home."""
    said = aileron("daemon", "stop")

    assert (said.code, said.err) == (0, "no daemon is running\n")
    assert not home.exists()


def checks_of(said: Any) -> dict[str, tuple[str, str | None]]:
    """Return state and fix of each check, by name."""
    return {check["name"]: (check["state"], check["fix"]) for check in said.json["checks"]}


@pytest.mark.jail
def test_doctor_finds_no_problem_on_a_sound_machine(aileron: Command, fake: FakeDaemon) -> None:
    """The command starts a real jail and describes the machine."""
    fake.passphrase, fake.is_locked = "x", False
    said = aileron("doctor", "--json").exits(0)
    found = checks_of(said)
    assert found.pop("decisions")[0] == "note"  # decisions are not signed in this home
    state, fix = found.pop("memory")  # an ordinary user needs delegated control groups
    assert state == "ok" or (state == "note" and "Delegate=yes" in str(fix))
    assert {state for state, _ in found.values()} == {"ok"}
    assert said.json["machine"]["layers"]
    shown = aileron.at_terminal("doctor", NO_COLOR="1").out
    assert re.search(r"^ok  jail +\d+ layers active", shown, re.MULTILINE)


@pytest.mark.jail
def test_doctor_reports_each_problem_with_its_fix(aileron: Command, fake: FakeDaemon, home: Path) -> None:
    """Each problem has a state and a fix of its own; the exit code is 1."""
    home.chmod(0o755)
    (home / "config.toml").write_text('[egress]\nprivat = ["a:1"]\n')
    fake.version = "9.9.9"
    said = aileron("doctor", "--json")
    found = checks_of(said)

    assert said.code == 1
    assert found["home"] == ("bad", f"chmod 700 {home}")
    assert found["settings"] == ("bad", f"edit {home / 'config.toml'}")
    assert found["daemon"] == ("bad", "aileron daemon restart")
    assert found["vault"] == ("note", "aileron vault init")
    assert "fix: chmod 700" in aileron.at_terminal("doctor", NO_COLOR="1").out


@pytest.mark.jail
def test_doctor_says_which_logins_lack_a_package(aileron: Command, fake: FakeDaemon, tmp_path: Path) -> None:
    """`None` in `sys.modules` makes the package missing: the check names the install command. It is absent otherwise."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['asyncssh'] = None\n")
    lacking = aileron("doctor", "--json", PYTHONPATH=os.pathsep.join((str(tmp_path), *sys.path)))
    whole = aileron("doctor", "--json")

    state, fix = checks_of(lacking)["logins"]
    assert (lacking.code, state) == (1, "bad")
    assert str(fix).endswith("install asyncssh")
    assert "logins" not in checks_of(whole)


@pytest.mark.jail
def test_doctor_examines_the_chosen_sandbox_mode(aileron: Command, fake: FakeDaemon, home: Path) -> None:
    """The weaker mode is a note with its layers, or says what it lacks; the other mode is not tried."""
    (home / "config.toml").write_text('[sandbox]\nmode = "landlock"\n', encoding="utf-8")
    said = aileron("doctor", "--json")
    state, fix = checks_of(said)["jail"]

    if state == "note":
        assert "no-namespaces" in said.json["machine"]["layers"]
    else:  # an interpreter that the jail of a root cannot read
        assert state == "bad"
        assert fix is not None
        assert "must be readable by others" in fix


def test_doctor_starts_no_daemon_and_creates_no_home(aileron: Command, home: Path) -> None:
    """A missing daemon is only a note: the first command starts it."""
    said = aileron("doctor", "--json").exits(0)
    assert checks_of(said)["daemon"][0] == "note"
    assert not home.exists()


@pytest.mark.jail
def test_doctor_reports_an_unusable_home(aileron: Command, home: Path) -> None:
    """The home is a file, or has a path too long for sockets."""
    home.write_text("")
    long = Command(home.parent / ("x" * 110))
    long.home.mkdir(mode=0o700)

    assert checks_of(aileron("doctor", "--json"))["home"][0] == "bad"
    assert checks_of(long("doctor", "--json"))["sockets"] == ("bad", "set AILERON_HOME to a shorter path")


@pytest.mark.jail
def test_doctor_reports_a_daemon_whose_answer_is_an_error(aileron: Command, fake: FakeDaemon) -> None:
    """The daemon responds, but not with a status."""
    fake.script("GET", "/v1/status", error("internal_error", 500, "a bug"))

    assert checks_of(aileron("doctor", "--json"))["daemon"] == ("bad", "aileron daemon logs")


# The log


def test_logs_prints_the_end_of_the_log(aileron: Command, home: Path) -> None:
    """The command prints as many lines as requested, 50 by default."""
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "daemon.log").write_text("".join(f"line {number}\n" for number in range(100)))

    assert aileron("daemon", "logs", "-n", "2").out == "line 98\nline 99\n"
    assert len(aileron("daemon", "logs").out.splitlines()) == 50


def test_a_missing_log_is_reported(aileron: Command) -> None:
    """The exit code is 3: not found."""
    assert aileron("daemon", "logs").code == 3


def test_logs_follow_continues_after_log_rotation(aileron: Command, home: Path) -> None:
    """Appended lines appear before and after the file is renamed."""
    (home / "logs").mkdir(parents=True)
    log = home / "logs" / "daemon.log"
    log.write_text("first\n")
    with aileron.start("daemon", "logs", "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        with log.open("a") as file:
            file.write("sec")
            file.flush()
            file.write("ond\n")
        assert process.stdout.readline() == "second\n"
        log.rename(home / "logs" / "daemon.log.1")
        log.write_text("third\n")
        assert process.stdout.readline() == "third\n"
        process.terminate()
