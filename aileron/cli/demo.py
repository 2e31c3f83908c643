"""`aileron demo`: an action on a real server, a person's approval and denial, a hostile connector that is stopped, and
an agent that has a shell but cannot decide in the person's place. The demo observes whether each claim is true.

It uses a home of its own, which is removed at the end. Everything goes through the same commands that a person types. What the
demo claims is checked from the outside as well (the server and its log, a listener, a process, a file), and a claim that was
not observed makes the exit status 1. The person is asked only once, by `aileron approve` at the terminal; without a terminal,
or with --yes, the demo itself decides, in that home. A person may also deny, or not answer for a while: then the claim is that
nothing happened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.catalogue.service import service_named
from aileron.cli.demo_servers import CalDav, EchoServer, SilentListener
from aileron.cli.demo_terminal import TerminalResult, at_terminal
from aileron.cli.output import is_terminal
from aileron.cli.problem import Problem
from aileron.cli.prompts import can_ask
from aileron.extras import install_command
from aileron.model.json_value import JSONObject, checked_int

__all__ = ["Claim", "demo"]

_COMMAND_S: Final = 60.0
_QUESTION_S: Final = 180.0
"""Seconds to wait for a person to read and answer; the approval itself expires after 15 minutes."""
_CALDAV: Final = "github://aileron/connector-caldav"
_HOSTILE: Final = "github://aileron/connector-hostile"
_DENIED: Final = 5
_REACH_DAYS: Final = 7
"""Number of days that the list of events covers; every event of the demo is within these days."""


@dataclasses.dataclass(frozen=True)
class _Event:
    """A calendar event of one hour, some days from now."""

    title: str
    in_days: int
    hour: int

    def at(self, hours: int) -> str:
        """Return the time `hours` after the event's start, in RFC 3339."""
        return f"{_moment(self.in_days, self.hour + hours):%Y-%m-%dT%H:%M:%SZ}"


