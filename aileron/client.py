"""The client through which all user-facing programs reach the daemon: HTTP over the sockets in `run/`. It starts the
daemon if none runs.

Runs in short-lived commands, so this module imports little. Modules that only a request needs are imported with the first
request, because every millisecond here delays each command and each page of help. The daemon is trusted (same user, 0700
directory); its responses are JSON.

An agent's requests belong to the session that AILERON_SESSION_TOKEN names. In a container there is no socket: if AILERON_URL is
set, requests go to a daemon elsewhere, over TLS (AILERON_CA_FILE adds a certificate authority), or on loopback without TLS. The
person's own requests never go to such a daemon.

Rules
- Every wait has a deadline. If the daemon does not respond, `DaemonUnreachable` is raised, and the command exits with status 69.
- A request is sent once. No request is retried here, because nobody can know whether the daemon acted on the first one.
  If the daemon may have read part of the request and no response came, the error is `AnswerLost`.

Source: docs/reference/sessions.md. Not here: what the responses mean (api/), exit codes (cli/).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from aileron.model.placeholder import CELL_PLACEHOLDER

if TYPE_CHECKING:
    import http.client
    import ssl
    from pathlib import Path

__all__ = [
    "START_DEADLINE_S",
    "Answer",
    "AnswerLost",
    "Client",
    "DaemonUnreachable",
    "Elsewhere",
    "StartedDaemon",
    "home_directory",
    "home_path",
    "is_in_cell",
    "path_of",
]

START_DEADLINE_S: Final = 30.0
"""Seconds to wait for the daemon to become ready: it needs 0.6 s from exec, and ten times that on a machine under load."""
ANSWER_MARGIN_S: Final = 15.0
"""Seconds added to the waiting time that a request specifies. A daemon that has not responded by then is stuck."""
_GIVE_UP_S: Final = 5.0
"""Seconds to wait for the exit of a daemon that has reported why it cannot start."""
_LOOK_AGAIN_S: Final = 0.05
"""Seconds between two checks whether a daemon that another client has just started is listening."""
_SECRET_VARIABLES: Final = (
    "AILERON_VAULT_PASSPHRASE",
    "AILERON_NEW_VAULT_PASSPHRASE",
    "AILERON_SESSION_TOKEN",
    "AILERON_SIGNING_KEY",
)
"""Environment variables that are only meant for the command itself. They are removed from the environment of a daemon
that the command starts, because other processes can read that environment.
"""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_NOBODY: Final = (FileNotFoundError, ConnectionRefusedError)
"""Connection errors that mean that no daemon runs."""
_NOT_OURS: Final = (NotADirectoryError, PermissionError)
"""Connection errors that mean that the home is a file, or belongs to another user."""
_MAX_SOCKET_PATH: Final = 107  # sun_path, unix(7)
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""Characters that need no percent-encoding in a path (RFC 3986, section 2.3)."""


class DaemonUnreachable(Exception):
    """Error: the daemon cannot be started or does not respond; the message says why."""


class AnswerLost(DaemonUnreachable):
    """Error: the daemon was reached, but its response did not arrive. The daemon may have done what was requested."""


