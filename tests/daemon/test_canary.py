"""A canary secret is lent in every request of a hostile day, and then searched for in everything the day has left.

A real daemon, real jails, an upstream that reflects the credential in each way it has, a connector that passes on all it is
told, and every failure on the way. Then: answers, output of commands, logs, ledger (pages and journal), temporary files,
and what other processes can see of the daemon. The vault's encrypted file is searched like the rest.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron.client import Answer
from tests.cli.command import Command
from tests.egress.test_egress_leaks import BREAKS, ECHOES
from tests.support.canary import find, scan, shapes
from tests.support.descendants import read_descendants
from tests.support.home import DaemonHome, daemon_home
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("real_processes"), pytest.mark.abuse_case("E22", "E29")]

CANARY = b"canary-/7Gq+Zw9tK0=~"
PAIR = b"mira:" + CANARY
WIRE = base64.b64encode(PAIR)
REFLECTOR = "github://aileron-tests/reflector"
HASTY = "github://aileron-tests/hasty-reflector"
SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "reflector"
SCRIPTS = {**{f"/echo/{number}": echo for number, echo in enumerate(ECHOES.values())},
           **{f"/break/{number}": lie for number, lie in enumerate(BREAKS.values())}}  # fmt: skip


def reflect(seen: Seen) -> Any:
    """Return the response that the path asks for."""
    sent = (seen.values("authorization") or ["none"])[0].encode()
    status = {"/407": "407 Proxy", "/401": "401 Who", "/503": "503 Later"}.get(seen.target)
    if status is not None:
        return answer(sent + CANARY, f"WWW-Authenticate: {sent.decode()}", status=status)
    if seen.target == "/plain":
        return answer(b"secret: " + CANARY + b" pair: " + PAIR + b" wire: " + WIRE)
    return SCRIPTS[seen.target](sent)


class Day:
    """A home, and everything that it told its callers."""

    def __init__(self, home: DaemonHome, upstream: Upstream, temporary: Path) -> None:
        self.home = home
        self.upstream = upstream
        self.temporary = temporary
        self.heard: list[tuple[str, bytes]] = []
        self.aileron = Command(home.path)

    def note(self, what: str, said: object) -> None:
        """Keep what a caller was told."""
        self.heard.append((what, said if isinstance(said, bytes) else json.dumps(said, default=repr).encode()))

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request to the daemon and keep the response."""
        got = self.home.ask(method, path, body)
        self.note(f"{method} {path}", got.body)
        return got

    def run(self, action: str, **args: str) -> Answer:
        """Run an action and keep its response and its record."""
        got = self.home.run(action, args)
        self.note(f"run {action} {args}", got.body)
        run_id = got.body.get("audit_id") or got.body.get("error", {}).get("audit_id")
        if run_id:
            self.note(f"audit of {run_id}", self.home.events(run_id))
        return got

    def command(self, *words: str, given: str | None = None, **environment: str) -> None:
        """Run a command and keep all that it wrote."""
        said = self.aileron(*words, given=given, **environment)
        self.note(" ".join(words), said.out.encode() + said.err.encode())


def classes(got: Answer) -> str:
    """Return the class of a failure, or `ok`."""
    return str(got.body.get("error", {}).get("class", "ok"))


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    """Let everything happen once; the tests search what is left."""
    temporary = Path(tempfile.mkdtemp(prefix="ail-tmp-"))
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(temporary)
    stranger = Authority(temporary).server_context("localhost")
    try:
        with Upstream(reflect) as upstream, Upstream(reflect, stranger) as liar, daemon_home() as home:
            hosts = [
                f"localhost:{upstream.port}",
                f"localhost:{liar.port}",
                "localhost:1",
                "nowhere.invalid:443",
            ]
            home.configure(f"[egress]\nprivate_plain = {hosts[:3]}\nprivate = {hosts}\n")
            home.ask("GET", "/healthz")
            home.install(SOURCE, *hosts)
            home.install(in_haste(SOURCE, temporary / "hasty"), *hosts)
            made = Day(home, upstream, temporary)
            live(made, liar.port)
            yield made
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        shutil.rmtree(temporary, ignore_errors=True)


def in_haste(source: Path, copy: Path) -> Path:
    """Copy the connector under another name with a timeout of two seconds, because its run never ends by itself."""
    shutil.copytree(source, copy)
    manifest = copy / "manifest.toml"
    text = manifest.read_text().replace(REFLECTOR, HASTY)
    manifest.write_text(text.replace("timeout_s = 20", "timeout_s = 2"))
    return copy


