"""SSH: a real sshd, keys of each kind, and servers that changed, do not answer, or want more than a login."""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from dulwich import porcelain
from dulwich.client import SSHVendor
from dulwich.refs import Ref

from aileron.cli.host_key import fetched_host_key
from aileron.logins.login_messages import Failed, Over, Problem
from aileron.logins.protocols.ssh import SshLogin
from aileron.model.login import LoginDetails, LoginTarget
from tests.support.logins import LoginAt
from tests.support.sshd import HOST_KEYS, USER, Sshd, SshPeer, needs_sshd, public_line
from tests.support.waiting import unread, wait_still, wait_text


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Start a server for all tests that do not change it. It rekeys after each mebibyte."""
    with Sshd(tmp_path_factory.mktemp("sshd"), "RekeyLimit 1M") as running:
        yield running


@pytest.fixture(scope="module")
def key() -> asyncssh.SSHKey:
    """Return a key that no server knows."""
    return asyncssh.generate_private_key("ssh-ed25519")


def login(
    server: Sshd | SshPeer | _Listener,
    command: str | None,
    secret: bytes | None = None,
    host_key: str | None = "",
    user: str = USER,
    login_s: float = 10.0,
    reads_only: bool = False,
) -> LoginAt:
    """Return the login of a command, with the user, secret and host key that the server expects unless others are given."""
    if host_key == "":
        own = server.host_keys["ssh-ed25519"] if isinstance(server, Sshd) else server.host_key
        host_key = public_line(own)
    if secret is None:
        assert isinstance(server, Sshd)
        secret = server.client_secret
    target, details = f"ssh://127.0.0.1:{server.port}", LoginDetails(host_key=host_key)
    return LoginAt(
        SshLogin, target, user, secret, details=details, command=command, login_s=login_s, reads_only=reads_only
    )


class _Listener(contextlib.AbstractContextManager["_Listener"]):
    """A port at which nobody answers, unless a test does."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")

    def __exit__(self, *_error: object) -> None:
        self.socket.close()


def refused(stream: LoginAt) -> Failed:
    """Return the failure of a login that must fail."""
    with stream:
        return stream.failed()


def everything(sock: socket.socket) -> bytes:
    """Read up to the end."""
    pieces = []
    while piece := sock.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.abuse_case("LG1")
@needs_sshd
def test_a_preview_executes_only_commands_that_read(sshd: Sshd) -> None:
    """The login's process itself refuses, before it sends anything to the server; the control is a run without preview."""
    before = sshd.log.count("Accepted")
    said = refused(login(sshd, "git-receive-pack 'nothing.git'", reads_only=True))

    assert said.problem is Problem.NOT_ALLOWED
    assert sshd.log.count("Accepted") == before
    for command, reads_only in (("git-upload-pack 'nothing.git'", True), ("git-receive-pack 'nothing.git'", False)):
        with login(sshd, command, reads_only=reads_only) as stream:
            assert stream.logged_in().mechanism == "publickey"


@needs_sshd
def test_input_and_output_of_a_remote_command_pass_unchanged(sshd: Sshd) -> None:
    """Any bytes pass in both directions, across several key exchanges and a half-close; the command exits with 0."""
    sent = os.urandom(1 << 16) * 64
    with login(sshd, "cat; echo and the end") as stream:

        def send() -> None:
            stream.client.sendall(sent)
            stream.client.shutdown(socket.SHUT_WR)

        threading.Thread(target=send).start()
        assert everything(stream.client) == sent + b"and the end\n"
        assert stream.over() == Over(scrubbed=0)
        assert stream.logged_in().mechanism == "publickey"


@needs_sshd
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "SIGKILL"),
        ("head -c 9000000 /dev/zero >&2; echo why >&2; exit 1", "1"),
    ],
)
def test_a_failing_command_ends_the_stream_after_its_output(sshd: Sshd, how: str, message: str) -> None:
    """The failure has its last line of standard error; of nine megabytes there only a little is kept."""
    with login(sshd, f"head -c 700000 /dev/zero; echo why >&2; {how}") as stream:
        stream.logged_in()
        wait_still(lambda: unread(stream.client), "as much as fits has come")  # before anything of it is read
        assert len(everything(stream.client)) == 700_000
        over = stream.over()
    assert (over.problem, over.said) == (Problem.CLOSED, "why")
    assert message in over.message