class Answer:
    """HTTP status and decoded JSON body of a response."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body

    @property
    def is_error(self) -> bool:
        """True if the body is a failure (`{"error": …}`)."""
        return self.status >= 400


class _Exchange(Protocol):
    """Protocol for a request to a daemon and its response: status and body."""

    def connect(self) -> None: ...

    def response(self) -> tuple[int, bytes]: ...

    def close(self) -> None: ...


class StartedDaemon(Protocol):
    """Protocol for the process of a starting daemon, as far as the client uses it; subprocess.Popen satisfies it."""

    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end. Return its exit status. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        ...


class Client:
    """A client of one socket of one home: with `operator`, the operator socket, otherwise the agent socket. The socket
    decides which requests are allowed.

    The environment of an agent's client can name a daemon elsewhere (AILERON_URL) and a session
    (AILERON_SESSION_TOKEN).
    """

    def __init__(self, home: Path | str, *, operator: bool = True, answer_margin_s: float = ANSWER_MARGIN_S) -> None:
        self._home = os.fspath(home)
        self._answer_margin_s = answer_margin_s
        self._socket = os.path.join(self._home, "run", "operator.sock" if operator else "agent.sock")
        self._url = None if operator else (os.environ.get("AILERON_URL") or None)
        self._token = None if operator else (os.environ.get("AILERON_SESSION_TOKEN") or None)

    def request(
        self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request to the daemon and return its response. Start the daemon if none runs. Raises DaemonUnreachable if it
        cannot be started or does not respond.
        """
        try:
            return self.ask(method, path, body, wait_s=wait_s, headers=headers)
        except _NOBODY as error:
            if is_in_cell():
                raise DaemonUnreachable(f"this cell has no way to the daemon: {error}") from error
            self.start()
        until = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                return self.ask(method, path, body, wait_s=wait_s, headers=headers)
            except _NOBODY as error:
                # 1 two clients find no daemon; 2 both start one; 3 one daemon has the lock, and does not listen yet;
                # 4 the other daemon exits, and reports that one runs
                if time.monotonic() > until:
                    raise DaemonUnreachable(f"the daemon was started and does not answer: {error}") from error
                time.sleep(_LOOK_AGAIN_S)
            except OSError as error:
                raise DaemonUnreachable(f"the daemon was started and does not answer: {error}") from error

    def ask(
        self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request to a running daemon and return its response.

        Raises FileNotFoundError or ConnectionRefusedError if no daemon runs, and AnswerLost if the response does not arrive.
        """
        import json

        exchange = self._exchange(method, path, body, headers or {}, wait_s + self._answer_margin_s)
        lost = DaemonUnreachable
        try:
            exchange.connect()
            lost = AnswerLost
            status, data = exchange.response()
            return Answer(status, json.loads(data.decode()) if data else None)
        except (OSError, ValueError) as error:  # ValueError: a response that cannot be read, or is not JSON
            if lost is DaemonUnreachable and self._url is None and isinstance(error, _NOBODY):
                raise
            if lost is DaemonUnreachable and self._url is None and isinstance(error, _NOT_OURS):
                raise lost(
                    f"cannot use {self._home}: {error.strerror}: set AILERON_HOME to a directory of your own"
                ) from error
            raise lost(
                f"the daemon does not answer at {self._url or self._socket}: {error or type(error).__name__}"
            ) from error
        finally:
            exchange.close()

    def _exchange(self, method: str, path: str, body: Any, headers: dict[str, str], timeout_s: float) -> _Exchange:
        import json

        from aileron.unix_http import UnixExchange, request_bytes

        payload = None if body is None else json.dumps(body).encode()
        sent = self._headers(headers, has_body=payload is not None)
        try:
            if self._url is not None:
                connection = Elsewhere(self._url, os.environ.get("AILERON_CA_FILE", "")).connection(timeout_s)
                return _TcpExchange(connection, method, path, payload, sent)
            self._check_socket_path()
            return UnixExchange(self._socket, timeout_s, request_bytes(method, path, payload, sent))
        except ValueError as error:
            raise DaemonUnreachable(str(error)) from None

    def _headers(self, headers: dict[str, str], *, has_body: bool) -> dict[str, str]:
        ours = {"Content-Type": "application/json"} if has_body else {}
        if self._token is not None:
            ours["Authorization"] = f"Bearer {self._token}"
        return {**ours, **headers}

    def start(self) -> None:
        """Start the daemon and wait until it is ready. Harmless if a daemon already runs. Raises DaemonUnreachable, which says
        why the daemon did not start.
        """
        ready, told = os.pipe()
        try:
            process = self.execute(
                told, {name: value for name, value in os.environ.items() if name not in _SECRET_VARIABLES}
            )
        finally:
            os.close(told)
        try:
            word = _read_until_closed(ready, time.monotonic() + START_DEADLINE_S)
        finally:
            os.close(ready)
        if word != "ready":
            _give_up(process)
            raise DaemonUnreachable(
                word.rpartition("\n")[2]
                or f"the daemon did not start; see {os.path.join(self._home, 'logs', 'daemon.log')}"
            )
        process.returncode = 0  # the daemon outlives this process, which need not wait for it; Popen would warn

    def announced_pid(self) -> int | None:
        """Return the process id that the running daemon announced. Return None if no daemon runs, or it has not announced its
        process id yet.
        """
        import json

        announced = os.path.join(self._home, "run", "daemon.json")
        with contextlib.suppress(OSError, ValueError, KeyError), open(announced, encoding="utf-8") as opened:
            return int(json.load(opened)["pid"])
        return None

    def execute(self, told: int, environment: dict[str, str]) -> StartedDaemon:
        """Start the daemon's process with this environment. The daemon writes `ready`, or the reason why it cannot start, to
        the pipe `told`.
        """
        import subprocess  # 10 ms, needed only if no daemon runs yet

        # A session of its own: the daemon outlives this terminal.
        return subprocess.Popen(
            [sys.executable, "-m", "aileron.daemon", self._home, str(told)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,  # until it has its own log: errors of an interpreter that cannot even import it
            env=environment,
            pass_fds=[told],
            start_new_session=True,
            cwd="/",
        )

    def _check_socket_path(self) -> None:
        if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH:
            raise DaemonUnreachable(
                f"{self._socket} is longer than a socket's path may be ({_MAX_SOCKET_PATH} bytes): "
                "set AILERON_HOME to a shorter path"
            )


class Elsewhere:
    """The daemon's address from AILERON_URL, and the certificate authorities that verify it: the system's and those of a PEM
    file.
    """

    def __init__(self, url: str, ca_file: str = "") -> None:
        """Parse and check the address. Raises ValueError that says which variable to set, and how."""
        from urllib.parse import urlsplit

        has_password = ":" in url.rpartition("@")[0].partition("//")[2]  # never shown
        problem = "has a password in it" if has_password else f"is {url!r}"
        wrong = ValueError(f"AILERON_URL {problem}: https://HOST:PORT, or http://localhost:PORT, is needed")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong from None
        more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username or parts.password
        if not host or more or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
            raise wrong
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = host, port
        self._tls = _verified(ca_file) if parts.scheme == "https" else None

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return an HTTP connection object for the address. The object is not connected yet."""
        import http.client

        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)


