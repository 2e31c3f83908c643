"""A daemon made for tests: the routes of the HTTP API on two real Unix sockets, with a small world behind them.

For tests of the daemon's clients that need responses which the real daemon cannot be brought to give: every class of failure, a
response that never comes, hostile text everywhere. It runs in threads of the test process and remembers each request. Its state
lies in plain attributes (`actions`, `connectors`, `secrets`, …) that a test reads and writes; `script` sets the responses of a
route instead.

>>> with FakeDaemon(home) as fake:
...     fake.script("POST", "/v1/actions/send/run", (200, {"audit_id": "run-1", "result": 7}))

Source: docs/reference/http-api.md; tests/cli/test_with_the_daemon.py shows that the real daemon responds in the same way.
Not here: rules. The fake believes every request.
"""

from __future__ import annotations

import base64
import dataclasses
import http.server
import json
import socketserver
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from aileron import __version__
from tests.support.listed import in_a_list

__all__ = ["FakeDaemon", "Reply", "Seen", "error"]

Reply = tuple[int, Any]
"""Status and JSON body of a response; bytes are sent unchanged."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A request as it came in; `path` is still percent-encoded."""

    socket: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


_BINDING_DETAIL: Final[dict[str, Any]] = {
    "reach": None,
    "grant": None,
    "suspended": [],
    "last_used_at": None,
    "used_by": [],
}

Script = Reply | Callable[[Seen], Reply]


def error(name: str, status: int, message: str = "it did not work", **more: Any) -> Reply:
    """Return a failure in the daemon's form."""
    body = {
        "class": name,
        "message": message,
        "retriable": False,
        "boundary": "runtime",
        "audit_id": None,
        "details": {},
    }
    return status, {"error": {**body, **more}}


_CELL = {
    **dict.fromkeys(("allow_read", "allow_write", "allow_hosts", "allow_env"), ()),
    "ask_hosts": True,
    "memory_mb": 8192,
    "processes": 4096,
    "open_files": 65536,
    "file_mb": 65536,
    "scratch_mb": 4096,
}