def live(day: Day, liar: int) -> None:
    """Do everything that may happen to a secret: store, bind, lend, reflect, refuse, lose, replace and lock it."""
    home = day.home
    for op, inputs in (("ask", ("path", "method", "url", "header", "credential")), *((op, ("path",)) for op in DOORS)):
        home.add_probe_action(op, *(f"{name}:string?" for name in inputs), connector=REFLECTOR)
    home.add_probe_action("ask", "path:string?", name="gated", gated=True, connector=REFLECTOR)
    home.add_probe_action("ask", "url:string", name="hasty", connector=HASTY)

    assert classes(day.run("ask", path="/plain")) == "binding_required"
    home.unlock(CANARY)
    assert classes(day.run("ask", path="/plain")) == "binding_required"
    day.ask("PUT", "/v1/secrets/bad", {"value_base64": base64.b64encode(CANARY + b"\r\nX: y").decode()})
    binding = {"connector": REFLECTOR, "name": "basic/probe/me", "username": "mira", "secret": "pw"}
    day.ask("POST", "/v1/bindings", {**binding, "username": "mi:ra"})
    day.ask("POST", "/v1/bindings", binding)
    day.ask("POST", "/v1/bindings", {**binding, "connector": HASTY, "name": "basic/probe/hasty"})

    for path in (*SCRIPTS, "/plain", "/401", "/407", "/503"):
        assert classes(day.run("ask", path=path)) == "ok"
    for op in DOORS:
        for path in ("/plain", "/echo/3", "/echo/9"):
            day.run(op, path=path)

    origin = f"localhost:{day.upstream.port}"
    for url in (
        f"https://localhost:{liar}/",
        f"http://localhost:{liar}/",
        "http://localhost:1/",
        "https://nowhere.invalid/",
    ):
        assert "NetworkError" in str(day.run("ask", url=url).body), url
    # The connector waits for a line that never ends.
    assert classes(day.run("hasty", url=f"https://{origin}/")) == "resource_limit_exceeded"
    for url in ("https://evil.test/", f"http://{origin}@evil.test/", f"http://{origin}/../x"):
        assert classes(day.run("ask", url=url)) == "capability_denied"
    assert classes(day.run("ask", credential="oauth2")) == "capability_denied"
    assert classes(day.run("ask", header="Authorization: Basic bWluZQ==")) == "capability_denied"
    assert classes(day.run("ask", method="TRACE")) == "capability_denied"

    question = home.asked("gated", {"path": "/plain"})
    day.note("question", question)
    day.note("decision", home.decide(question, "approve").body)
    day.note("result", home.result(question))

    day.command("run", "ask", "path=/plain", "--json")
    day.command("run", "crash", "path=/plain")
    for words in (("status",), ("doctor",), ("audit", "list"), ("audit", "verify"), ("audit", "export"), ("secret", "list"),
                  ("binding", "list"), ("binding", "inspect", REFLECTOR), ("connector", "list"), ("daemon", "logs")):  # fmt: skip
        day.command(*words)
    day.command("secret", "set", "pw", given=CANARY.decode() + "x\n")
    day.command("vault", "unlock", AILERON_VAULT_PASSPHRASE="wrong " + CANARY.decode())
    for path in ("/v1/status", "/v1/secrets", "/v1/bindings", "/v1/audit", "/v1/vault/status", "/v1/connectors"):
        day.ask("GET", path)
    day.ask("POST", "/v1/vault/lock")
    assert classes(day.run("ask", path="/plain")) == "vault_locked"


DOORS = ("say", "crash", "blame", "die")


@pytest.mark.abuse_case("E26")
def test_the_upstream_received_the_canary_secret_and_repeated_it_in_responses(day: Day) -> None:
    """Positive control: the upstream received and reflected it many times, and connectors got asterisks instead."""
    assert day.upstream.received.count(b"Authorization: Basic " + WIRE) > 30
    assert "as it is" in find(bytes(day.upstream.received), WIRE)
    masked = [what for what, said in day.heard if b"********" in said]
    assert len(masked) > 20


@pytest.mark.abuse_case("E26")
def test_no_response_contains_the_canary_secret(day: Day) -> None:
    """The search covers responses, records and command output, and so everything that a connector received."""
    leaks = {what: found for what, said in day.heard if (found := find(said, CANARY, PAIR, WIRE))}
    assert leaks == {}


@pytest.mark.abuse_case("E26")
def test_no_file_contains_the_canary_secret(day: Day) -> None:
    """The search covers the home with its ledger, journal, logs and vault file, and temporary files, while the daemon runs."""
    assert (day.home.path / "ledger.db").stat().st_size > 0
    assert (day.home.path / "vault.json").exists()
    assert scan([day.home.path, day.temporary], CANARY, PAIR, WIRE) == {}


@pytest.mark.abuse_case("E26")
def test_no_command_line_or_environment_contains_the_canary_secret(day: Day) -> None:
    """The search covers command lines and environments of the daemon and its descendants, as far as they can be read."""
    daemon = psutil.Process(day.home.daemon_pid)
    shown = read_descendants(daemon.pid, _shown_by) | {daemon: _shown_by(daemon)}
    assert any(shown.values())
    for content in shown.values():
        assert find(content, CANARY, PAIR, WIRE) == []


def _shown_by(process: psutil.Process) -> bytes:
    """Return the command line and the environment; what only root may read is left out, as the process is undumpable."""
    content = b""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(PermissionError):
            content += Path(f"/proc/{process.pid}/{name}").read_bytes()
    return content


@pytest.mark.abuse_case("E26")
@pytest.mark.parametrize("shape", shapes(CANARY))
def test_the_search_for_the_canary_secret_finds_a_planted_copy(shape: str, tmp_path: Path) -> None:
    """Positive control: the search must find it in a file, compressed in a log, and in a page of a database."""
    planted = shapes(CANARY)[shape]
    (tmp_path / "plain.log").write_bytes(b"some words before " + planted + b" and after")
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(b"x" * 1000 + planted))
    with sqlite3.connect(tmp_path / "some.db") as database:
        database.execute("create table t (b blob)")
        database.execute("insert into t values (?)", (planted,))
    database.close()

    assert {Path(path).name for path in scan([tmp_path], CANARY)} == {"plain.log", "old.log.gz", "some.db"}
    assert all(shape in found for found in scan([tmp_path], CANARY).values())
    assert scan([tmp_path], b"another secret of the same kind") == {}