class _TcpExchange:
    """A request to a daemon at AILERON_URL over TCP, and its response."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        payload: bytes | None,
        headers: dict[str, str],
    ) -> None:
        self._connection = connection
        self._request = method, path, payload, headers

    def connect(self) -> None:
        self._connection.connect()

    def response(self) -> tuple[int, bytes]:
        import http.client

        try:
            # The daemon answered before it read the body
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._connection.request(*self._request)
            found = self._connection.getresponse()
            return found.status, found.read()
        except http.client.HTTPException as error:
            raise ValueError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        self._connection.close()


def _verified(ca_file: str) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # also an SSLError: the file has no certificate
            raise ValueError(f"AILERON_CA_FILE {ca_file!r} cannot be used: {error}") from None
    return context


def home_path() -> str:
    """Return the absolute path of `$AILERON_HOME`, or else of `~/.aileron`. This is the rule of home.Home, but without
    importing pathlib, which takes 3 ms.
    """
    configured = os.environ.get("AILERON_HOME")
    path = os.path.join(os.getcwd(), configured) if configured else os.path.expanduser("~/.aileron")
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def home_directory() -> Path:
    """Return the path from `home_path` as a Path object."""
    from pathlib import Path

    return Path(home_path())


def is_in_cell() -> bool:
    """Return whether this process runs in a cell. There, the home has only the sockets for agents, and the user may
    be an agent.
    """
    return os.environ.get("AILERON_SESSION_TOKEN") == CELL_PLACEHOLDER


def path_of(*segments: str) -> str:
    """Return an absolute URL path. All special characters of each segment, including slashes, are percent-encoded, so that a
    name cannot lead to another route.
    """
    return "".join("/" + (segment if _UNRESERVED.issuperset(segment) else _quoted(segment)) for segment in segments)


def _quoted(segment: str) -> str:
    from urllib.parse import quote  # 1 ms, and few names need it

    return quote(segment, safe="")


def _give_up(process: StartedDaemon) -> None:
    """Wait up to _GIVE_UP_S seconds for the exit of a daemon that has reported why it cannot start."""
    from subprocess import TimeoutExpired

    with contextlib.suppress(TimeoutExpired):
        process.wait(_GIVE_UP_S)


def _read_until_closed(fd: int, until: float) -> str:
    import select

    said = bytearray()
    while (left := until - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        data = os.read(fd, 4096)
        if not data:
            break
        said += data
    return said.decode("utf-8", "replace").strip()
