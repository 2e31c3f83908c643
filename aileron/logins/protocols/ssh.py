"""Logs in over SSH: checks the pinned host key, makes one attempt with a key or a password, and opens one channel with one
command or subsystem.

    Side (a plain socket) ◄──► a thread with asyncssh ◄── ssh ──► the server's command
          stdin, stdout             stderr stored, exit status

Runs in the process of one login. SSH is in a thread with its own event loop, so that the relay can use an ordinary socket.

Rules
- The server's key must be the pinned key, otherwise nothing is sent to the server. Host certificates are not accepted.
- Only algorithms without a known weakness are used: AES-GCM alone. ChaCha20-Poly1305 is only safe if both ends use strict key
  exchange (CVE-2023-48795), which the library supports but does not report; RSA signs with SHA-2.
- Nothing of this machine is used: no configuration, known hosts, agent, default keys, GSSAPI.
- There is one channel, without a terminal, agent or X11. Channels that the server opens are refused.
- The environment is empty, except that version 2 of git's protocol is requested, which a server can ignore. Only with that
  version can a client skip data that it does not need.
- There is one attempt with one method. The method keyboard-interactive is not used.
- Before the login a server can send at most MAX_LOGIN_BYTES; after the login, as much as the channel's window allows. The last
  MAX_STDERR bytes of stderr are stored.
- If a command's exit status is not 0, the stream ends with an error, after all output of the command was delivered.

Source: RFC 4251 to 4254, RFC 8308, RFC 8332; https://asyncssh.readthedocs.io/. Not here: which commands are granted
(aileron/model/commands.py, which egress consults before it connects).
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # imported completely now: later no file can be opened
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import asyncssh
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from aileron.logins.login_messages import MAX_WORDS, LoginError, Order, Problem
from aileron.logins.protocol import Login, Passed, Unchanged
from aileron.logins.side import MAX_LOGIN_BYTES, Side
from aileron.logins.words import printable
from aileron.model.commands import only_reads, subsystem_of

__all__ = ["MAX_STDERR", "SSH_THREAD", "SshLogin"]

SSH_THREAD: Final = "aileron-ssh"
"""The name of the thread in which SSH runs."""
MAX_STDERR: Final = 8 << 10
"""Number of bytes that are stored from the end of a command's standard error, whose last line says why the command failed."""
_WINDOW: Final = 1 << 20
"""Maximum number of bytes that a server can send ahead of the reader: enough for a connection of 100 ms at 10 MB/s."""
_GRACE_S: Final = 1.0
"""Seconds to wait for the exit status, which follows the end of a command's output, and for the connection to close."""
_KEEPALIVE_S: Final = 15.0
_MIN_RSA_BITS: Final = 2048
_KEX: Final = (
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
)
_CIPHERS: Final = ("aes256-gcm@openssh.com", "aes128-gcm@openssh.com")
_MACS: Final = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com")
"""MAC algorithms. AES-GCM needs no MAC, but some servers require that a MAC algorithm is negotiated."""
_SIGNATURES: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_GIT_READS: Final = "git-upload-pack "
_GIT_V2: Final[dict[bytes | str, bytes | str]] = {"GIT_PROTOCOL": "version=2"}
"""Environment that requests git's protocol version 2: gitprotocol-v2(5), "SSH and file transports". No git client that only
supports version 1 is still maintained.
"""
_PLAIN_KEYS: Final = frozenset(_SIGNATURES[:4]) | {"ssh-rsa"}


class SshLogin(Login):
    """The login at an SSH server with a key (OpenSSH's form or PEM) or a password; `mechanism` is `publickey` or `password`."""

    can_read_only = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._until: Final = time.monotonic() + order.login_s
        self._tunnel: _Tunnel | None = None

    def log_in(self, server: Side) -> None:
        """Log in and start the command. Raises LoginError if the login fails or the command cannot be started."""
        command = self.order.command
        if not command:
            raise LoginError(
                Problem.NOT_ALLOWED,
                "an ssh login executes one command, and none was named; give tcp.connect a command that the manifest grants",
            )
        if self.order.reads_only and not only_reads(command):  # egress has checked it too, before it connected
            raise LoginError(Problem.NOT_ALLOWED, "a preview can only read, and this command could do more")
        client = _Client(self.order, _pinned(self.order))
        if client.mechanism == "password":
            self.sent_in_clear = (self.order.secret,)
        self.mechanism = client.mechanism
        options = _options(self.order, client)
        self._tunnel = _Tunnel(self.order.target.destination.host, command, client, options)
        server.replace(self._tunnel.open(server.sock, self._until))

    def greet(self, client: Side, server: Side) -> Unchanged:
        """Return the filter immediately: the SSH connection ends in this process, so the library has no login of its own."""
        assert self._tunnel is not None
        return _Command(self._tunnel)