@needs_sshd
def test_an_sftp_subsystem_is_requested_and_responds(sshd: Sshd) -> None:
    """The first packets of SFTP (draft-ietf-secsh-filexfer-02 section 4) agree on version 3."""
    with login(sshd, "subsystem sftp") as stream:
        stream.client.sendall(struct.pack(">IBI", 5, 1, 3))
        assert stream.client.recv(9)[4:9] == struct.pack(">BI", 2, 3)
    assert refused(login(sshd, "subsystem nothing")).problem is Problem.PROTOCOL
    with login(sshd, "echo subsystem sftp") as stream:  # a command stays a command
        assert everything(stream.client) == b"subsystem sftp\n"


@needs_sshd
def test_output_that_the_connector_does_not_read_is_not_read_from_the_server(sshd: Sshd, tmp_path: Path) -> None:
    """The command blocks when the SSH window and the sockets are full."""
    count = tmp_path / "count"
    with login(sshd, f"while head -c 100000 /dev/zero; do echo >> {count}; done") as stream:
        assert stream.client.recv(1)
        wait_text(count, "\n")
        assert wait_still(lambda: count.stat().st_size, "the command stops") < 150  # of 100 kB each


@needs_sshd
@pytest.mark.parametrize("name", HOST_KEYS)
def test_the_pinned_host_key_is_requested_whatever_its_type(sshd: Sshd, name: str) -> None:
    """A server has several host keys. A comment behind the pinned key makes no difference."""
    with login(sshd, "true", host_key=f"{public_line(sshd.host_keys[name])} root@server") as stream:
        assert everything(stream.client) == b""


@needs_sshd
def test_the_host_key_shown_for_comparison_is_the_one_that_ssh_shows(sshd: Sshd) -> None:
    """The server has several host keys; the shortest is shown, whose type is requested first."""
    target = LoginTarget.parse(f"ssh://localhost:{sshd.port}")
    assert fetched_host_key(target) == public_line(sshd.host_keys["ssh-ed25519"])


@needs_sshd
def test_a_server_with_another_host_key_gets_no_login(sshd: Sshd, key: asyncssh.SSHKey) -> None:
    """The message has the fingerprint of the server's key. The server does not even get the user name."""
    error = refused(login(sshd, "true", host_key=public_line(key), user="unheard-of"))
    assert error.problem is Problem.HOST_KEY
    assert sshd.host_keys["ssh-ed25519"].get_fingerprint() in error.message
    assert "somebody may be in between" in error.message
    assert "unheard-of" not in sshd.log
    assert refused(login(sshd, "true", user="unheard-of")).problem is Problem.REFUSED_CREDENTIAL
    sshd.wait_logged("unheard-of")
    for pinned in (None, "", " ", "ssh-ed25519 AAAA", public_line(sshd.host_keys["ssh-rsa"])[:-20]):
        if pinned != "":
            assert refused(login(sshd, "true", host_key=pinned)).problem is Problem.HOST_KEY


