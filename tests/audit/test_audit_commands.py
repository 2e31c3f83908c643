"""`aileron audit tail` and `aileron audit export` with a real daemon: they print every requested event, in order, and
no other.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.audit.verify import verify
from aileron.cli.export import COLUMNS
from aileron.ledger import Ledger, Transaction
from tests.audit.test_audit_reference import PROGRAMS
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon, Seen
from tests.support.home import DaemonHome, daemon_home

pytestmark = pytest.mark.jail  # the daemon makes its template when it starts
MANY = 2_345
"""Number of rows: three pages."""


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Yield a daemon with a past of many events, hostile ones among them."""
    with daemon_home() as made:
        made.path.mkdir(mode=0o700)

        def fill(tx: Transaction) -> None:
            for number in range(MANY):
                tx.append(
                    {
                        "type": "run.refused" if number % 2 else "connector.audit",
                        "run": f"run-{number}",
                        "action": "=1+1" if number % 3 else "send",
                        "message": "\x1b[2J\u202e, a\nb",
                        "share": number / 7,
                    }
                )

        with Ledger.open(made.path / "ledger.db", made.path, "0.1.0") as ledger:
            ledger.commit_now(fill)
        made.ask("GET", "/healthz")
        yield made


@pytest.fixture(scope="module")
def aileron(home: DaemonHome) -> Command:
    """Return the command line of that home."""
    return Command(home.path)


def test_an_audit_export_has_every_row_once_and_can_be_verified_by_another_program(
    home: DaemonHome, aileron: Command, tmp_path: Path
) -> None:
    """The export has several pages. The program on the reference page computes the head, and finds an altered row."""
    target = tmp_path / "trail.jsonl"
    said = aileron("audit", "export", "-o", str(target))
    lines = target.read_bytes().splitlines()
    report = verify(home.path / "ledger.db")

    assert said.code == 0, said
    assert (said.out, said.err) == ("", f"{report.rows} events written to {target}\n")
    assert [json.loads(text)["seq"] for text in lines] == list(range(1, report.rows + 1))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600

    def check(trail: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, "-c", PROGRAMS[1]], input=trail, capture_output=True)

    assert check(target.read_bytes()).stdout.decode() == f"head {report.head}\n"
    assert b"row 4 was altered" in check(target.read_bytes().replace(b'run-2"', b'run-9"', 1)).stderr
    assert b"row 9 does not follow" in check(b"\n".join([*lines[:8], _forged(lines[8])])).stderr


def _forged(text: bytes) -> bytes:
    """Return the record as if it followed another one, with a recomputed hash."""
    row = json.loads(text)
    digest = hashlib.sha256(bytes(32) + text[: text.rindex(b',"at":"')] + b"}").hexdigest()
    return text.replace(row["previous"].encode(), b"0" * 64).replace(row["hash"].encode(), digest.encode())


def test_an_export_has_only_the_rows_that_match(aileron: Command) -> None:
    """The filters are those of `audit list`, but without its limit on the number of rows."""
    said = aileron("audit", "export", "--type", "run.refused", "--action", "send")
    rows = [json.loads(text) for text in said.out.splitlines()]

    assert len(rows) == len([number for number in range(MANY) if number % 2 and number % 3 == 0])
    assert {(row["type"], row["action"]) for row in rows} == {("run.refused", "send")}
    assert aileron("audit", "export", "--run", "run-7", "--since", "1h").out.count("\n") == 1
    assert aileron("audit", "export", "--run", "run-7", "--until", "1h").out == ""


def test_an_exported_table_has_one_line_for_each_row_and_no_formulas(aileron: Command) -> None:
    """A spreadsheet must not execute a cell; the test parses the table as one does."""
    said = aileron("audit", "export", "--format", "csv", "--type", "run.refused")
    rows = list(csv.DictReader(io.StringIO(said.out, newline=""), strict=True))

    assert said.out.count("\n") == MANY // 2 + 1 == len(rows) + 1
    assert tuple(rows[0]) == COLUMNS
    assert {row["action"] for row in rows} == {"'=1+1", "send"}
    assert json.loads(rows[0]["facts"])["message"] == "\x1b[2J\u202e, a\nb"


