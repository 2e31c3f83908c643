"""The login processes: one that forks, and one for each login, at a scripted service that speaks Redis' AUTH."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from aileron.logins.keeper import UNUSED_S, Begun, Keeper
from aileron.logins.login_messages import MAX_LOGINS, Failed, LoggedIn, Order, Over, Problem
from aileron.model.login import LoginDetails, LoginTarget
from tests.support.descriptors import room_for
from tests.support.waiting import wait_gone, wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.jail]
SECRET = b"hunter2-hunter2-in-one-process"
DEADLINE_S = 30.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the processes are undumpable: only root may look into them")


@pytest.fixture
def anyio_backend() -> str:
    """Return the backend of the daemon."""
    return "asyncio"


def order(target: str = "redis+plain://localhost:6379", **more: object) -> Order:
    """Return the order of a login at Redis."""
    fields: dict[str, object] = {
        "target": LoginTarget.parse(target),
        "credential": "password",
        "username": "me",
        "secret": SECRET,
        "details": LoginDetails(),
        "command": None,
        "login_s": 10.0,
        "stream_s": 60.0,
    }
    return Order(**{**fields, **more})  # type: ignore[arg-type]


@asynccontextmanager
async def keeping(clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Keeper]:
    """Yield a keeper that has no process yet."""
    keeper = Keeper(clock=clock)
    try:
        with anyio.fail_after(DEADLINE_S):
            yield keeper
    finally:
        await keeper.aclose()


@contextmanager
def logging_in() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the socket to hand over, and the service's end of it, whose reads have a timeout."""
    theirs, here = socket.socketpair()
    here.settimeout(DEADLINE_S)
    with theirs, here:
        yield theirs, here


def answer_login(service: socket.socket) -> None:
    """Answer a login as Redis does."""
    asked = service.recv(1000)
    assert SECRET in asked
    service.sendall(b"+OK\r\n")


def children_of(pid: int) -> list[int]:
    """Return the children of a process, from /proc."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def forker() -> int:
    """Return the process that forks logins: the child of our child, the program."""
    for pid in children_of(os.getpid()):
        if b"aileron.logins" in Path(f"/proc/{pid}/cmdline").read_bytes():
            (forking,) = children_of(pid)
            return forking
    raise AssertionError("there is no process of logins")


async def ordered(keeper: Keeper, what: Order, service: socket.socket) -> Begun:
    """Begin a login."""
    begun = await keeper.prepare(what.target.protocol)
    await begun.begin(what, service)
    return begun


async def logged_in(keeper: Keeper, service: socket.socket, theirs: socket.socket) -> Begun:
    """Log in up to the point where the stream is open."""
    begun = await ordered(keeper, order(), theirs)
    await anyio.to_thread.run_sync(answer_login, service)
    assert isinstance(await begun.hear(), LoggedIn)
    return begun


async def test_a_login_is_a_process_of_its_own_and_ends_with_its_stream() -> None:
    """Two logins at once are forked from one process."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service), logging_in() as (theirs_too, service_too):
            first = await logged_in(keeper, service, theirs)
            forking = forker()
            second = await logged_in(keeper, service_too, theirs_too)
            assert forker() == forking
            assert len(children_of(forker())) == 2
            for begun, at in ((first, service), (second, service_too)):
                at.sendall(b"$5\r\nhello\r\n")
                await anyio.wait_readable(begun.stream)
                assert begun.stream.recv(100) == b"$5\r\nhello\r\n"
                begun.stream.close()
                assert await begun.hear() == Over(scrubbed=0)
                assert await begun.hear() is None
                begun.close()
            await wait_until_async(lambda: not running(forking), "both have ended")