def test_a_host_certificate_is_not_accepted_for_the_pinned_key() -> None:
    """A server with nothing but a certificate is refused, even if the pinned key signed the certificate."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    certificate = host_key.generate_host_certificate(host_key, "server")
    with SshPeer(server_host_keys=[(host_key, certificate)], host_key=host_key) as peer:
        assert (
            refused(login(peer, "true", b"password")).problem is Problem.REFUSED_CREDENTIAL
        )  # it has the key too, and shows that
        other = asyncssh.generate_private_key("ssh-ed25519")
        assert refused(login(peer, "true", b"password", public_line(other))).problem is Problem.HOST_KEY


@needs_sshd
@pytest.mark.parametrize("name", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
@pytest.mark.parametrize("form", ["openssh", "pkcs8-pem", "pkcs1-pem"])
def test_every_kind_of_ssh_key_logs_in(sshd: Sshd, name: str, form: str) -> None:
    """Each key type and file format works; RSA signs with SHA-2."""
    if (name, form) == ("ssh-ed25519", "pkcs1-pem"):
        pytest.skip("there is no such form")
    own = asyncssh.generate_private_key(name)
    sshd.allow(sshd.client_key, own)
    with login(sshd, "true", own.export_private_key(form)) as stream:
        assert everything(stream.client) == b""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "cannot be read"),
        (lambda: b"-----BEGIN PUBLIC KEY-----\n", "cannot be read"),
        (lambda: asyncssh.generate_private_key("ssh-ed25519").export_private_key("pkcs8-pem", "x"), "has a passphrase"),
        (lambda: asyncssh.generate_private_key("ssh-rsa", key_size=1024).export_private_key(), "2048"),
        (lambda: asyncssh.generate_private_key("ssh-ed448").export_private_key(), "ssh-ed448"),
        (lambda: b"\xff\xfe", "UTF-8"),
    ],
)
def test_an_unusable_ssh_secret_is_reported_before_anything_is_sent_to_the_server(
    make: Callable[[], bytes], why: str
) -> None:
    """The report comes before a byte is sent to the server."""
    with _Listener() as nobody:
        error = refused(login(nobody, "true", make()))
    assert error.problem is Problem.UNUSABLE_CREDENTIAL
    assert why in error.message


@needs_sshd
def test_an_unknown_key_or_user_is_refused(sshd: Sshd, key: asyncssh.SSHKey) -> None:
    """Control: a known key and user are accepted."""
    error = refused(login(sshd, "true", key.export_private_key()))
    assert error.problem is Problem.REFUSED_CREDENTIAL
    assert refused(login(sshd, "true", user="nobody-of-that-name")).problem is Problem.REFUSED_CREDENTIAL
    with login(sshd, "true") as stream:
        stream.logged_in()


class _Passwords(asyncssh.SSHServer):
    """A server that accepts one password, and records the attempts."""

    attempts: list[str]

    def __init__(self) -> None:
        self._connection: asyncssh.SSHServerConnection | None = None

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> bool:
        self.attempts.append("asked")
        return False

    def validate_password(self, username: str, password: str) -> bool:
        self.attempts.append(password)
        return password == "correct horse"


def test_an_ssh_password_is_sent_once_and_only_by_the_password_method() -> None:
    """The server's output could repeat the password, so it is masked there."""

    class Server(_Passwords):
        attempts: list[str] = []  # noqa: RUF012 - of this test

    def answer(process: asyncssh.SSHServerProcess[str]) -> None:
        process.stdout.write(f"{process.command}: correct horse")
        process.exit(0)

    with SshPeer(Server, process_factory=answer) as peer:
        with login(peer, "say", b"correct horse") as stream:
            assert everything(stream.client) == b"say: *************"
            assert stream.logged_in().mechanism == "password"
            assert stream.over().scrubbed == 1
        error = refused(login(peer, "say", b"wrong horse"))
        assert error.problem is Problem.REFUSED_CREDENTIAL
        assert "wrong horse" not in f"{error}"
        assert Server.attempts == ["correct horse", "wrong horse"]


def test_an_unknown_key_is_tried_once(key: asyncssh.SSHKey) -> None:
    """A single connection is made, and no password is tried, which this server would accept."""

    class Server(_Passwords):
        attempts: list[str] = []  # noqa: RUF012 - of this test

        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            self.attempts.append("connected")

        def public_key_auth_supported(self) -> bool:
            return True

        def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
            self.attempts.append(public_line(key))
            return False

    with SshPeer(Server) as peer:
        assert refused(login(peer, "true", key.export_private_key())).problem is Problem.REFUSED_CREDENTIAL
        assert Server.attempts == ["connected", public_line(key)]