_DENTIST: Final = "Dentist"
_EVENTS: Final = (
    ("planning", "Planning with Mira", 1, 10),
    ("dentist", _DENTIST, 2, 8),
    ("train", "Train to Hamburg", 4, 16),
)
_LUNCH: Final = _Event("Lunch with Mira", 3, 12)
_KARAOKE: Final = _Event("Karaoke with Mira", 5, 4)
_SAILING: Final = _Event("Sailing with Mira", 6, 9)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim that the demo makes about Aileron, and whether the demo observed that it is true."""

    name: str
    text: str
    observed: bool
    evidence: str


class CommandResult:
    """The exit status and output of a command."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """Standard output as JSON; None if it is not JSON."""
        with contextlib.suppress(ValueError):
            return json.loads(self.out)
        return None


class _Demo:
    def __init__(self, folder: Path, show: Show, *, asks: bool) -> None:
        self._folder = folder
        self._show = show
        self._asks = asks
        self._home = folder / "home"
        self._password = f"demo-{secrets.token_hex(16)}"
        self._passphrase = secrets.token_urlsafe(16)
        self._approver = secrets.token_urlsafe(16)
        self.claims: list[Claim] = []

    def run(self) -> None:
        caldav = CalDav(self._folder / "caldav", "mira", self._password)
        echo, listener = EchoServer(), SilentListener()
        try:
            with caldav.running(), echo.running():
                self._set_up(caldav, echo)
                self._main_job(caldav)
                self._approved(caldav)
                self._denied(caldav)
                self._hostile(echo, listener)
                self._agent_with_a_shell(caldav)
                self._audit()
        finally:
            listener.close()
            self._aileron("daemon", "stop", quiet=True)

    # set-up

    def _set_up(self, caldav: CalDav, echo: EchoServer) -> None:
        self._show.chapter("A calendar server with another client's events")
        caldav.put_events({name: _icalendar(name, title, days, hour) for name, title, days, hour in _EVENTS})
        self._show.note(
            f"Radicale on https://localhost:{caldav.port}, user mira, with {len(_EVENTS)} events from another client"
        )
        self._home.mkdir(mode=0o700)
        (self._home / "config.toml").write_text(
            "[egress]\n"
            f'private = ["localhost:{caldav.port}"]\n'
            f'private_plain = ["localhost:{echo.port}"]\n'
            f'ca_file = "{caldav.ca_file}"\n',
            encoding="utf-8",
        )
        self._show.chapter("Install a connector and its actions; the password goes to the vault, not to the connector")
        self._must("vault", "init")
        self._must("secret", "set", "caldav-mira", given=self._password)
        self._install("caldav", Path(service_named("caldav").directory), caldav.port)
        self._install("hostile", Path(__file__).parent / "demo_parts" / "hostile", echo.port)
        for connector, name in ((_CALDAV, "basic/caldav/mira"), (_HOSTILE, "basic/echo/mira")):
            self._must("binding", "setup", connector, "--name", name, "--username", "mira", "--secret", "caldav-mira")

    def _install(self, name: str, source: Path, port: int) -> None:
        artifact = self._folder / f"{name}.tar.gz"
        self._must("connector", "build", str(source), "--host", f"localhost:{port}", "-o", str(artifact))
        self._must("connector", "install", str(artifact))
        for action in sorted(source.glob("actions/*/action.md")):
            self._must("action", "add", str(action), quiet=action.parent.name.startswith("hostile-"))

    # the main job

    def _main_job(self, caldav: CalDav) -> None:
        self._show.chapter("The main job: an action reads the calendar")
        before = caldav.accepted_logins()
        said = self._aileron("run", "caldav-list-events", f"days={_REACH_DAYS}", "--json")
        titles = [event.get("title") for event in _items(said)]
        self._show.table(_items(said))
        self._claim(
            "events-listed",
            "the events that the other client stored came back",
            said.status == 0 and sorted(titles, key=str) == sorted(title for _, title, _, _ in _EVENTS),
            f"exit {said.status}, {len(titles)} events",
        )
        logins = caldav.accepted_logins() - before
        self._claim(
            "server-saw-password",
            "the server got the right password (and answers 401 without one)",
            logins > 0 and caldav.refuses_without_password(),
            f"Radicale's log has {logins} more successful logins",
        )

    # a person decides

    def _approved(self, caldav: CalDav) -> None:
        self._show.chapter("You decide: a gated action waits for approval")
        question = self._asked(_LUNCH)
        approval = question.get("approval_id")
        self._claim(
            "gated-waits",
            "a gated action waits for approval, and nothing has happened yet",
            question.get("status") == "pending_approval" and _LUNCH.title not in caldav.titles(),
            f"exit {os.EX_TEMPFAIL}, status {question.get('status')}; the server has {len(caldav.titles())} events",
        )
        said = self._approve(str(approval))
        on_server, listed = caldav.titles(), self._listed()
        if self._asks and said == os.EX_TEMPFAIL:
            self._claim(
                "approved-created",
                "you did not approve, so the event is neither on the server nor in the list",
                _LUNCH.title not in [*on_server, *listed],
                f"the server has {len(on_server)} events",
            )
            return
        self._claim(
            "approved-created",
            "approved and carried out: the event is on the server and in the list",
            said == 0 and on_server.count(_LUNCH.title) == listed.count(_LUNCH.title) == 1,
            f"exit {said}, the server has {len(on_server)} events, the list {len(listed)}",
        )

    def _denied(self, caldav: CalDav) -> None:
        self._show.chapter("A second request is denied, and the agent reads why")
        question = self._asked(_KARAOKE)
        reason = "Mira sleeps at four"
        self._must("deny", str(question.get("approval_id")), "--reason", reason)
        said = self._run(_KARAOKE)  # the same key means the same run, so the agent learns its outcome
        error = (said.json or {}).get("error", {})
        self._claim(
            "denied-absent",
            "denied, so nothing happened: the agent reads the reason, and the server has no such event",
            said.status == _DENIED
            and error.get("class") == "approval_denied"
            and (error.get("details") or {}).get("reason") == reason
            and _KARAOKE.title not in caldav.titles(),
            f"exit {said.status}, {error.get('class')}: {error.get('details', {}).get('reason')}",
        )

    def _asked(self, event: _Event) -> JSONObject:
        """Request to create `event`, as an agent would. Return the response; empty unless the response says that a
        person decides.
        """
        said = self._run(event)
        return said.json if said.status == os.EX_TEMPFAIL and isinstance(said.json, dict) else {}

    def _run(self, event: _Event) -> CommandResult:
        words = [f"title={event.title}", f"start_time={event.at(0)}", f"end_time={event.at(1)}"]
        return self._aileron(
            "run", "caldav-create-event", *words, "--idempotency-key", event.title.split()[0].lower(), "--json"
        )

    def _approve(self, approval: str) -> int:
        """Let the person decide, or decide in their place. Return the exit status, which is 75 if the question stays open."""
        if not self._asks:
            self._show.note("no questions asked: the demo decides for itself, in its own home")
            return self._aileron("approve", approval, "--yes").status
        self._show.command(("approve", approval))
        self._show.note(f"now you decide; without an answer, the demo continues after {_QUESTION_S / 60:g} minutes")
        try:
            done = subprocess.run(
                self._words("approve", approval), env=self._environment(colour=True), timeout=_QUESTION_S
            )
        except subprocess.TimeoutExpired:
            self._show.note("no answer")
            return os.EX_TEMPFAIL
        return done.returncode

    def _listed(self) -> list[str]:
        said = self._aileron("run", "caldav-list-events", f"days={_REACH_DAYS}", "--json")
        self._show.table(_items(said))
        return [str(event.get("title")) for event in _items(said)]

    # the hostile connector

    def _hostile(self, echo: EchoServer, listener: SilentListener) -> None:
        self._show.chapter("A hostile connector tries what it is not allowed to do")
        said = self._aileron("run", "hostile-search-everywhere", "--json")
        result = _result(said)
        self._claim(
            "password-nowhere-inside",
            "it searched every file, its environment, its arguments and its memory for the password",
            result.get("found") == [] and checked_int(result.get("looked", 0)) > 100,
            f"{result.get('looked')} places, found in {result.get('found')}",
        )
        self._undeclared_host(listener)
        self._raw_socket(listener)
        self._file_of_the_user()
        self._other_process()
        self._echo(echo)

    def _undeclared_host(self, listener: SilentListener) -> None:
        said = self._aileron("run", "hostile-undeclared-host", f"url=https://127.0.0.1:{listener.port}/", "--json")
        error = (said.json or {}).get("error", {})
        self._claim(
            "undeclared-host-denied",
            "it requested a host that is not in its manifest: the daemon stopped it",
            error.get("class") == "capability_denied"
            and error.get("requested") == f"network:127.0.0.1:{listener.port}",
            f"{error.get('class')}, requested {error.get('requested')}, granted {error.get('granted')}",
        )

    def _raw_socket(self, listener: SilentListener) -> None:
        said = self._aileron("run", "hostile-raw-socket", "host=127.0.0.1", f"port={listener.port}", "--json")
        heard = listener.connections()
        error = (said.json or {}).get("error", {})
        is_named = error.get("requested") == f"network:127.0.0.1:{listener.port}"
        # If the kernel cannot pass the call to a supervisor: docs/reference/jail.md
        refused = _result(said).get("refused")
        self._claim(
            "raw-socket-refused",
            "it opened a connection of its own: stopped, and the destination is on record",
            (error.get("class") == "capability_denied" and is_named) or refused == "EACCES",
            f"connect(2): {refused}" if refused else f"{error.get('class')}, requested {error.get('requested')}",
        )
        self._claim(
            "nothing-arrived",
            "the listener that both tried to reach received nothing (but does from outside)",
            heard == 0 and listener.hears(),
            f"{heard} connections",
        )

    def _file_of_the_user(self) -> None:
        planted = self._folder / "diary.txt"
        words = f"private: {secrets.token_hex(8)}"
        planted.write_text(words, encoding="utf-8")
        said = self._aileron("run", "hostile-read-file", f"path={planted}", "--json")
        self._claim(
            "file-hidden",
            "it looked for a user's file: the file does not exist in the jail",
            _result(said).get("refused") == "ENOENT"
            and words not in said.out
            and planted.read_text(encoding="utf-8") == words,
            f"open(2): {_result(said).get('refused')}",
        )

    def _other_process(self) -> None:
        with _victim() as victim:
            said = self._aileron("run", "hostile-kill-process", f"pid={victim.pid}", "--json")
            alive = victim.poll() is None
        self._claim(
            "process-out-of-reach",
            "it tried to kill another process of the user: out of reach, still alive",
            _result(said).get("refused") in {"EPERM", "ESRCH"} and alive,
            f"kill(2): {_result(said).get('refused')}, the process is {'alive' if alive else 'dead'}",
        )

    def _echo(self, echo: EchoServer) -> None:
        said = self._aileron("run", "hostile-echoed-password", "--json")
        answer = said.json or {}
        shown = self._aileron("audit", "show", str(answer.get("audit_id")), "--json", quiet=True).json or {}
        scrubbed = sum(int(event.get("scrubbed") or 0) for event in shown.get("events", []))
        self._claim(
            "echo-scrubbed",
            "it asked a server to echo the password: masked on the way back",
            said.status == 0
            and bool(echo.seen)
            and bool(echo.seen[-1])
            and self._password not in said.out
            and scrubbed > 0,
            f"the server saw it {len(echo.seen)} time(s), {scrubbed} occurrences masked, none came back",
        )

    # an agent with a shell of the same user

    def _agent_with_a_shell(self, caldav: CalDav) -> None:
        self._show.chapter("An agent with your shell, your files and the vault's passphrase tries to decide")
        init = self._typed(
            ("approver", "init"),
            ("[y/N]", "y"),
            ("New approver passphrase: ", self._approver),
            ("New approver passphrase, again: ", self._approver),
        )
        self._show.note("you created a key with a passphrase of your own, typed at your terminal")
        question = self._asked(_SAILING)
        approval = str(question.get("approval_id"))
        said = self._aileron("approve", approval, "--yes", "--json")
        error = (said.json or {}).get("error", {})
        self._claim(
            "agent-cannot-approve",
            "it approves in your place: refused, because decisions are signed now",
            init.status == 0 and error.get("class") == "unauthorized" and _SAILING.title not in caldav.titles(),
            f"exit {said.status}, {error.get('class')}",
        )
        self._contradicted(caldav)
        self._gate_taken_away(caldav)
        approved = self._typed(("approve", approval), ("Approver passphrase", self._approver), ("[y/N]", "y"))
        self._claim(
            "signed-approval-counts",
            "you approve at your terminal with your passphrase: the event is on the server",
            approved.status == 0 and caldav.titles().count(_SAILING.title) == 1,
            f"exit {approved.status}, the server has {len(caldav.titles())} events",
        )

    def _contradicted(self, caldav: CalDav) -> None:
        self._show.note("it asks to delete one event, but names another")
        said = self._aileron(*("run", "caldav-delete-event", "uid=dentist@demo", f"title={_SAILING.title}", "--json"))
        approval = str((said.json or {}).get("approval_id"))
        shown = self._typed(
            ("approve", approval), ("Approver passphrase", self._approver), ("Type delete to approve", "n")
        )
        marked = f"Title: the agent said “{_SAILING.title}”, the service has “{_DENTIST}”"
        self._must("approval", "cancel", approval, quiet=True)
        self._claim(
            "contradiction-marked",
            "it asks to delete one event but names another: the card shows which, and that it differs from "
            "what the agent says",
            marked in " ".join(shown.text.split()) and _DENTIST in caldav.titles(),
            f"exit {shown.status}; the calendar still has {_DENTIST!r}",
        )

    def _gate_taken_away(self, caldav: CalDav) -> None:
        file = self._home / "actions" / "caldav-create-event.md"
        agreed = file.read_text(encoding="utf-8")
        before, _, gate = agreed.partition("[approval]")
        file.write_text(f"{before}+++\n{gate.partition('+++')[2]}", encoding="utf-8")
        self._show.note("it edits the action file so that no approval is needed")
        said = self._run(dataclasses.replace(_KARAOKE, title="Party with Mira"))
        error = (said.json or {}).get("error", {})
        self._claim(
            "dropped-gate-waits",
            "it removes the gate from the action file: the action does not run until you approve the change",
            error.get("class") == "consent_required" and "Party with Mira" not in caldav.titles(),
            f"exit {said.status}, {error.get('class')}",
        )
        file.write_text(agreed, encoding="utf-8")

    def _typed(self, words: tuple[str, ...], *answers: tuple[str, str]) -> TerminalResult:
        self._show.command(words)
        return at_terminal(self._words(*words), self._environment(), answers)

    # the record

    def _audit(self) -> None:
        self._show.chapter("What is on record")
        said = self._must("audit", "list", "--limit", "8", "--json")
        self._show.output("\n".join(_told(event) for event in reversed((said.json or {}).get("events", []))))
        said = self._aileron("audit", "verify", "--json")
        self._claim(
            "audit-verified",
            "every step is in the audit trail, and its chain is valid",
            said.status == 0 and (said.json or {}).get("ok") is True,
            f"{(said.json or {}).get('rows')} rows",
        )
        leaks = [
            path for path in self._home.rglob("*") if path.is_file() and self._password.encode() in path.read_bytes()
        ]
        self._claim(
            "password-nowhere-at-rest",
            "the password is in no file of the home: not in the vault, the ledger or a log",
            not leaks,
            f"{len(leaks)} files",
        )

    # commands

    def _must(self, *arguments: str, given: str | None = None, quiet: bool = False) -> CommandResult:
        said = self._aileron(*arguments, given=given, quiet=quiet)
        if said.status != 0:
            raise RuntimeError(
                f"`aileron {' '.join(arguments)}` ended with {said.status}: {said.err.strip() or said.out.strip()}"
            )
        return said

    def _aileron(self, *arguments: str, given: str | None = None, quiet: bool = False) -> CommandResult:
        if not quiet:
            self._show.command(arguments)
        done = subprocess.run(
            self._words(*arguments),
            env=self._environment(),
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def _words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "aileron", *arguments]

    def _environment(self, *, colour: bool = False) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AILERON_")},
            "AILERON_HOME": str(self._home),
            "AILERON_VAULT_PASSPHRASE": self._passphrase,
            **({} if colour else {"NO_COLOR": "1"}),
        }

    def _claim(self, name: str, text: str, observed: bool, evidence: str) -> None:
        claim = Claim(name, text, observed, evidence)
        self.claims.append(claim)
        self._show.claim(claim)


_NEXT = """\
Next: write an action of your own in five minutes. This command starts a service for it, and the README shows the rest:
  aileron demo-server"""
_NEXT_AFTER_FAILURE = """\
Next: find out what this machine lacks:
  aileron doctor"""


class Show:
    """The demo's output for a person, while it happens."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        from rich.console import Console

        self._console = Console(quiet=quiet, highlight=False)
        # Prefixes of paths that are of no interest: those of the demo's own home and of this program.
        self._prefixes = (
            f"{folder}/",
            f"{Path(__file__).resolve().parent}/",
            f"{Path(__file__).resolve().parents[2]}/",
        )
        self._chapter = 0

    def chapter(self, title: str) -> None:
        """Start a new chapter."""
        self._chapter += 1
        self._console.print(f"\n[bold cyan]{self._chapter}[/]  [bold]{title}[/]\n")

    def command(self, arguments: tuple[str, ...]) -> None:
        """Show the next command as a person would type it."""
        words = [self._shortened(word) for word in arguments if word != "--json"]
        self._line("$", "dim", "aileron " + " ".join(words))

    def note(self, text: str) -> None:
        """Show an explanatory note."""
        self._line(" ", "dim", text, "dim")

    def output(self, text: str) -> None:
        """Show what a command printed."""
        from rich.text import Text

        for line in text.rstrip().splitlines():
            self._console.print(Text(f"     {line}", "dim"), no_wrap=True, overflow="ellipsis")

    def table(self, events: list[JSONObject]) -> None:
        """Show calendar events."""
        for event in events:
            self._line(" ", "dim", f"{event.get('start')}  {event.get('title')}")

    def claim(self, claim: Claim) -> None:
        """Show a claim that the demo makes, with the observed evidence below."""
        if claim.observed:
            self._line("\u2713", "green", claim.text)
        else:
            self._line("\u2717", "bold red", f"{claim.text}: FAILED", "bold red")
        self._line(" ", "dim", claim.evidence, "dim")

    def end(self, claims: list[Claim], seconds: float) -> None:
        """Print how many checks passed, and the next step."""
        passed = sum(claim.observed for claim in claims)
        is_well = bool(claims) and passed == len(claims)
        said, colour = (f"All {passed}", "bold green") if is_well else (f"{passed} of {len(claims)}", "bold red")
        self._console.print(f"\n[{colour}]{said} checks passed[/] in {seconds:.1f} s")
        self._console.print(f"{_NEXT if is_well else _NEXT_AFTER_FAILURE}\n")

    def _shortened(self, word: str) -> str:
        for prefix in self._prefixes:
            word = word.replace(prefix, "")
        return f"'{word}'" if " " in word else word

    def _line(self, sign: str, sign_style: str, text: str, style: str = "") -> None:
        """Print a line with a sign in front. Text that does not fit continues on an indented line."""
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        row.add_column(width=4, min_width=4, justify="right")
        row.add_column(overflow="fold")
        row.add_row(Text(sign, sign_style), Text(text, style))
        self._console.print(row)


