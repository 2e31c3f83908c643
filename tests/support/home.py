"""A home with a real daemon in it, for tests: start, ask, stop, kill; connectors and actions written in two lines.

Everything goes through the operator or the agent socket, as a front door would. The home lies in a short path of its own,
because a socket's path may have 107 bytes.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.client import Answer, AnswerLost, Client, StartedDaemon
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from tests.support import forks
from tests.support.answers import check_answer
from tests.support.canary import scan
from tests.support.memories import command_of, descendants_of
from tests.support.waiting import Late, try_lock, wait_ended, wait_until

__all__ = ["PROBE", "DaemonHome", "asking_home", "daemon_home", "other_probe", "probe_action", "probed_home", "word"]

PASSPHRASE: Final = "correct horse battery"
SECRET: Final = b"hunter2-hunter2"
"""The secret that homes lend by default. No test may leave it, or the passphrase, in any file of its home."""
PROBE: Final = "github://aileron-tests/probe"
_PROBE_SOURCE: Final = Path(__file__).parent / "connectors" / "probe"
_END_S: Final = 15.0
_READY_FD: Final = 3
_TAIL_CHARS: Final = 8000


class _ForkingClient(Client):
    """A client that starts daemons with everything imported (tests/support/forks.py); the rest is the product's."""

    def __init__(self, home: Path, *, operator: bool = True) -> None:
        super().__init__(home, operator=operator)
        self._path = home

    def ask(
        self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request as `Client.ask` does, and check the response against its route's declaration.

        If the response is lost, the exception carries the end of the daemon's log as a note.
        """
        try:
            answer = super().ask(method, path, body, wait_s=wait_s, headers=headers)
        except AnswerLost as error:
            error.add_note(self._log_tail())  # a daemon that died says there why
            raise
        check_answer(method, path, answer.status, answer.body)
        return answer

    def _log_tail(self) -> str:
        log = self._path / "logs" / "daemon.log"
        return f"the daemon's log ends with: {log.read_text(errors='replace')[-_TAIL_CHARS:] if log.exists() else 'nothing'}"

    def execute(self, told: int, environment: dict[str, str]) -> StartedDaemon:
        """Start the daemon in a fork if an interpreter would be set up like the server's; else as `Client.execute` does."""
        if not forks.can_fork(environment):
            return super().execute(told, environment)
        with open(os.devnull, "r+b") as nothing:
            return forks.start(
                "aileron.daemon.__main__",
                [str(self._path), str(_READY_FD)],
                descriptors={0: nothing.fileno(), 1: nothing.fileno(), 2: told, _READY_FD: told},
                environment=environment,
                directory="/",
                has_own_session=True,
            )


class DaemonHome:
    """A home whose daemon starts with the first request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: Final = path.parent
        """The folder that holds everything of this home."""
        self.operator: Client = _ForkingClient(path)
        self.agent: Client = _ForkingClient(path, operator=False)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Send one request on the operator socket; start the daemon if necessary."""
        return self.operator.request(method, path, body, **options)

    def must(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request that must succeed. Return the body of the response."""
        answer = self.ask(method, path, body, **options)
        assert not answer.is_error, answer.body
        return answer.body

    def run(self, action: str, args: dict[str, Any] | None = None, *, wait: float = 25.0, **options: Any) -> Answer:
        """Request a run of the action."""
        return self.ask("POST", f"/v1/actions/{action}/run?wait={wait:g}", {"args": args or {}}, wait_s=wait, **options)

    def done(self, action: str, **args: Any) -> Any:
        """Run an action that must succeed, named as itself or as its op; return its result."""
        answer = self.run(action.replace("_", "-"), args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def failed(self, action: str, **args: Any) -> dict[str, Any]:
        """Run an action that must fail, named as itself or as its op; return its error."""
        answer = self.run(action.replace("_", "-"), args)
        assert answer.is_error, answer.body
        error: dict[str, Any] = answer.body["error"]
        return error

    def asked(self, action: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
        """Request a run of a gated action. Return the response, and the digest that the person would see."""
        answer = self.run(action, args)
        assert answer.status == 202, answer.body
        shown = self.must("GET", f"/v1/action-approvals/{answer.body['approval_id']}")
        return {**answer.body, "digest": shown["digest"]}

    def decide(self, question: dict[str, Any], decision: str, reason: str | None = None) -> Answer:
        """Decide the question that `asked` returned, as a person."""
        body = {"decision": decision, "digest": question["digest"], "reason": reason}
        return self.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", body)

    def result(self, question: dict[str, Any], wait: float = 25.0) -> dict[str, Any]:
        """Return the result of the question's run, once it is final or `wait` seconds have passed."""
        path = f"/v1/action-approvals/{question['approval_id']}/result?wait={wait:g}"
        found: dict[str, Any] = self.must("GET", path, wait_s=wait)
        return found

    def configure(self, text: str) -> None:
        """Write config.toml; the daemon reads it when it starts."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        (self.path / "config.toml").write_text(text, encoding="utf-8")

    def reach(self, *places: str, ca_file: Path | None = None) -> None:
        """Configure these places of this machine (`HOST:PORT`) as ones to reach over TLS, by the certificates of `ca_file`."""
        trusted = "" if ca_file is None else f'ca_file = "{ca_file}"\n'
        self.configure(f"[egress]\nprivate = {list(places)}\n{trusted}")

    def give(self, file: Path) -> Path:
        """Return the path at which the daemon can read the file: here the file itself."""
        return file

    def unlock(self, secret: bytes = SECRET) -> None:
        """Create the vault with one secret `pw`, or unlock it."""
        if self.must("GET", "/v1/vault/status")["exists"]:
            self.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
            return
        self.must("POST", "/v1/vault/init", {"passphrase": PASSPHRASE})
        self.store("pw", secret)

    def store(self, name: str, secret: bytes) -> None:
        """Store a secret, in place of any that has this name."""
        self.must("PUT", f"/v1/secrets/{name}", {"value_base64": base64.b64encode(secret).decode()})

    def bind(self, connector: str, name: str, secret: str = "pw", **more: Any) -> None:
        """Bind a stored secret to a connector; `more` is `username` and `details`, as the binding's kind has them."""
        self.must("POST", "/v1/bindings", {"connector": connector, "name": name, "secret": secret, **more})

    def bind_probe(self) -> None:
        """Bind `pw` to the probe connector."""
        self.bind(PROBE, "basic/probe/me", username="mira")

    def has_all_it_needs(self) -> None:
        """Make the daemon import everything that it imports later, for its first agent: for tests that watch its memory."""
        self.ask("GET", "/healthz")
        with socket.socket(socket.AF_UNIX) as agent:
            # No timeout yet: connect(2) waits while the backlog is full only on a socket that blocks.
            agent.connect(str(self.path / "run" / "mcp.sock"))
            agent.settimeout(_END_S)
            agent.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            assert agent.recv(4096), "the protocol's server does not answer"

    def install(self, source: Path, *hosts: str, **options: Any) -> dict[str, Any]:
        """Build a connector, with what else `build` takes, and install it."""
        return self._install(build(source, [HostPort.parse(host) for host in hosts], **options).archive)

    def _install(self, built: bytes) -> dict[str, Any]:
        archive = self.path / "built.tar.gz"
        archive.write_bytes(built)
        installed: dict[str, Any] = self.must("POST", "/v1/connectors", {"path": str(archive)})
        return installed

    def add_actions(self, *files: Path) -> None:
        """Add the actions of these files."""
        for file in sorted(files):
            self.must("POST", "/v1/actions", {"text": file.read_text(encoding="utf-8"), "file": str(file)})

    def install_probe(self, host: str = "localhost:1", timeout_s: int = 10) -> None:
        """Install the probe connector of tests/support/connectors, granted one host and `timeout_s` for a step."""
        self.ask("GET", "/healthz")  # makes the home
        self._install(other_probe(host, timeout_s))

    def add_probe_action(
        self,
        op: str,
        *inputs: str,
        name: str | None = None,
        gated: bool = False,
        idempotent: bool = False,
        expires_in: str = "15m",
        connector: str = PROBE,
    ) -> str:
        """Add an action with one step that calls `op`; inputs as `name:type`, optional as `name:type?`. Return its name."""
        text = probe_action(
            op, *inputs, name=name, gated=gated, idempotent=idempotent, expires_in=expires_in, connector=connector
        )
        added = self.must("POST", "/v1/actions", {"text": text, "file": "a test"})
        return str(added["name"])

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the audit trail of one run, oldest event first."""
        events: list[dict[str, Any]] = self.must("GET", f"/v1/audit/{run_id}")["events"]
        return events

    @property
    def daemon_pid(self) -> int | None:
        """Process id that the running daemon announced; None if there is none."""
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads((self.path / "run" / "daemon.json").read_text())["pid"])
        return None

    def stop(self) -> None:
        """Stop the daemon cleanly and wait for its end. Do nothing if none runs."""
        pid = self.daemon_pid
        if pid is None:
            return
        try:
            said = repr(self.operator.ask("POST", "/v1/stop").body)
        except OSError as error:
            said = repr(error)  # it is ending already
        try:
            self._wait_gone(pid)
        except Late as late:
            late.add_note(f"asked to stop, it said {said}")
            raise

    def kill(self) -> None:
        """Kill the daemon with SIGKILL. Wait until it and its ingress processes have ended, so that its ports are free."""
        pid = self.daemon_pid
        assert pid is not None, "no daemon is running"
        before_it = _ingress_of(pid)
        os.kill(pid, signal.SIGKILL)
        self._wait_gone(pid)
        for ingress_pid in before_it:
            wait_ended(ingress_pid)

    def _wait_gone(self, pid: int) -> None:
        """Wait until the lock is free, or has gone to another daemon that a request of the test started since.

        A dying process with several threads is a zombie before its files are closed.
        """
        wait_ended(pid, within_s=_END_S)
        with (self.path / "run" / "daemon.lock").open("rb") as lock:
            wait_until(
                lambda: try_lock(lock) or self.daemon_pid not in {None, pid},
                f"process {pid} lets its lock go",
                within_s=_END_S,
            )
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _ingress_of(daemon: int) -> list[int]:
    """Return the processes that serve the daemon's ports."""
    return [pid for pid in descendants_of(daemon) if b"aileron.ingress" in command_of(pid)]


def word(answer: Answer) -> str:
    """Return the class of a failure, or `ok`."""
    return str(answer.body["error"]["class"]) if answer.is_error else "ok"


@contextlib.contextmanager
def daemon_home() -> Iterator[DaemonHome]:
    """Yield a new home, and remove it with its daemon at the end. Fail if a file in it then holds a secret in any shape."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    home = DaemonHome(path / "h")
    try:
        yield home
        leaks = scan([path], SECRET, b"mira:" + SECRET, PASSPHRASE.encode())
        assert leaks == {}, f"a secret was left in a file: {leaks}"
    finally:
        home.stop()
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def probed_home(port: int) -> Iterator[DaemonHome]:
    """Yield a home with an open vault, and the probe, which may reach a port of this machine without TLS; no action is added."""
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
        home.install_probe(f"localhost:{port}")
        home.unlock()
        yield home


@contextlib.contextmanager
def asking_home(settings: str = "") -> Iterator[DaemonHome]:
    """Yield a home with an open vault and two actions of the probe: `give-back` runs at once, `ask-first` is gated."""
    with daemon_home() as home:
        if settings:
            home.configure(settings)
        home.install_probe()
        home.unlock()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")
        home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        yield home


@functools.cache
def other_probe(host: str, timeout_s: int = 10) -> bytes:
    """Return an archive of the probe connector granted another host: the same version, other bytes. Built once for each host."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(_PROBE_SOURCE, Path(folder, "probe")))
        manifest = (source / "manifest.toml").read_text(encoding="utf-8")
        given = manifest.replace("timeout_s = 10", f"timeout_s = {timeout_s}")
        (source / "manifest.toml").write_text(given, encoding="utf-8")
        return build(source, [HostPort.parse(host)]).archive


def probe_action(
    op: str,
    *inputs: str,
    name: str | None = None,
    gated: bool = False,
    idempotent: bool = False,
    expires_in: str = "15m",
    connector: str = PROBE,
) -> str:
    """Return the text of an action file with one step of the probe connector, or of another."""
    lines = [
        "+++",
        f'name = "{name or op.replace("_", "-")}"',
        'version = "1.0.0"',
        "[[requires.connectors]]",
        f'name = "{connector}"',
        'version = "1.0.0"',
        'hash = "sha256:bound-at-release"',
        f'capabilities = ["{op}"]',
        "[match]",
        'intent = "see what happens"',
        "[[execute]]",
        'id = "step"',
        f'connector = "{connector}"',
        f'op = "{op}"',
        f"idempotent = {str(idempotent).lower()}",
    ]
    for spec in inputs:
        input_name, _, kind = spec.partition(":")
        required = not kind.endswith("?")
        lines += [
            "[[inputs]]",
            f'name = "{input_name}"',
            f'type = "{kind.removesuffix("?")}"',
            'description = "For the test."',
            f"required = {str(required).lower()}",
        ]
    if gated:
        lines += ["[approval]", "required = true", f'expires_in = "{expires_in}"']
    return "\n".join([*lines, "+++", "", "# A test", ""])