def running(pid: int) -> list[int]:
    """Return the children that have not ended."""
    return [child for child in children_of(pid) if "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text()]


@pytest.mark.abuse_case("LP1")
@needs_root
async def test_a_login_process_has_only_its_sockets_and_the_forking_process_has_no_secret() -> None:
    """The memory of both is searched; the secret is found in the login's, so the search works."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service):
            begun = await logged_in(keeper, service, theirs)
            forking = forker()
            (login,) = children_of(forking)
            assert has_in_memory(login, SECRET)
            assert not has_in_memory(forking, SECRET)
            assert sorted(descriptors(login)) == ["/dev/null"] * 3 + ["socket:"] * 3
            status = Path(f"/proc/{login}/status").read_text()
            assert "Seccomp:\t2" in status
            assert "NoNewPrivs:\t1" in status
            limits = Path(f"/proc/{login}/limits").read_text()
            assert re.search(r"Max core file size +0 +0", limits)
            assert re.search(rf"Max data size +{256 << 20} ", limits)
            assert os.stat(f"/proc/{login}/environ").st_uid == 0  # an undumpable process belongs to root
            begun.close()


def has_in_memory(pid: int, what: bytes) -> bool:
    """Return whether a readable mapping of the process contains these bytes."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if "r" in rights and "[v" not in line:
                start, end = (int(address, 16) for address in place.split("-"))
                memory.seek(start)
                try:
                    found = memory.read(end - start)
                except OSError:
                    continue
                if what in found:
                    return True
    return False


def descriptors(pid: int) -> list[str]:
    """Return the targets of a process's open descriptors."""
    return [os.readlink(link).partition("[")[0] for link in Path(f"/proc/{pid}/fd").iterdir()]


@pytest.mark.abuse_case("LP3")
async def test_killing_a_login_process_ends_only_its_own_stream() -> None:
    """The other login, and the process that forked both, continue."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service), logging_in() as (theirs_too, service_too):
            victim = await logged_in(keeper, service, theirs)
            (login,) = children_of(forker())
            survivor = await logged_in(keeper, service_too, theirs_too)
            os.kill(login, signal.SIGKILL)
            assert await victim.hear() is None
            await anyio.wait_readable(victim.stream)
            assert victim.stream.recv(100) == b""
            service_too.sendall(b"+x\r\n")
            await anyio.wait_readable(survivor.stream)
            assert survivor.stream.recv(100) == b"+x\r\n"
            victim.close()
            survivor.close()


@pytest.mark.abuse_case("LP2")
async def test_login_processes_end_when_their_forking_process_is_killed_or_closed_and_can_start_again() -> None:
    """Killing the forking process ends its logins; the next login starts another one."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service):
            begun = await logged_in(keeper, service, theirs)
            forking = forker()
            (login,) = children_of(forking)
            os.kill(forking, signal.SIGKILL)
            assert await begun.hear() is None
            begun.close()
            await anyio.to_thread.run_sync(wait_gone, login)
        with logging_in() as (theirs, service):
            begun = await logged_in(keeper, service, theirs)
            forking = forker()
            (login,) = children_of(forking)
            await keeper.aclose()
            await anyio.to_thread.run_sync(wait_gone, forking, login)
            begun.close()


async def test_a_refused_login_reports_its_problem() -> None:
    """The service answers WRONGPASS."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service):
            begun = await ordered(keeper, order(), theirs)
            service.recv(1000)
            service.sendall(b"-WRONGPASS invalid username-password pair\r\n")
            failed = await begun.hear()
            assert isinstance(failed, Failed)
            assert failed.problem is Problem.REFUSED_CREDENTIAL
            begun.close()


@pytest.mark.abuse_case("LP2")
async def test_an_unanswered_login_ends_at_its_deadline() -> None:
    """The service never answers."""
    async with keeping() as keeper:
        with logging_in() as (theirs, _service):
            begun = await ordered(keeper, order(login_s=0.3), theirs)
            failed = await begun.hear()
            assert isinstance(failed, Failed)
            assert failed.problem is Problem.TOO_SLOW
            begun.close()


@pytest.mark.abuse_case("LP10")
async def test_logins_whose_connector_closed_the_stream_end_at_once_and_make_room_for_new_logins() -> None:
    """A connector opens and closes streams again and again, at a silent service, long before the deadline."""
    async with keeping() as keeper:
        with logging_in() as (theirs, service):
            for _ in range(2 * MAX_LOGINS + 1):
                with logging_in() as (at_silent, silent):
                    begun = await ordered(keeper, order(login_s=DEADLINE_S), at_silent)
                    assert SECRET in await anyio.to_thread.run_sync(silent.recv, 1000)
                    begun.close()
                    assert await anyio.to_thread.run_sync(silent.recv, 1000) == b""
            begun = await logged_in(keeper, service, theirs)
            begun.close()
        await wait_until_async(lambda: not running(forker()), "it has ended")


_TRIES = """
import ctypes, json, os, signal, socket, sys
from aileron.logins.confine import Confinement

def attempt(name, what):
    try:
        what()
    except OSError as error:
        tried[name] = error.errno
    else:
        tried[name] = 0

def everything():
    pair = socket.socketpair()
    attempt("pair", lambda: pair[0].send(b"x"))
    attempt("read", lambda: open("/etc/hostname").close())
    attempt("write", lambda: open("/tmp/aileron-login", "w").close())
    attempt("list", lambda: os.listdir("/"))
    attempt("socket", lambda: socket.socket())
    attempt("unix", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    attempt("connect", lambda: stream.connect(("127.0.0.1", port)))
    attempt("listen", lambda: stream.listen())
    attempt("signal", lambda: os.kill(os.getppid(), 0))
    attempt("fork", fork)

def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

stage, port = sys.argv[1], int(sys.argv[2])
stream = socket.socket()
out = os.fdopen(1, "w", closefd=False)
tried = {}
if stage != "free":
    confinement = Confinement()
    confinement.confine_process()
    if stage == "login":
        confinement.confine_login(stream.fileno())
everything()
out.write(json.dumps(tried))
out.flush()
if stage == "login":
    os.execv("/bin/true", ["true"])
"""


@pytest.mark.abuse_case("LP1")
@pytest.mark.parametrize("stage", ["free", "process", "login"])
def test_a_login_process_can_do_only_what_it_needs(stage: str) -> None:
    """The forking process can fork; a login can use its sockets, and is killed if it calls exec. An unconfined
    process can do everything.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, "-c", _TRIES, stage, str(listener.getsockname()[1])]
        done = subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False)
    tried = json.loads(done.stdout)
    allowed = {name for name, number in tried.items() if number == 0}
    if stage == "free":
        assert allowed == tried.keys() - {"listen"}  # it is connected
    else:
        assert allowed == ({"pair", "fork"} if stage == "process" else {"pair"})
        assert {name for name, number in tried.items() if number == errno.EACCES} == {"socket"} | (
            {"unix"} if tried["unix"] == errno.EACCES else set()
        )
    assert done.returncode == (-signal.SIGSYS if stage == "login" else 0)


@needs_root
async def test_an_unused_forking_process_ends_and_the_next_login_starts_another() -> None:
    """The process does not end while there is a login, however long; a login that comes while it ends is not lost. A login
    that failed for want of descriptors does not count as a use.
    """
    now = 0.0
    async with keeping(lambda: now) as keeper:
        with logging_in() as (theirs, service):
            begun = await logged_in(keeper, service, theirs)
            first = forker()
            now += 2 * UNUSED_S
            await keeper.end_unused()
            assert forker() == first
            begun.close()
        with room_for(2), pytest.raises(OSError, match="Too many open files"):
            await keeper.prepare(order().target.protocol)
        now += UNUSED_S - 1
        await keeper.end_unused()
        assert forker() == first
        now += 1
        for moments in (0, 1, 2, 3):
            with logging_in() as (theirs, service):
                async with anyio.create_task_group() as ending:
                    ending.start_soon(keeper.end_unused)
                    for _ in range(moments):
                        await anyio.lowlevel.checkpoint()
                    begun = await logged_in(keeper, service, theirs)
                begun.close()
            now += UNUSED_S
        assert forker() != first, "it has ended at some of them"
        await keeper.end_unused()
        with pytest.raises(AssertionError, match="no process"):
            forker()