def test_a_server_that_accepts_a_login_without_a_credential_is_refused() -> None:
    """Such a server did not check the credential, so it may be an impostor."""

    class Open(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

    with SshPeer(Open) as peer:
        assert refused(login(peer, "true", b"password")).problem is Problem.REFUSED_CREDENTIAL


@needs_sshd
@pytest.mark.parametrize(
    "setting",
    [
        "Ciphers aes256-ctr",
        "Ciphers chacha20-poly1305@openssh.com",
        "KexAlgorithms diffie-hellman-group14-sha1",
        "HostKeyAlgorithms ssh-rsa",
    ],
)
def test_a_server_with_only_old_algorithms_is_refused(tmp_path: Path, setting: str) -> None:
    """The server has the right key, and gets no user name. (All other tests are the control.)"""
    with Sshd(tmp_path, setting) as server:
        error = refused(login(server, "true", host_key=public_line(server.host_keys["ssh-rsa"])))
        assert error.problem in (Problem.NOT_ENCRYPTED, Problem.CLOSED)  # the server may find out first, and go
        assert "the algorithms that are safe today" in error.message
        server.wait_logged("Unable to negotiate")


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ((), Problem.TOO_SLOW),
        ((b"SSH-2.0-x\r\n",), Problem.TOO_SLOW),
        ((b"SSH-1.5-x\r\n",), Problem.PROTOCOL),
        ((b"SSH-2.0-x\r\n", b""), Problem.CLOSED),
        ((b"",), Problem.CLOSED),
        ((b"SSH-2.0-x\r\n" + b"\xff" * 4096,), Problem.PROTOCOL),
        ((b"welcome\r\n" * 500,) * 100, Problem.PROTOCOL),
        ((b"x" * 8000 + b"\n",) * 100, Problem.PROTOCOL),
        ((b"x" * 100000,), Problem.PROTOCOL),
    ],
)
def test_a_server_that_speaks_no_ssh_is_bounded_in_time_and_bytes(says: tuple[bytes, ...], problem: Problem) -> None:
    """An empty piece in the script closes the connection."""
    with _Listener() as peer:

        def run() -> None:
            with peer.socket.accept()[0] as sock, contextlib.suppress(OSError):
                for piece in says:
                    if not piece:
                        return
                    sock.sendall(piece)
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=run)
        thread.start()
        login_s = 0.5 if problem is Problem.TOO_SLOW else 20.0
        assert refused(login(peer, "true", b"password", login_s=login_s)).problem is problem
        thread.join(5)


def test_banners_before_the_login_are_bounded() -> None:
    """SSH messages can be banners, too; a single banner does no harm."""

    class Server(_Passwords):
        attempts: list[str] = []  # noqa: RUF012 - of this test
        times = 1

        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            self._connection = conn

        def begin_auth(self, username: str) -> bool:
            assert self._connection is not None
            for _ in range(self.times):
                self._connection.send_auth_banner("welcome " * 1000)
            return True

    with SshPeer(Server, process_factory=lambda process: process.exit(0)) as peer:
        with login(peer, "say", b"correct horse") as stream:
            stream.logged_in()
        Server.times = 100
        error = refused(login(peer, "say", b"correct horse"))
    assert error.problem is Problem.PROTOCOL
    assert "more than" in error.message


def test_an_ssh_server_cannot_open_channels_to_the_login_process() -> None:
    """Port and socket forwarding are refused, and the command continues, without a terminal or an environment."""
    refusals: list[str] = []

    class Server(_Passwords):
        attempts: list[str] = []  # noqa: RUF012 - of this test

    async def command(process: asyncssh.SSHServerProcess[str]) -> None:
        connection = process.get_extra_info("connection")
        for kind, arguments in (
            ("create_connection", (asyncssh.SSHTCPSession, "127.0.0.1", 1)),
            ("create_unix_connection", (asyncssh.SSHUNIXSession, "x")),
        ):
            try:
                await getattr(connection, kind)(*arguments)
            except asyncssh.ChannelOpenError as error:
                refusals.append(f"{kind}: {type(error).__name__}")
        process.stdout.write(f"{process.get_terminal_type()} {dict(process.env)}")
        process.exit(0)

    with SshPeer(Server, process_factory=command) as peer, login(peer, "x", b"correct horse") as stream:
        assert everything(stream.client) == b"None {}"
    assert refusals == ["create_connection: ChannelOpenError", "create_unix_connection: ChannelOpenError"]


@needs_sshd
def test_a_broken_connection_is_not_reported_as_the_successful_end_of_a_command(sshd: Sshd) -> None:
    """The connection is killed while a command runs."""
    with login(sshd, "kill -9 $PPID; sleep 5") as stream:
        everything(stream.client)
        assert stream.over().problem is Problem.CLOSED


@needs_sshd
def test_no_ssh_settings_of_this_machine_are_used(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: asyncssh.SSHKey
) -> None:
    """The user has keys, an agent, a configuration and known hosts."""
    home = tmp_path / ".ssh"
    home.mkdir()
    (home / "id_ed25519").write_bytes(sshd.client_secret)
    (home / "config").write_text(f"ProxyCommand touch {tmp_path}/ran\nUser other\n", encoding="ascii")
    (home / "known_hosts").write_text("* " + public_line(sshd.host_keys["ssh-ed25519"]), encoding="ascii")
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        agent.setblocking(False)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        assert refused(login(sshd, "true", key.export_private_key())).problem is Problem.REFUSED_CREDENTIAL
        assert refused(login(sshd, "true", host_key=public_line(key))).problem is Problem.HOST_KEY
        with login(sshd, "true") as stream:
            stream.logged_in()
        with pytest.raises(BlockingIOError):
            agent.accept()
    assert not (tmp_path / "ran").exists()


