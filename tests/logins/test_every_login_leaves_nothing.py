"""Every login, from a jail by an unmodified library at a real server, under root's daemon and an ordinary user's: the secret
is nowhere that the connector, or a later process, could look.

    library ── jail ── frames ── daemon ── a login's process ── TLS or SSH ── server
      └── its memory, its frames, its output, its cores, the ledger, the logs: searched

Root searches each readable mapping of every process of the daemon while the stream is open. Each search has a positive control:
a word that the connector sent and received, and the secret itself where it has to be.

The tests need root, which starts the servers and may read everything. What is sent to the servers is tested in test_logins_*.py.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.canary import scan, shapes
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.jailed_office import FORMS, Waiting, keep_frames
from tests.support.libraries import pack
from tests.support.mariadb import MariaDB
from tests.support.memories import memory_of, memory_unless_ended
from tests.support.other_user import UID
from tests.support.postfix import OFFERS, Postfix
from tests.support.postgresql import PostgreSQL
from tests.support.redis_server import RedisServer
from tests.support.sshd import USER, Sshd, needs_sshd, public_line
from tests.support.their_home import TheirHome, their_home
from tests.support.upstream import Authority

pytestmark = [
    pytest.mark.jail,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts servers, and looks into what others may not"),
    needs_sshd,
]

SOURCE: Final = Path(__file__).resolve().parents[1] / "support" / "connectors" / "every_login"
CONNECTOR: Final = "github://aileron-tests/by-{}"
PLACEHOLDER: Final = b"a-password-that-is-none"
"""The password that the libraries send as their own."""
BY_PASSWORD: Final = ("smtp", "imap", "pop3", "postgres", "mysql", "redis")
DATABASE: Final = "3"
"""Name of a database on two servers, and number of one on Redis."""
PACKED: Final = {
    "password": ("pg8000", "scramp", "asn1crypto", "dateutil", "six", "pymysql", "redis"),
    "key": ("dulwich", "urllib3", "typing_extensions"),
}
MANIFEST: Final = """\
[connector]
name = "github://aileron-tests/by-{kind}"
version = "1.0.0"

[capabilities.network]
hosts = {hosts}

[capabilities.credential]
kind = "login"
scope = "Whatever a test does"
logins = {logins}
{more}

[capabilities.runtime]
imports = ["log", "tcp"]

[limits]
timeout_s = 40
memory_mb = 256
"""
CORE_PATTERN: Final = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8").strip()


@dataclasses.dataclass(frozen=True)
class Servers:
    """The place of each protocol's server, with the secrets that log in there."""

    places: dict[str, str]
    authority: Authority
    dovecot: Dovecot
    sshd: Sshd
    repository: Path

    def forms(self, protocol: str) -> dict[str, bytes]:
        """Return the forms that a protocol's secret can take, whole or in halves: base64 as in SASL, quoted as in IMAP."""
        if protocol != "ssh":
            quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').encode()
            return {"quoted": quoted} | {
                name: form for name, form in shapes(PASSWORD.encode()).items() if name in FORMS
            }
        seed = self.sshd.client_key.export_private_key("pkcs8-der")[-32:]  # RFC 8410 section 7
        stored = self.sshd.client_secret.splitlines()[4]  # of the file in the vault, the line that the seed is in
        plain = {"as it is stored": stored, "seed": seed, "first half": seed[:16], "second half": seed[16:]}
        encoded = {f"base64, {before} before": _base64(seed, before) for before in range(3)}
        return plain | encoded | {"hex": seed.hex().encode(), "utf-16-le": stored.decode().encode("utf-16-le")}