def demo(*, as_json: bool = False, keep: bool = False, yes: bool = False) -> int:
    """Run the demo. Return 0 only if every claim was observed. With `as_json`, the claims are printed on standard output.

    A person at the terminal is asked once, unless `yes` answers for them. Raises Problem if the demo's own packages are missing.
    """
    _check_installed()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="aileron-demo-"))
    show = Show(folder, quiet=as_json)
    scene = _Demo(folder, show, asks=not (as_json or yes) and is_terminal("stdout") and can_ask())
    problem = None
    try:
        scene.run()
    except (RuntimeError, OSError, AssertionError, subprocess.SubprocessError, ImportError) as error:
        problem = str(error) or type(error).__name__
        print(f"error: the demo stopped: {problem}", file=sys.stderr)
    finally:
        if keep:
            show.note(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    show.end(scene.claims, time.monotonic() - started)
    complete = problem is None and bool(scene.claims) and all(claim.observed for claim in scene.claims)
    if as_json:
        print(json.dumps({"complete": complete, "claims": [dataclasses.asdict(claim) for claim in scene.claims]}))
    return 0 if complete else 1


def _check_installed() -> None:
    missing = [name for name in ("radicale", "trustme") if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem.usage(
            "the demo's calendar server is not installed",
            why=f"it is an optional package, and {' and '.join(f'`{name}`' for name in missing)} cannot be found",
            fix=install_command("demo"),
        )


def _moment(days: int, hour: int) -> datetime.datetime:
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    return then.replace(hour=hour, minute=0, second=0, microsecond=0)


def _icalendar(name: str, title: str, days: int, hour: int) -> str:
    start = _moment(days, hour)
    end = start + datetime.timedelta(hours=1)
    return (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//aileron//demo//EN\r\nBEGIN:VEVENT\r\n"
        f"UID:{name}@demo\r\nDTSTAMP:{start:%Y%m%dT%H%M%SZ}\r\nDTSTART:{start:%Y%m%dT%H%M%SZ}\r\nDTEND:{end:%Y%m%dT%H%M%SZ}\r\n"
        f"SUMMARY:{title}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )


def _told(event: JSONObject) -> str:
    """Return an event of the audit trail as one line."""
    names = (
        "action",
        "op",
        "method",
        "host",
        "path",
        "credential",
        "status",
        "class",
        "address",
        "scrubbed",
        "decision",
        "reason",
    )
    facts = " ".join(f"{name}={event[name]}" for name in names if event.get(name) is not None)
    return f"{event.get('seq'):>3}  {event.get('type'):<16} {facts}"


def _result(said: CommandResult) -> JSONObject:
    answer = said.json
    result = answer.get("result") if isinstance(answer, dict) else None
    return result if isinstance(result, dict) else {}


def _items(said: CommandResult) -> list[JSONObject]:
    answer = said.json
    result = answer.get("result") if isinstance(answer, dict) else None
    if isinstance(result, dict):
        result = result.get("events")
    return [item for item in result if isinstance(item, dict)] if isinstance(result, list) else []


@contextlib.contextmanager
def _victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(5)