class _Command(Unchanged):
    """The filter of the command's standard input and output. The command's exit status is checked when both have ended."""

    def __init__(self, tunnel: _Tunnel) -> None:
        self._tunnel: Final = tunnel

    def down_ended(self) -> Iterable[Passed]:
        if (problem := self._tunnel.problem) is not None:
            raise problem
        return ()


class _Client(asyncssh.SSHClient):
    """The callbacks of the SSH client, which asyncssh calls during the login."""

    def __init__(self, order: Order, pinned: asyncssh.SSHKey) -> None:
        self.pinned: Final = pinned
        self.has_seen_key = False
        self.other: asyncssh.SSHKey | None = None
        """The server's SSH key, if it differs from the pinned key; None if it does not."""
        self._key: asyncssh.SSHKey | None = None
        self._password: str | None = None
        if order.secret.lstrip().startswith(b"-----BEGIN"):
            self._key = _private_key(order.secret)
        else:
            self._password = _password(order)

    @property
    def mechanism(self) -> str:
        return "password" if self._key is None else "publickey"

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.has_seen_key = True
        if key.public_data == self.pinned.public_data:
            return True
        self.other = key
        return False

    def public_key_auth_requested(self) -> asyncssh.SSHKey | None:
        return self._key if self._is_first() else None

    def password_auth_requested(self) -> str | None:
        return self._password if self._is_first() else None

    def _is_first(self) -> bool:
        is_first, self._has_tried = not self._has_tried, True
        return is_first

    _has_tried = False


class _Socket(socket.socket):
    """The socket that is connected to the server. At most MAX_LOGIN_BYTES can be read from it until the login has
    ended.
    """

    left: int | None = MAX_LOGIN_BYTES

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0:
                raise OSError("more than there is room for")
        return data

    def setsockopt(self, level: int, *option: Any) -> None:
        """Set only TCP options, and ignore all others. The library always sets SO_KEEPALIVE, which this process is not allowed
        to set. SSH has its own keepalive.
        """
        if level == socket.IPPROTO_TCP:
            super().setsockopt(level, *option)

    @property
    def overran(self) -> bool:
        return self.left is not None and self.left < 0


class _Session(asyncssh.SSHClientSession[bytes]):
    """The session of the SSH channel: passes the command's output to the socket pair, as fast as the relay reads there."""

    def __init__(self, near: _Near) -> None:
        self._near: Final = near
        self._said = bytearray()
        self._status: int | None = None
        self._signal: str | None = None
        self._error: Exception | None = None
        self.over: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self._near.write(data)
        elif len(self._said) + len(data) > MAX_STDERR:
            self._said = (self._said + data)[-MAX_STDERR:]
        else:
            self._said += data

    def pause_writing(self) -> None:
        self._near.pause_reading()

    def resume_writing(self) -> None:
        self._near.resume_reading()

    def eof_received(self) -> bool:
        asyncio.get_running_loop().call_later(_GRACE_S, self._near.end)  # the command may still run
        return True

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._signal = signal

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = exc
        if not self.over.done():
            self.over.set_result(None)

    def problem(self) -> LoginError | None:
        """Return the error with which the command ended, or None if it succeeded."""
        said = self._last_line()
        if self._error is not None:
            return LoginError(Problem.CLOSED, "the connection to the server broke while the command ran", said)
        if self._signal is not None:
            return LoginError(Problem.CLOSED, f"the command was ended by SIG{_printable(self._signal, 16)}", said)
        if self._status is None:
            return LoginError(Problem.CLOSED, "the server closed the channel without the command's exit status", said)
        if self._status:
            return LoginError(Problem.CLOSED, f"the command failed with exit status {self._status}", said)
        return None

    def _last_line(self) -> str:
        lines = self._said.decode("utf-8", "replace").splitlines()
        return next((text for line in reversed(lines) if (text := _printable(line, MAX_WORDS))), "")