def _base64(seed: bytes, before: int) -> bytes:
    """Return the base64 characters of the seed that do not depend on the bytes around it."""
    return base64.b64encode(b"\0" * before + seed)[-(-before * 4 // 3) : (before + len(seed)) * 4 // 3]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start one server of each kind, with TLS or SSH; at all but SSH's, `mira` has one password."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    in_acl = f"mira on #{hashlib.sha256(PASSWORD.encode()).hexdigest()} ~* &* +@all"
    repository = tmp_path_factory.mktemp("served") / "one.git"
    _make_repository(repository)
    with contextlib.ExitStack() as undo:
        dovecot = undo.enter_context(Dovecot(authority))
        postfix = undo.enter_context(Postfix(authority, dovecot, OFFERS[:1]))
        postgres = undo.enter_context(PostgreSQL(authority))
        mariadb = undo.enter_context(MariaDB(authority))
        redis = undo.enter_context(RedisServer(tmp_path_factory.mktemp("redis"), authority, in_acl))
        sshd = undo.enter_context(Sshd(tmp_path_factory.mktemp("sshd")))
        with postgres.admin() as admin:
            admin.run(f"CREATE ROLE mira LOGIN PASSWORD '{PASSWORD}'")
            admin.run(f'CREATE DATABASE "{DATABASE}"')
        escaped = PASSWORD.replace("\\", "\\\\")
        mariadb.run(
            f"CREATE DATABASE `{DATABASE}`",
            f"CREATE USER mira IDENTIFIED BY '{escaped}'",
            f"GRANT ALL ON `{DATABASE}`.* TO mira",
        )
        ports = {
            "smtp": postfix.submissions[OFFERS[0]],
            "imap": dovecot.imaps,
            "pop3": dovecot.pop3s,
            "postgres": postgres.port,
            "mysql": mariadb.port,
            "redis": redis.tls_port,
            "ssh": sshd.port,
        }
        places = {protocol: f"localhost:{port}" for protocol, port in ports.items()}
        yield Servers(places, authority, dovecot, sshd, repository)


def _make_repository(path: Path) -> None:
    """Create a repository with one commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(path.parent)]
    for words in (["init", "-b", "main"], ["commit", "--allow-empty", "-m", "first"], ["clone", "--bare", ".", path]):
        subprocess.run([*git, *words], check=True, capture_output=True)


@pytest.fixture(scope="module", params=["root", "an_ordinary_user"])
def home(
    request: pytest.FixtureRequest,
    servers: Servers,
    readable_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TheirHome]:
    """Start root's daemon or another user's, with a connector for all password logins and one for SSH."""
    who = (0, Path(sys.executable)) if request.param == "root" else (UID, readable_python)
    with their_home(*who) as made:
        made.reach(*servers.places.values(), ca_file=made.give(servers.authority.ca_file))
        made.unlock(PASSWORD.encode())
        made.store("key", servers.sshd.client_secret)
        sources = tmp_path_factory.mktemp("sources")
        _install(made, sources, "password", {name: servers.places[name] for name in BY_PASSWORD})
        patterns = [f"git-{verb}-pack '{servers.repository}'" for verb in ("upload", "receive")]
        _install(made, sources, "key", {"ssh": servers.places["ssh"]}, f"commands = {patterns}")
        made.bind(CONNECTOR.format("password"), "login/password/me", username="mira", details={"database": DATABASE})
        host_key = {"host_key": public_line(servers.sshd.host_keys["ssh-ed25519"])}
        made.bind(CONNECTOR.format("key"), "login/key/me", "key", username=USER, details=host_key)
        yield made


def _install(home: TheirHome, sources: Path, kind: str, places: dict[str, str], more: str = "") -> None:
    """Install the connector with its libraries, and an action for each protocol."""
    source = sources / kind
    shutil.copytree(SOURCE, source)
    keep_frames(source)
    for package in PACKED[kind]:
        pack(package, source)
    if importlib.util.find_spec("async_timeout") is None:
        (source / "async_timeout.py").write_text(
            "from asyncio import timeout\n"
        )  # redis-py has it with Python < 3.11.3
    else:
        pack("async_timeout", source)
    logins = [f"{protocol}://{place}" for protocol, place in places.items()]
    manifest = MANIFEST.format(kind=kind, hosts=list(places.values()), logins=logins, more=more)
    (source / "manifest.toml").write_text(manifest, encoding="utf-8")
    home.install(source)
    for protocol in places:
        more_inputs = {"ssh": ("path:string",), "redis": ("aborts:boolean?",)}.get(protocol, ())
        home.add_probe_action(protocol, *more_inputs, "word:string", connector=CONNECTOR.format(kind))


def logged_in(home: TheirHome, servers: Servers, protocol: str, word: str, **args: Any) -> Waiting:
    """Start an invocation whose jail waits with its stream open."""
    return Waiting(
        home, protocol, args | {"word": word} | ({"path": str(servers.repository)} if protocol == "ssh" else {})
    )


def _found(forms: dict[str, bytes], data: bytes) -> list[str]:
    return [name for name, form in forms.items() if form in data]


@pytest.mark.abuse_case("LP12")
@pytest.mark.parametrize("protocol", [*BY_PASSWORD, "ssh"])
def test_the_secret_is_in_no_frame_and_only_in_the_memory_of_the_login_process(
    home: TheirHome, servers: Servers, protocol: str
) -> None:
    """The search runs while the secret is in use, and finds it in the login's process: the positive control."""
    word, forms = f"marked-{protocol}-{home.user}", servers.forms(protocol)
    if protocol == "pop3":
        servers.dovecot.deliver("mira", f"Subject: {word}\r\n\r\nhello\r\n".encode())
    running = logged_in(home, servers, protocol, word)
    logins = running.logins()
    jail = memory_of(running.jail, mode="r")
    others = [memory_unless_ended(pid) for pid in running.processes() if pid not in (*logins, running.jail)]
    own = [memory_unless_ended(pid) for pid in logins]
    answer = running.go()

    assert word.encode() in jail, "the connector's memory was not looked at"
    assert PLACEHOLDER in jail
    assert _found(forms, jail) == []
    assert [found for memory in others if (found := _found(forms, memory))] == []
    assert any(_found(forms, memory) for memory in own), "what is looked for was not found where it is"
    assert answer.status == 200, answer.body
    result = answer.body["result"]
    assert word in result["said"]
    assert _found(forms, str(answer.body).encode()) == []
    frames = {way: base64.b64decode(result[way]) for way in ("heard", "told")}
    for way, passed in frames.items():
        assert word.encode() in passed, way
        assert _found(forms, passed) == [], way


@pytest.mark.abuse_case("LP12")
def test_the_secret_of_a_login_is_in_no_file(home: TheirHome, servers: Servers) -> None:
    """The search covers ledger, log, sockets, connectors and the vault; a word said in the jail is found there."""
    words = {protocol: f"written-by-{protocol}-{home.user}" for protocol in ("imap", "ssh")}
    for protocol, word in words.items():
        answer = logged_in(home, servers, protocol, word).go()
        assert answer.status == 200, answer.body

    assert scan([home.folder], PASSWORD.encode()) == {}
    key = servers.forms("ssh")
    files = {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file()}
    assert {path: found for path, data in files.items() if (found := _found(key, data))} == {}
    for word in words.values():
        written = [path.name for path in map(Path, scan([home.folder], word.encode()))]
        assert [name for name in written if name.startswith("ledger.db")], written


@pytest.mark.abuse_case("LP13")
@pytest.mark.parametrize("whose", ["jail", "login", "daemon"])
def test_a_jail_a_login_process_or_a_daemon_killed_by_a_signal_leaves_no_core_dump(
    home: TheirHome, servers: Servers, whose: str
) -> None:
    """Root lifts the size limit where possible, and programs in core_pattern ignore it. Control: another process
    leaves a core dump.
    """
    protocol = "imap" if whose == "login" else "redis"  # redis-py logs in once more
    running = logged_in(home, servers, protocol, f"dying-{whose}", **({"aborts": True} if whose == "jail" else {}))
    forms = servers.forms(protocol)
    (login,) = [pid for pid in running.logins() if _found(forms, memory_unless_ended(pid))]
    daemon = home.daemon_pid
    assert daemon is not None
    for pid in (running.jail, login, daemon):
        assert _core_limit(pid) == ["0", "0"]
        assert Path(f"/proc/{pid}/environ").stat().st_uid == 0  # proc(5): of its own user only while it is dumpable
    pid = {"jail": running.jail, "login": login, "daemon": daemon}[whose]
    with _watched(pid, home) as cores:
        with contextlib.suppress(PermissionError):  # a root without CAP_SYS_RESOURCE
            resource.prlimit(pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if whose == "jail":
            error = running.go().body["error"]
            assert "SIGABRT" in str(error) or "SIGSEGV" in str(error), error
        else:
            os.kill(pid, signal.SIGSEGV)
        if whose == "daemon":
            _pid, status = os.waitpid(pid, 0)
            assert (os.WTERMSIG(status), os.WCOREDUMP(status)) == (signal.SIGSEGV, False)
            home.unlock()
        elif whose == "login":
            assert running.go().is_error
        assert cores() == []
    _assert_others_leave_one(home)


def _core_limit(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    return next(line for line in lines if line.startswith("Max core file size")).split()[4:6]


@contextlib.contextmanager
def _watched(pid: int, home: TheirHome) -> Iterator[Callable[[], list[str]]]:
    """Watch the places of a dying process's core, in its file system and in ours (core(5)); yield a lister of new cores."""
    pattern = Path(CORE_PATTERN)
    ours: list[str | Path] = ["/", "/tmp", "/var/tmp", os.getcwd(), home.folder, home.path, home.folder / "tmp"]
    if pattern.is_absolute() and pattern.parent.is_dir():
        ours.append(pattern.parent)
    theirs = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", f"/proc/{pid}/root/tmp"]
    with contextlib.ExitStack() as undo:
        places = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in (*ours, *theirs)]  # theirs outlive it so
        for place in places:
            undo.callback(os.close, place)
        before = [set(os.listdir(place)) for place in places]

        def cores() -> list[str]:
            new = [set(os.listdir(place)) - there for place, there in zip(places, before, strict=True)]
            return [name for names in new for name in names if "core" in name or str(pid) in name]

        yield cores


def _assert_others_leave_one(home: TheirHome) -> None:
    """Check that a plain process leaves a core in its directory, if the machine keeps cores there. Skip if it makes none."""
    word = "a-word-in-a-core"
    limits = "resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2)"
    program = f"import os, resource, sys; {limits}; word = '{word[:8]}' + sys.argv[1]; os.abort()"
    where = Path(tempfile.mkdtemp(prefix="ail-core-"))
    try:
        os.chown(where, home.user, home.user)
        process = subprocess.Popen(
            ["/usr/bin/python3", "-c", program, word[8:]],
            cwd=where,
            user=home.user,
            group=home.user,
            extra_groups=[],
        )
        _pid, status = os.waitpid(process.pid, 0)
        process.returncode = 0  # it is waited for
        if not os.WCOREDUMP(status):
            pytest.skip(f"this machine makes no core dumps: core_pattern is {CORE_PATTERN!r}")
        if "/" not in CORE_PATTERN and not CORE_PATTERN.startswith("|"):
            (core,) = where.iterdir()
            assert word.encode() in core.read_bytes()
    finally:
        shutil.rmtree(where)