def test_an_export_printed_to_a_terminal_has_control_characters_escaped(aileron: Command) -> None:
    """The JSON is the same, with characters that control a terminal escaped."""
    shown = aileron.at_terminal("audit", "export", "--run", "run-7").out

    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert json.loads(shown)["message"] == "\x1b[2J\u202e, a\nb"


@pytest.mark.parametrize("words", [("tail",), ("tail", "-f"), ("export",), ("list",)])
def test_an_unknown_filter_value_is_refused_with_the_nearest_known_one(
    aileron: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """All commands refuse it alike, and create no file."""
    more = ("-o", str(tmp_path / "out")) if words == ("export",) else ()
    for option, value, near in (("--type", "run.refusd", "'run.refused'"), ("--class", "bussy", "'busy'")):
        said = aileron("audit", *words, *more, option, value)
        assert (said.code, said.out) == (2, "")
        assert f"did you mean {near}" in said.err
    assert aileron("audit", *words, *more, "--since", "yesterday").code == 2
    assert list(tmp_path.iterdir()) == []


def test_events_recorded_during_an_export_are_not_in_it(tmp_path: Path) -> None:
    """All pages have one upper bound, the newest row at the beginning."""
    with daemon_home() as made, FakeDaemon(made.path) as fake:
        row = {"record": '{"at_us":0,"seq":1}', "previous": "00", "hash": "11"}

        def reply(seen: Seen) -> tuple[int, Any]:
            if "order" not in seen.query:
                return 200, {"events": [{"seq": 1700}]}
            after = int(seen.query["after"])
            page = [{"seq": seq, **row} for seq in range(after + 1, min(after + 1001, int(seen.query["before"])))]
            return 200, {"events": page}

        fake.script("GET", "/v1/audit", reply)
        said = Command(made.path)("audit", "export", "--since", "2h")

        assert said.out.count("\n") == 1700
        pages = [seen.query for seen in fake.seen[1:]]
        assert [page["after"] for page in pages] == ["0", "1000", "1700"]
        assert {(page["before"], page["order"]) for page in pages} == {("1701", "oldest")}
        assert len({page["since"] for page in pages}) == 1
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", pages[0]["since"])


@pytest.mark.parametrize("end", ["fails", "interrupted"])
def test_an_unfinished_export_never_replaces_a_file(tmp_path: Path, end: str) -> None:
    """The daemon fails at the second page or the command is interrupted: the earlier file is unchanged."""
    target = tmp_path / "trail.jsonl"
    target.write_bytes(b"old")
    with daemon_home() as made, FakeDaemon(made.path) as fake:
        row = {"seq": 1, "record": '{"at_us":0,"seq":1}', "previous": "00", "hash": "11"}
        running: list[subprocess.Popen[str]] = []

        def second(_seen: Seen) -> tuple[int, Any]:
            if end == "interrupted":
                running[0].send_signal(signal.SIGINT)
                running[0].wait(30)
            return 500, {"error": {"class": "internal_error", "message": "no", "details": {}}}

        def first(_seen: Seen) -> tuple[int, Any]:
            return 200, {"events": [row]}

        fake.script("GET", "/v1/audit", first, first, second)
        with Command(made.path).start("audit", "export", "-o", str(target)) as process:
            running.append(process)
            process.communicate(timeout=30)

    assert process.returncode == (1 if end == "fails" else 130)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_export_onto_a_full_disk_fails(aileron: Command) -> None:
    """The export does not end silently somewhere; /dev/full is a disk without room, and no regular file."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aileron", "audit", "export"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "AILERON_HOME": str(aileron.home)},
            timeout=30,
        )

    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert aileron("audit", "export", "-o", "/dev/full").code == 1


def test_tail_prints_the_newest_events_last(aileron: Command, home: DaemonHome) -> None:
    """The command prints as many matching events as requested; programs get one object a line."""
    head = home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"]
    seqs = [json.loads(text)["seq"] for text in aileron("audit", "tail", "-n", "3", "--json").out.splitlines()]
    lines = aileron("audit", "tail", "--lines", "2", "--type", "run.refused").out.splitlines()

    assert seqs == [head - 2, head - 1, head]
    assert [text.split("\t")[3] for text in lines] == [f"run-{MANY - 4}", f"run-{MANY - 2}"]
    assert aileron("audit", "tail").out.count("\n") == 10
    assert aileron("audit", "tail", "-n", "0").out == ""
    assert aileron("audit", "tail", "-n", "-1").code == 2


def test_tail_follow_prints_only_matching_events_in_order(home: DaemonHome, aileron: Command) -> None:
    """Each event is printed as it comes, even into a pipe. An interrupt ends the command with 130 and no traceback."""
    with aileron.start("audit", "tail", "-f", "-n", "0", "--json", "--type", "run.refused") as process:
        assert process.stdout is not None
        names = ["no-such-action-1", "no-such-action-2", "no-such-action-3"]
        seen: list[dict[str, Any]] = []
        while not seen:  # until its first look was before ours
            home.run("early")
            if _has_line(process):
                seen.append(json.loads(process.stdout.readline()))
        for name in names:
            home.run(name)
            home.ask("GET", "/v1/status")
        while seen[-1]["action"] != names[-1]:
            seen.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert [event["action"] for event in seen if event["action"] != "early"] == names
    numbers = [event["seq"] for event in seen]
    assert numbers == sorted(set(numbers))
    assert (process.returncode, out, err) == (130, "", "\ninterrupted\n")


def _has_line(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.2)[0])


def test_tail_follow_ends_when_the_daemon_stops(tmp_path: Path) -> None:
    """The command exits with 69 and a message, and starts no daemon."""
    with daemon_home() as made:
        made.ask("GET", "/healthz")
        with Command(made.path).start("audit", "tail", "--follow") as process:
            assert process.stdout is not None
            assert "genesis" in process.stdout.readline()
            made.stop()
            _, err = process.communicate(timeout=30)

        assert process.returncode == 69
        assert "the daemon stopped" in err
        assert not (made.path / "run" / "operator.sock").exists() or made.daemon_pid is None


def test_tail_follow_ends_when_its_reader_closes_the_pipe(home: DaemonHome, aileron: Command) -> None:
    """Otherwise `| head -1` would keep the command waiting for the next event."""
    with aileron.start("audit", "tail", "--follow") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.wait(30) == 0


def test_tail_follow_retries_failed_requests_and_continues_after_the_last_event(tmp_path: Path) -> None:
    """The next request continues after the last event that was printed."""
    with daemon_home() as made, FakeDaemon(made.path) as fake:
        busy = (429, {"error": {"class": "busy", "message": "try again", "details": {}}})
        event = {"at": "2026-11-21T05:29:24.500000Z", "type": "vault.locked", "hash": "00"}
        fake.script(
            "GET",
            "/v1/audit",
            (200, {"events": [{"seq": 7, **event}]}),
            busy,
            busy,
            (200, {"events": [{"seq": 9, **event}]}),
            (400, {"error": {"class": "invalid_request", "message": "enough", "details": {}}}),
        )
        said = Command(made.path)("audit", "tail", "-f")

        assert (said.code, [text.split("\t")[0] for text in said.out.splitlines()]) == (2, ["7", "9"])
        assert [seen.query.get("after") for seen in fake.seen] == [None, "7", "7", "7", "9"]


def test_tail_on_a_terminal_groups_events_under_their_run(aileron: Command) -> None:
    """The layout is that of `audit list`, but with the newest event last."""
    shown = aileron.at_terminal("audit", "tail", "-n", "1", "--run", "run-7", NO_COLOR="1").out.splitlines()

    assert shown[0].endswith("run-7  =1+1")
    assert re.match(r" +9  \d\d:\d\d:\d\d  run.refused", shown[1])