class _OverLogins(SSHVendor):
    """A vendor that does for dulwich here what the SDK does in a jail."""

    def __init__(self, sshd: Sshd) -> None:
        self.sshd = sshd
        self.commands: list[str] = []
        self.ends: list[Over] = []

    def run_command(self, host: str, command: bytes, *arguments: object, **named: object) -> Any:
        self.commands.append(command.decode())
        stream = login(self.sshd, self.commands[-1]).__enter__()
        stream.logged_in()
        file, vendor = stream.client.makefile("rwb"), self

        class Command:
            read = file.read

            def write(self, data: bytes) -> None:
                file.write(data)
                file.flush()

            def can_read(self) -> bool:
                return bool(select.select([stream.client], [], [], 0)[0])

            def close(self) -> None:
                stream.client.shutdown(socket.SHUT_WR)
                vendor.ends.append(stream.over())
                file.close()
                stream.__exit__(None, None, None)

        return Command()


@needs_sshd
def test_dulwich_clones_fetches_and_pushes(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's own programs are at the other end. A missing repository is reported."""
    vendor = _OverLogins(sshd)
    monkeypatch.setattr("dulwich.client.get_ssh_vendor", lambda: vendor)
    served = tmp_path / "served.git"
    subprocess.run(["git", "init", "--bare", "-b", "main", served], check=True, capture_output=True)
    url = f"ssh://somebody@127.0.0.1:{sshd.port}{served}"
    author = b"a <a@example.com>"
    with closing(porcelain.init(tmp_path / "one")) as pusher, closing(porcelain.init(tmp_path / "two")) as fetcher:
        (tmp_path / "one" / "file").write_bytes(os.urandom(1 << 20))
        porcelain.add(pusher, [str(tmp_path / "one" / "file")])
        commit = porcelain.commit(pusher, message=b"first", author=author, committer=author)
        porcelain.push(pusher, url, b"HEAD:refs/heads/main", errstream=io.BytesIO())
        fetched = porcelain.fetch(fetcher, url, errstream=io.BytesIO())
        assert fetched.refs[Ref(b"refs/heads/main")] == commit
        with closing(porcelain.clone(url, tmp_path / "three", errstream=io.BytesIO())) as clone:
            assert clone.head() == commit
    assert vendor.commands[0] == f"git-receive-pack '{served}'"
    assert set(vendor.commands[1:3]) == {f"git-upload-pack '{served}'"}
    assert [end.problem for end in vendor.ends] == [None] * 3
    with login(sshd, f"git-upload-pack '{served}x'") as stream:
        assert everything(stream.client) == b""
        assert "does not appear to be a git repository" in stream.over().said


@needs_sshd
def test_version_2_of_gits_protocol_is_requested(sshd: Sshd, tmp_path: Path) -> None:
    """A server that ignores the variable uses the older version. Other commands get no environment variable."""
    served = tmp_path / "served.git"
    subprocess.run(["git", "init", "--bare", "-b", "main", served], check=True, capture_output=True)
    (tmp_path / "accepts").mkdir()
    command = f"git-upload-pack '{served}'"
    with Sshd(tmp_path / "accepts", "AcceptEnv *") as accepts:
        for server, begins in ((accepts, b"000eversion 2\n"), (sshd, b"0")):
            with login(server, command) as stream:
                said = stream.client.recv(14, socket.MSG_WAITALL)
                assert said.startswith(begins)
                assert (b"version 2" in said) is (server is accepts)
        with login(accepts, "env") as stream:
            assert b"GIT_PROTOCOL" not in everything(stream.client)


@pytest.mark.parametrize("command", [None, ""])
def test_a_login_without_a_command_is_refused(command: str | None) -> None:
    """A shell is not available."""
    with _Listener() as nobody:
        assert refused(login(nobody, command, b"password")).problem is Problem.NOT_ALLOWED