class _Near(asyncio.Protocol):
    """The SSH thread's end of the socket pair to the relay: it passes bytes from the connector into the SSH channel."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._is_full = False
        self.closed: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._transport = transport

    def begin(self, channel: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = channel
        self.resume_reading()
        if self._is_full:  # output can arrive before the start is confirmed
            channel.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._channel is not None and not self._channel.is_closing():
            self._channel.write(data)

    def eof_received(self) -> bool:
        if self._channel is not None and not self._channel.is_closing():
            self._channel.write_eof()
        return True

    def pause_writing(self) -> None:
        self._is_full = True
        if self._channel is not None:
            self._channel.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._channel is not None:
            self._channel.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set_result(None)
        if self._channel is not None:
            self._channel.close()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def end(self) -> None:
        """End the command's output. The connector gets the end of the stream after it has read all output."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Tunnel:
    """The thread that runs SSH. `problem` is the command's error; read it only after the socket from `open` has ended.

    `problem` is set by then, unless the command continues for more than _GRACE_S after the end of its output.
    """

    def __init__(self, host: str, command: str, client: _Client, options: asyncssh.SSHClientConnectionOptions) -> None:
        self._host: Final = host
        self._command: Final = command
        self._client: Final = client
        self._options: Final = options
        self._opened: Final[concurrent.futures.Future[None]] = concurrent.futures.Future()
        self.problem: LoginError | None = None

    def open(self, sock: socket.socket, until: float) -> socket.socket:
        """Start the thread, log in, and return a socket that is connected to the command. Takes ownership of `sock`, the
        connection to the server. `until` is in the time of `time.monotonic()`. Raises LoginError if the login fails.
        """
        far = _Socket(fileno=sock.detach())
        far.setblocking(False)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        thread = threading.Thread(target=lambda: asyncio.run(self._run(far, ours, until)), name=SSH_THREAD, daemon=True)
        thread.start()
        try:
            self._opened.result(max(0.0, until - time.monotonic()) + _GRACE_S)
        except BaseException:
            theirs.close()
            thread.join(2 * _GRACE_S)
            raise
        return theirs

    async def _run(self, far: _Socket, ours: socket.socket, until: float) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)  # the default handler would print the bad bytes
        problem: LoginError | None = None
        connection: asyncssh.SSHClientConnection | None = None
        _, near = await loop.create_connection(_Near, sock=ours)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                connection = await asyncssh.connect(sock=far, options=self._options, config=None)
                session = await self._begin(connection, near)
        except Exception as error:  # noqa: BLE001 - whatever a server can bring the library to is a login that failed
            problem = self._problem(error, far)
        if problem is not None:  # outside the handler: a library's exception may quote anything
            self._opened.set_exception(problem)
        else:
            far.left = None
            self._opened.set_result(None)
            await session.over
            self.problem = session.problem()
        near.close()
        await _leave(connection)
        await near.closed  # everything was read, or the reader has disconnected

    async def _begin(self, connection: asyncssh.SSHClientConnection, near: _Near) -> _Session:
        subsystem = subsystem_of(self._command)
        channel, session = await connection.create_session(
            lambda: _Session(near),
            None if subsystem else self._command,
            subsystem=subsystem,
            env=_GIT_V2 if self._command.startswith(_GIT_READS) else {},
            send_env=(),
            request_pty=False,
            x11_forwarding=False,
            encoding=None,
            window=_WINDOW,
        )
        assert isinstance(session, _Session)
        near.begin(channel)
        return session

    def _problem(self, error: Exception, far: _Socket) -> LoginError:
        said = _printable(error.reason, MAX_WORDS) if isinstance(error, asyncssh.DisconnectError) else ""
        if self._client.other is not None:
            return _other_host_key(self._host, self._client.other)
        if far.overran:
            return LoginError(
                Problem.PROTOCOL, f"the server sent more than {MAX_LOGIN_BYTES} bytes before the login was over"
            )
        match error:
            case TimeoutError():
                return LoginError(Problem.TOO_SLOW, "the server did not answer in time")
            case asyncssh.KeyExchangeFailed():
                return LoginError(Problem.NOT_ENCRYPTED, f"the server has none of {_ALGORITHMS}", said)
            case asyncssh.PermissionDenied():
                return LoginError(
                    Problem.REFUSED_CREDENTIAL,
                    f"the server does not take this user name with this {_NAMES[self._client.mechanism]}",
                    said,
                )
            case asyncssh.ChannelOpenError():
                return LoginError(
                    Problem.PROTOCOL, "the server does not start the command", _printable(error.reason, MAX_WORDS)
                )
            case asyncssh.ConnectionLost() | OSError():
                when = (
                    "the login was over"
                    if self._client.has_seen_key
                    else f"it showed a key; perhaps it has none of {_ALGORITHMS}"
                )
                return LoginError(Problem.CLOSED, f"the server closed the connection before {when}", said)
        return LoginError(Problem.PROTOCOL, "what the server said is not SSH 2.0, or breaks its rules", said)


_ALGORITHMS: Final = (
    "the algorithms that are safe today (AES-GCM; curve25519 or ECDH; Ed25519, ECDSA or RSA with SHA-2), which its operator can "
    "turn on in sshd_config"
)
_NAMES: Final = {"publickey": "key", "password": "password"}


async def _leave(connection: asyncssh.SSHClientConnection | None) -> None:
    if connection is not None:
        connection.close()
        with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
            await asyncio.wait_for(connection.wait_closed(), _GRACE_S)


