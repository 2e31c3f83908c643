"""Connectors in C end to end: build, install, action, run; static and dynamic; requests with streamed bodies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from aileron_sandbox import cgroups
from tests.cli.command import Command
from tests.sandbox.conftest import needs_groups
from tests.support.descendants import read_descendants
from tests.support.elf_programs import LINKS, Link, compiled
from tests.support.home import DaemonHome, daemon_home
from tests.support.upstream import Seen, Upstream, answer, chunked_answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
NAME = "github://aileron-tests/in-c"
PIECE = bytes(range(256)) * 256
PIECES = 24
LARGE = PIECE * PIECES
KEY = b"a-key-that-nobody-guesses"
_CREDENTIAL = '[capabilities.credential]\nkind = "api_key"\nscope = "Fetch"'
_FORKING = """
import os
from aileron_connector import op, run


@op
def leave_behind() -> dict:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    if os.fork() == 0:
        os.setsid()
        os.read(3, 1)
    return {"exited": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


run()
"""
OPERATIONS = {
    "greet": {"name": "string"},
    "fetch": {"path": "string", "credential": "string?"},
    "upload": {"path": "string", "size": "integer"},
    "copy": {"from": "string", "to": "string"},
    "reach_out": {},
    "leave_behind": {},
    "unheard_of": {},
}


def _manifest(host: str, *, may_fork: bool) -> str:
    return f"""
[connector]
name = "{NAME}"
version = "1.0.0"
[capabilities.network]
hosts = ["{host}"]
{_CREDENTIAL}
[capabilities.runtime]
imports = ["http", "log"]
[limits]
timeout_s = 10
subprocess = {str(may_fork).lower()}
"""


def _action(op: str, inputs: dict[str, str]) -> str:
    declared = "".join(
        f'[[inputs]]\nname = "{name}"\ntype = "{kind.removesuffix("?")}"\ndescription = "For the test."\n'
        f"required = {str(not kind.endswith('?')).lower()}\n"
        for name, kind in inputs.items()
    )
    return f"""+++
name = "{op.replace("_", "-")}"
version = "1.0.0"
[[requires.connectors]]
name = "{NAME}"
version = "1.0.0"
hash = "sha256:bound-at-release"
capabilities = ["{op}"]
[match]
intent = "see what C can do"
[[execute]]
id = "step"
connector = "{NAME}"
op = "{op}"
{declared}+++

# A test
"""


def _sum(data: bytes) -> str:
    """Return the FNV-1a sum, as connector.c computes it."""
    total = 0xCBF29CE484222325
    for byte in data:
        total = ((total ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{total:016x}"


def _upstream(seen: Seen) -> bytes | Iterable[bytes]:
    match seen.target:
        case "/large":
            return chunked_answer([PIECE] * PIECES)
        case "/key":
            return answer(b" ".join(value.encode() for value in seen.values("authorization")))
        case _:
            return answer(_sum(seen.body[: 1 << 16]).encode() + b" %d" % len(seen.body))


def _written(directory: Path, link: Link, host: str, *, may_fork: bool) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "manifest.toml").write_text(_manifest(host, may_fork=may_fork), encoding="utf-8")
    (directory / "connector").write_bytes(compiled("connector", link))
    return directory


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """Start a server on loopback with a large resource; it echoes the key it was given, and sums the bodies it was sent."""
    with Upstream(_upstream) as started:
        yield started


@contextlib.contextmanager
def _home(source: Path, upstream: Upstream) -> Iterator[DaemonHome]:
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        made.install(source)
        for op, inputs in OPERATIONS.items():
            made.must("POST", "/v1/actions", {"text": _action(op, inputs), "file": "a test"})
        made.unlock(KEY)
        made.bind(NAME, "api_key/c/me")
        yield made


@pytest.fixture(scope="module", params=LINKS)
def link(request: pytest.FixtureRequest) -> Link:
    """Return how the program is linked: static has an empty root, dynamic has the loader and the C library."""
    kind: Link = request.param
    return kind


@pytest.fixture(scope="module")
def home(link: Link, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """Provide a home with the connector, which may not fork, and an action for each operation."""
    source = _written(tmp_path_factory.mktemp("source") / "c", link, f"localhost:{upstream.port}", may_fork=False)
    with _home(source, upstream) as made:
        yield made


@pytest.fixture(scope="module")
def forking_home(link: Link, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """Provide a home with the connector, whose manifest says that it may start processes."""
    if cgroups.find() is None:
        pytest.skip("this user can make no control groups here, so nothing may start processes (ADR 35)")
    source = _written(tmp_path_factory.mktemp("source") / "c", link, f"localhost:{upstream.port}", may_fork=True)
    with _home(source, upstream) as made:
        yield made


def test_a_compiled_connector_is_built_installed_and_run(link: Link, tmp_path: Path) -> None:
    """A person types the commands; the result is what the program said."""
    source = _written(tmp_path / "greeter", link, "greeter.example.com:443", may_fork=False)
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace(_CREDENTIAL, ""), encoding="utf-8")
    (tmp_path / "greet.md").write_text(_action("greet", OPERATIONS["greet"]), encoding="utf-8")
    with daemon_home() as home:
        aileron = Command(home.path)
        built = aileron("connector", "build", str(source), "-o", str(tmp_path / "greeter.tar.gz"))
        installed = aileron("connector", "install", str(tmp_path / "greeter.tar.gz"))
        added = aileron("action", "add", str(tmp_path / "greet.md"))
        ran = aileron("run", "greet", "name=Mira", "--json")

    assert [built.code, installed.code, added.code, ran.code] == [0, 0, 0, 0], (built, installed, added, ran)
    assert ran.json["result"] == {"greeting": "Mira", "pid": 1, "threads": 1, "environment": 0, "program": "connector"}


def _waiting(home: DaemonHome) -> set[int]:
    """Return the processes of jailed programs, which all have the same name; between runs only spares exist."""
    names = read_descendants(home.daemon_pid, psutil.Process.name)
    return {process.pid for process, name in names.items() if name == "connector"}


def test_a_connector_that_reports_ready_is_started_before_its_next_run(home: DaemonHome) -> None:
    """The process of the second run existed before the request and is gone after it; both runs have the same record."""
    answers = [home.run("greet", {"name": "Mira"})]
    waiting = wait_until(lambda: _waiting(home), "a connector waits")
    answers.append(home.run("greet", {"name": "Ada"}))

    assert [answer.body["result"]["greeting"] for answer in answers] == ["Mira", "Ada"]
    assert waiting
    wait_until(lambda: not waiting & _waiting(home), "whoever waited is used")
    first, second = ([event["type"] for event in home.events(answer.body["audit_id"])] for answer in answers)
    assert first == second
    assert home.must("GET", "/v1/audit?type=connector.acted_early")["events"] == []


def test_a_program_that_cannot_run_on_this_machine_is_not_installed(
    home: DaemonHome, link: Link, tmp_path: Path
) -> None:
    """The program is for another machine, or lacks a library: the error says so, and the store is unchanged."""
    source = _written(tmp_path / "c", link, "greeter.example.com:443", may_fork=False)
    program = bytearray((source / "connector").read_bytes())
    before = home.must("GET", "/v1/connectors")
    if link == "static":
        program[18] = 40  # e_machine, elf(5): arm of 32 bits
        (source / "connector").write_bytes(program)
    else:
        (source / "connector").write_bytes(program.replace(b"libc.so.6\0", b"libx.so.6\0"))
    answer = home.ask("POST", "/v1/connectors", {"path": str(source), "on_conflict": "keep_both"})

    assert (answer.status, answer.body["error"]["class"]) == (503, "sandbox_unavailable")
    expected = "it is for arm, but this machine is" if link == "static" else "needs 'libx.so.6'"
    assert expected in answer.body["error"]["message"]
    assert home.must("GET", "/v1/connectors") == before


def test_a_response_body_is_streamed_completely(home: DaemonHome) -> None:
    """The connector gets 1.5 MiB in chunks as they arrive, to the last byte."""
    ran = home.run("fetch", {"path": "/large"})

    assert ran.status == 200, ran.body
    result = ran.body["result"]
    assert (result["status"], result["bytes"], result["sum"]) == (200, len(LARGE), _sum(LARGE))
    assert result["chunks"] > 1


def test_a_request_body_is_streamed_completely(home: DaemonHome, upstream: Upstream) -> None:
    """The connector sends 1 MiB in frames of 64 KiB; the server receives every byte in order."""
    ran = home.run("upload", {"path": "/upload", "size": 1 << 20})

    assert ran.status == 200, ran.body
    assert ran.body["result"]["sent"] == 1 << 20
    assert upstream.requests[-1].body == bytes(index % 251 for index in range(1 << 20))


def test_a_response_can_be_streamed_into_another_request(home: DaemonHome, upstream: Upstream) -> None:
    """The second request sends what the first one receives, while it is received."""
    ran = home.run("copy", {"from": "/large", "to": "/copied"})

    assert ran.status == 200, ran.body
    assert ran.body["result"]["sent"] == len(LARGE)
    assert (upstream.requests[-1].target, upstream.requests[-1].body) == ("/copied", LARGE)


def test_the_key_is_added_outside_the_jail_and_scrubbed_from_the_response(home: DaemonHome, upstream: Upstream) -> None:
    """The server got the key; the program got a response of another length, without it."""
    ran = home.run("fetch", {"path": "/key", "credential": "api_key"})
    plain = home.run("fetch", {"path": "/key"})

    assert ran.status == plain.status == 200, (ran.body, plain.body)
    given = [seen.values("authorization") for seen in upstream.requests if seen.target == "/key"]
    assert given[-2:] == [["Bearer " + KEY.decode()], []]
    assert ran.body["result"]["sum"] != _sum(b"Bearer " + KEY)
    assert ran.body["result"]["bytes"] > 0
    assert plain.body["result"]["bytes"] == 0


def test_failures_of_a_compiled_connector_have_the_same_classes_as_those_of_a_python_connector(
    home: DaemonHome,
) -> None:
    """The frames are the same as those of a Python connector, so the classes are too."""
    unknown = home.run("unheard-of")
    elsewhere = home.run("fetch", {"path": ".evil.example.com/x"})

    assert unknown.body["error"]["class"] == "unknown_op"
    assert elsewhere.body["error"]["class"] == "capability_denied"


def test_a_direct_connection_from_the_jail_is_denied_and_its_destination_reported(home: DaemonHome) -> None:
    """A socket of the program's own ends it; the error has the destination if it is readable."""
    ran = home.run("reach-out")

    assert (ran.status, ran.body["error"]["class"]) == (403, "capability_denied")
    started = next(event for event in home.events(ran.body["error"]["audit_id"]) if event["type"] == "run.started")
    is_hidden = os.getuid() != 0 and "private-memory" in started["layers"]
    assert ran.body["error"]["requested"] == ("network:unknown" if is_hidden else "network:93.184.216.34:443")
    assert home.run("greet", {"name": "x"}).status == 200


def test_the_audit_record_names_the_layers_of_the_connectors_profile(
    home: DaemonHome, forking_home: DaemonHome
) -> None:
    """The record has the layers of the template that the connector ran in, once each, before it ran."""
    starts = []
    for each, action in ((home, "greet"), (forking_home, "leave-behind")):
        ran = each.run(action, {"name": "x"} if action == "greet" else {})
        assert ran.status == 200, ran.body
        starts.append([event for event in each.events(ran.body["audit_id"]) if event["type"] == "run.started"])

    assert [len(found) for found in starts] == [1, 1]
    layers = [found[0]["layers"] for found in starts]
    assert [set(found) & {"seccomp:python", "seccomp:elf", "seccomp:elf-subprocess"} for found in layers] == [
        {"seccomp:elf"},
        {"seccomp:elf-subprocess"},
    ]
    assert all({"user-ns", "pivoted-root", "no-capabilities"} <= set(found) for found in layers)


@needs_groups
def test_a_python_connector_may_fork_only_if_its_manifest_declares_it(tmp_path: Path) -> None:
    """A program that forks fails with a manifest that does not declare it, and runs with one that does."""
    answers = []
    for may_fork in (False, True):
        source = tmp_path / str(may_fork)
        source.mkdir()
        manifest = _manifest("x.example.com:443", may_fork=may_fork).replace(_CREDENTIAL, "")
        (source / "manifest.toml").write_text(manifest, encoding="utf-8")
        (source / "connector.py").write_text(_FORKING, encoding="utf-8")
        with daemon_home() as home:
            home.ask("GET", "/healthz")
            home.install(source)
            home.must("POST", "/v1/actions", {"text": _action("leave_behind", {}), "file": "a test"})
            answers.append(home.run("leave-behind"))

    refused, ran = answers
    assert refused.body["error"]["class"] == "connector_runtime_error"
    assert (ran.status, ran.body["result"]) == (200, {"exited": 7})


def test_only_a_connector_that_declares_forking_may_fork_and_no_child_outlives_the_run(
    home: DaemonHome, forking_home: DaemonHome
) -> None:
    """A daemonized child that ignores every signal is about to end when the response comes (ADR 50), and then gone."""
    refused = home.run("leave-behind")
    ran = forking_home.run("leave-behind")

    assert (refused.status, refused.body["error"]["class"]) == (502, "connector_runtime_error")
    assert os.strerror(1) in refused.body["error"]["message"]
    assert (ran.status, ran.body["result"]) == (200, {"left": 1})
    assert forking_home.daemon_pid is not None
    wait_until(lambda: not _waiting(forking_home), "no connector waits")  # what was exec'ed has another name