class FakeDaemon:
    """A fake daemon on `run/operator.sock` and `run/agent.sock` of `home`, for the length of a with block."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.seen: list[Seen] = []
        self.actions: dict[str, dict[str, Any]] = {}
        self.connectors: list[dict[str, Any]] = []
        self.bindings: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, bytes] = {}
        self.approvals: list[dict[str, Any]] = []
        self.grants: list[dict[str, Any]] = []
        self.approver: dict[str, Any] = {"status": "none"}
        self.settings_waiting: list[str] = []
        self.settings_at_start: list[str] = []
        self.settings_problem: str | None = None
        self.jail: bool | None = None
        self.events: list[dict[str, Any]] = []
        self.passphrase: str | None = None
        self.is_locked = True
        self.version = __version__
        self._scripts: dict[tuple[str, str], list[Script]] = {}
        self._servers: list[_Server] = []
        self._threads: list[threading.Thread] = []

    def script(self, method: str, path: str, *answers: Script) -> None:
        """Answer a route with these responses in turn; the last one stays."""
        self._scripts[method, path] = list(answers)

    def remove_vault(self) -> None:
        """Have no vault: `aileron vault init` can create one."""
        self.passphrase = None

    def asked(self, method: str, path: str | None = None) -> list[Seen]:
        """Return the requests so far with this method and, if given, this path."""
        return [seen for seen in self.seen if seen.method == method and path in (None, seen.path)]

    def add_action(self, name: str, *inputs: str, **more: Any) -> None:
        """Add an installed action with inputs as `name:type`."""
        specs = [
            {"name": key, "type": kind.rstrip("?"), "required": not kind.endswith("?"), "description": f"The {key}."}
            for key, _, kind in (spec.partition(":") for spec in inputs)
        ]
        facts = {
            "version": "1.0.0",
            "source": None,
            "intent": f"do {name}",
            "enabled": True,
            "gated": False,
            "problem": None,
        }
        self.actions[name] = {"name": name, **facts, "inputs": specs, "connectors": [], **more}

    def __enter__(self) -> Self:
        run = self.home / "run"
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home.chmod(0o700)
        for name in ("operator", "agent"):
            server = _Server(str(run / f"{name}.sock"), _Handler)
            server.fake, server.name = self, name
            self._servers.append(server)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
            Path(str(server.server_address)).unlink(missing_ok=True)
        for thread in self._threads:
            thread.join(5)

    def reply(self, seen: Seen) -> Reply:
        """Return the scripted response, or else the world's."""
        self.seen.append(seen)
        scripted = self._scripts.get((seen.method, seen.path))
        if scripted:
            answer = scripted.pop(0) if len(scripted) > 1 else scripted[0]
            return answer(seen) if callable(answer) else answer
        parts = [urllib.parse.unquote(part) for part in seen.path.split("/")[1:]]
        match (seen.method, parts):
            case ("GET", ["v1", "status"]):
                return 200, self._status()
            case (_, ["v1", "actions", *rest]):
                return self._on_actions(seen, rest)
            case (_, ["v1", "connectors", *rest]):
                return self._on_connectors(seen, rest)
            case (_, ["v1", "bindings", *rest]):
                return self._on_bindings(seen, rest)
            case (_, ["v1", "secrets", *rest]):
                return self._on_secrets(seen, rest)
            case (_, ["v1", "vault", what]):
                return self._on_vault(seen, what)
            case ("GET", ["v1", "approver"]):
                return 200, self.approver
            case (_, ["v1", "grants", *rest]):
                return self._on_grants(seen, rest)
            case ("GET", ["v1", "action-approvals"]):
                return 200, {"approvals": in_a_list(self.approvals)}
            case ("GET", ["v1", "audit"]):
                return 200, {"events": self.events}
            case _:
                return error("not_found", 404, f"the fake has no {seen.method} {seen.path}")

    def _status(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "pid": 4242,
            "home": str(self.home),
            "started_at": "2026-11-21T03:58:00.000Z",
            "vault": self._vault_status(),
            "web": "http://localhost:7420",
            "listen": None,
            "gateway": {},
            "jail": {"layers": ["user-ns", "seccomp:python"]},
            "actions": len(self.actions),
            "connectors": len(self.connectors),
            "pending": len(self.approvals),
            "approver": self.approver,
            "settings_waiting": self.settings_waiting,
            "settings_at_start": self.settings_at_start,
            "settings_problem": self.settings_problem,
            "launch": {"jail": self.jail, "cell": _CELL},
        }

    def _on_actions(self, seen: Seen, rest: list[str]) -> Reply:
        match (seen.method, rest):
            case ("GET", []):
                return 200, {"actions": list(self.actions.values())}
            case ("POST", []):
                return 200, {"name": "added", "bound": {"github://a/b@1.0.0": "sha256:" + "ab" * 32}, "replaced": False}
            case (_, [name, *_]) if name not in self.actions:
                return error("not_found", 404, f"no action {name!r} is installed; see `aileron action list`")
            case ("GET", [name]):
                inputs = {spec["name"]: {"type": spec["type"]} for spec in self.actions[name]["inputs"]}
                return 200, {
                    "text": "",
                    "body": "# Prose\n",
                    "digest": "sha256:" + "ac" * 32,
                    "input_schema": {"type": "object", "properties": inputs},
                    "hosts": ["a.example:443"],
                    "steps": [],
                    **self.actions[name],
                }
            case ("PATCH", [name]):
                self.actions[name]["enabled"] = seen.body["enabled"]
                return 200, {"name": name, **seen.body}
            case ("DELETE", [name]):
                del self.actions[name]
                return 200, {"removed": name}
            case ("POST", [name, "run"]) if seen.body["dry_run"]:
                plan = {"action": name, "action_version": "1.0.0", "action_digest": "sha256:" + "ac" * 32}
                return 200, {
                    "plan": {**plan, "action_text": "", "args": seen.body["args"], "steps": [], "approval": {}}
                }
            case _:
                return 200, {"audit_id": "run-1", "result": seen.body["args"]}

    def _on_connectors(self, seen: Seen, rest: list[str]) -> Reply:
        match (seen.method, rest):
            case ("GET", []):
                return 200, {"connectors": self.connectors}
            case ("POST", []):
                return 200, {**self.connectors[0], "new": True, "replaced": [], "signature": "unsigned"}
            case _:
                self.connectors = [entry for entry in self.connectors if entry["hash"] != rest[0]]
                return 200, {"removed": rest[0]}

    def _on_bindings(self, seen: Seen, rest: list[str]) -> Reply:
        match (seen.method, rest):
            case ("GET", []):
                return 200, {"bindings": list(self.bindings.values())}
            case (_, [name, *_]) if name not in self.bindings:
                return error("not_found", 404, f"nothing is bound as {name}; see `aileron binding list`")
            case ("GET", [name]):
                return 200, {**_BINDING_DETAIL, **self.bindings[name]}
            case ("PATCH", [name]):
                said = {key: value for key, value in seen.body.items() if value is not None}
                self.bindings[name] = {**self.bindings[name], **said, "state": "ok", "suspended": []}
                return 200, self.bindings[name]
            case ("POST", _):
                if self.is_locked:
                    return self._locked()
                if seen.body["secret"] not in self.secrets:
                    name = seen.body["secret"]
                    return error("not_found", 404, f"no secret {name!r} is stored: aileron secret set NAME")
                kind, account = seen.body["name"].split("/")[0], seen.body.get("username")
                when = "2026-11-21T03:58:00.000Z"
                facts = {"kind": kind, "created_at": when, "username": account, "account": account, "state": "ok"}
                entry = {**seen.body, **facts, "expires_at": None, "refreshed_at": None}
                self.bindings[entry["name"]] = entry
                return 200, entry
            case _:
                removed = self.bindings.pop(rest[0])["name"]
                return 200, {"revoked": True, "removed": removed, "at_provider": None}

    def _on_grants(self, seen: Seen, rest: list[str]) -> Reply:
        match seen.method:
            case "GET":
                return 200, {"grants": self.grants}
            case "POST":
                return error("consent_required", 403, "nobody signs for this home: aileron approver init")
            case _:
                self.grants = [entry for entry in self.grants if entry["id"] != rest[0]]
                return 200, {"removed": rest[0]}

    def _on_secrets(self, seen: Seen, rest: list[str]) -> Reply:
        if seen.method == "GET":
            when = "2026-11-21T03:58:00.000Z"
            return 200, {"secrets": [{"name": n, "created_at": when, "updated_at": when} for n in self.secrets]}
        if self.is_locked:
            return self._locked()
        if seen.method == "PUT":
            self.secrets[rest[0]] = base64.b64decode(seen.body["value_base64"])
            return 200, {"name": rest[0]}
        self.secrets.pop(rest[0], None)
        return 200, {"removed": rest[0]}

    def _on_vault(self, seen: Seen, what: str) -> Reply:
        match what:
            case "init":
                self.passphrase, self.is_locked = seen.body["passphrase"], False
            case "unlock" if self.passphrase is None:
                return self._locked()
            case "unlock" if seen.body["passphrase"] != self.passphrase:
                return error("unauthorized", 401, "the passphrase is wrong")
            case "unlock":
                self.is_locked = False
            case "lock":
                self.is_locked = True
        return 200, {**self._vault_status(), **({"codes": []} if what == "init" else {})}

    def _vault_status(self) -> dict[str, Any]:
        counts = {"secrets": len(self.secrets), "bindings": len(self.bindings)}
        return {"exists": self.passphrase is not None, "locked": self.is_locked, **counts}

    def _locked(self) -> Reply:
        if self.passphrase is None:
            return error("vault_locked", 423, "there is no vault yet; run `aileron vault init`")
        return error("vault_locked", 423, "the vault is locked; run `aileron vault unlock`")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    fake: FakeDaemon
    name: str

    def handle_error(self, *_: object) -> None:
        """Ignore a client that went away; a test that cares sees it in the command's output."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.server.fake.reply(
            Seen(
                socket=self.server.name,
                method=self.command,
                path=path,
                query=dict(urllib.parse.parse_qsl(query)),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=json.loads(raw) if raw else None,
            )
        )
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the names http.server looks for

    def log_message(self, *_: object) -> None:
        """Log nothing."""