def _options(order: Order, client: _Client) -> asyncssh.SSHClientConnectionOptions:
    """Return the connection options. They specify every value that the library would otherwise read from this machine."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL + 1)
    # The library reads both even if it does not use them. If unset, it reads /etc/passwd, which cannot be opened here.
    os.environ |= {"LOGNAME": "nobody", "HOME": "/nonexistent"}
    pinned = _signatures_of(client.pinned)
    try:
        return asyncssh.SSHClientConnectionOptions(
            client_factory=lambda: client,
            client_version="Aileron",
            host=order.target.destination.host,
            port=order.target.destination.port,
            username=order.username,
            config=None,
            known_hosts=((), (), ()),
            # The pinned key's own come first: a server that has that key shows it. The others let the error name another key.
            server_host_key_algs=[*pinned, *(name for name in _SIGNATURES if name not in pinned)],
            kex_algs=_kex(),
            encryption_algs=_CIPHERS,
            mac_algs=_MACS,
            signature_algs=_SIGNATURES,
            compression_algs=None,
            x509_trusted_certs=None,
            x509_trusted_cert_paths=(),
            client_keys=None,
            client_host_keys=None,
            client_username="nobody",
            agent_path=None,
            agent_forwarding=False,
            gss_host=None,
            gss_kex=False,
            gss_auth=False,
            host_based_auth=False,
            kbdint_auth=False,
            public_key_auth=client.mechanism == "publickey",
            password_auth=client.mechanism == "password",
            preferred_auth=(client.mechanism,),
            disable_trivial_auth=True,
            login_timeout=order.login_s + _GRACE_S,
            keepalive_interval=_KEEPALIVE_S,
        )
    except ValueError:
        pass
    raise _unusable("the user name has characters that SSH cannot send")


def _kex() -> list[str]:
    """Return the key exchange algorithms of _KEX that the installed version of OpenSSL supports."""
    known = {name.decode("ascii") for name in asyncssh.kex.get_kex_algs()}
    return [name for name in _KEX if name in known]


def _pinned(order: Order) -> asyncssh.SSHKey:
    host = order.target.destination
    if order.details.host_key is None:
        raise LoginError(
            Problem.HOST_KEY,
            f"no host key is pinned for {host}; see it with ssh-keyscan -p {host.port} {host.host}, compare it with what the "
            "server's operator publishes, and bind again: aileron binding setup … --host-key 'ssh-ed25519 AAAA…'",
        )
    key = None
    with contextlib.suppress(asyncssh.KeyImportError, ValueError):
        key = asyncssh.import_public_key(order.details.host_key)
    if key is None or key.get_algorithm() not in _PLAIN_KEYS:
        raise LoginError(
            Problem.HOST_KEY,
            "the pinned host key is none of ssh-ed25519, ecdsa-sha2-nistp… or ssh-rsa as OpenSSH writes them; bind again: "
            "aileron binding setup … --host-key 'ssh-ed25519 AAAA…'",
        )
    return key


def _signatures_of(key: asyncssh.SSHKey) -> list[str]:
    algorithm = key.get_algorithm()
    return ["rsa-sha2-512", "rsa-sha2-256"] if algorithm == "ssh-rsa" else [algorithm]


def _other_host_key(host: str, key: asyncssh.SSHKey) -> LoginError:
    return LoginError(
        Problem.HOST_KEY,
        f"{host} shows another host key than the one that is pinned: {key.get_algorithm()} {key.get_fingerprint()} "
        "(somebody may be in between)",
    )


def _private_key(secret: bytes) -> asyncssh.SSHKey:
    why = "the private key cannot be read; it must be in OpenSSH's or PEM form"
    key: asyncssh.SSHKey | None = None
    try:
        key = asyncssh.import_private_key(secret)
    except asyncssh.KeyEncryptionError:
        why = "the private key has a passphrase; store a copy without one (ssh-keygen -p), the vault encrypts it"
    except (asyncssh.KeyImportError, ValueError, ImportError):
        if b"ENCRYPTED" in secret:
            why = "the private key has a passphrase; store a copy without one (ssh-keygen -p), the vault encrypts it"
    if key is None:
        raise _unusable(why)
    if key.get_algorithm() not in _PLAIN_KEYS:
        raise _unusable(f"a key of the kind {key.get_algorithm()} is not used; make one with ssh-keygen -t ed25519")
    if isinstance(key.pyca_key, RSAPrivateKey) and key.pyca_key.key_size < _MIN_RSA_BITS:
        raise _unusable(f"an RSA key has at least {_MIN_RSA_BITS} bits; make a key with ssh-keygen -t ed25519")
    return key


def _password(order: Order) -> str:
    try:
        return order.secret.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise _unusable("the password is not UTF-8, in which SSH sends it; or it is a key in a form that is not PEM")


def _unusable(why: str) -> LoginError:
    return LoginError(Problem.UNUSABLE_CREDENTIAL, why)


def _printable(text: str, most: int) -> str:
    return printable(text).strip()[:most]
