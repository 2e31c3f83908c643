"""Tests of compiled programs in the jail: what they are given, that they run no other code, that their family ends with them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, Exited, NetworkAttempt, RefusedToStart, Signalled
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import drained, memory_file, needs_groups
from tests.support.elf_programs import LINKS, Link, compiled
from tests.support.zipped import zipped

pytestmark = pytest.mark.jail
ELF = Policy(profile="elf")
FORKING = Policy(profile="elf-subprocess")
DEADLINE_S = 20.0
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
FAMILIES = {"double-fork": 1, "stop": 1, "orphans": 1, "hoard": 1, "forks": 15}
"""Ways for a program to leave processes behind, each with the least number of them."""

_ATTACH: Final = """
import ctypes, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, lost with the id
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def errno_of(attempt, path):
    try:
        attempt(path)
    except OSError as error:
        return error.errno
    return 0
def attempts(pid, address):
    here = ctypes.create_string_buffer(8)
    ours, theirs = Vector(ctypes.addressof(here), 8), Vector(address, 8)
    read = libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    read = 0 if read == 8 else ctypes.get_errno()
    memory, files = errno_of(open, f"/proc/{pid}/mem"), errno_of(os.listdir, f"/proc/{pid}/fd")
    found = {"mem": memory, "fd": files, "read": read}
    attached = libc.ptrace(0x4206, pid, None, None)  # PTRACE_SEIZE
    return {**found, "attach": 0 if attached == 0 else ctypes.get_errno()}
marker = ctypes.create_string_buffer(b"marker!", 8)
own = os.fork()
if own == 0:
    signal.pause()
    os._exit(0)
print(json.dumps({"jailed": attempts(int(sys.argv[1]), 0x400000), "own": attempts(own, ctypes.addressof(marker))}))
os.kill(own, 9)
os.waitpid(own, 0)
"""
"""Script of a process of the same user (of nobody if that is root): it tries to attach to the jailed process, and to a child of
its own, whose memory it knows to be laid out like its own.
"""
Told = tuple[list[str], Ending]


def _sealed(data: bytes) -> int:
    fd = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


@contextlib.contextmanager
def _template(data: bytes) -> Iterator[tuple[Template, int]]:
    program = _sealed(data)
    try:
        with Template.start(ElfRuntime.of_program(program)) as started:
            yield started, program
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")
    finally:
        os.close(program)


@pytest.fixture(scope="module", params=LINKS)
def link(request: pytest.FixtureRequest) -> Link:
    """Return how the program is linked."""
    kind: Link = request.param
    return kind


@pytest.fixture(scope="module")
def probe(link: Link) -> Iterator[tuple[Template, int]]:
    """Start the warm process for tests/support/elf/probe.c; yield it with the program."""
    with _template(compiled("probe", link)) as started:
        yield started


@pytest.fixture
def told(probe: tuple[Template, int]) -> Callable[..., Told]:
    """Let the probe do one thing and leave. Return its output and its ending."""

    def tell(word: str, policy: Policy = ELF) -> Told:
        template, program = probe
        with _child(template, program, word, policy) as child:
            child.close_input()
            ending = child.wait(DEADLINE_S)
            return drained(child.frames_out).decode().split("\n")[:-1], ending

    return tell


@contextlib.contextmanager
def _child(template: Template, program: int, word: str, policy: Policy) -> Iterator[Child]:
    with Child.open(template, program, policy) as child:
        os.write(child.frames_in, word.encode())
        yield child


def _family(template: Template, child: Child) -> list[psutil.Process]:
    """Return the child and all processes below it, once it has written that they exist."""
    said = ""
    while "ready" not in said:
        assert select.select([child.frames_out], [], [], DEADLINE_S)[0], f"only {said!r} came"
        said += drained(child.frames_out).decode()
    while not child.is_born:
        assert select.select([template], [], [], DEADLINE_S)[0]
        template.pump()
    first = psutil.Process(child.pid)
    return [first, *first.children(recursive=True)]


# What it is given


def test_a_compiled_program_finds_no_other_process_and_no_environment_in_its_jail(told: Callable[..., Told]) -> None:
    """The program has five descriptors, one argument, no environment, an unprivileged id and pid 1."""
    facts, ending = told("facts")

    assert isinstance(ending, Exited)
    assert facts == [
        *(f"open {fd}" for fd in range(5)),
        "ids 1 0 1000 1000",
        "arguments 1 connector",
        "environment 0",
        "ignored 0",
        "here /w/tmp",
        "ready",
    ]


def test_a_compiled_programs_jail_holds_only_devices_the_program_and_its_libraries(
    told: Callable[..., Told], link: Link, probe: tuple[Template, int]
) -> None:
    """A static program has no library; each library of a dynamic one is a file of its own."""
    found, _ = told("list")

    libraries = [str(path) for path in ElfRuntime.of_program(probe[1]).libraries]
    assert len(libraries) == (0 if link == "static" else len(set(libraries)))
    devices = [f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero")]
    assert sorted(found[:-1]) == sorted(["/tmp", "/app/connector", *devices, *libraries])


def test_a_compiled_programs_memory_limit_does_not_include_the_jails_own_memory(told: Callable[..., Told]) -> None:
    """Python's jail counts 8 MiB of its own first; here the limit is all the program's, and it gets no more."""
    limits, _ = told("limits", Policy(profile="elf", memory_bytes=16 << 20))
    (eaten, *_), ending = told("eat", Policy(profile="elf", memory_bytes=16 << 20))

    assert f"data {16 << 20}" in limits
    assert 8 <= int(eaten.removeprefix("eaten ")) < 16
    assert isinstance(ending, Exited)


def test_a_compiled_program_starts_with_the_smallest_memory_limit(told: Callable[..., Told]) -> None:
    """The interpreter that becomes the program uses more than that, but the limit applies only to the program."""
    said, ending = told("facts", Policy(profile="elf", memory_bytes=1 << 20))

    assert isinstance(ending, Exited), ending
    assert said[-1] == "ready"


def test_threads_of_a_compiled_program_can_be_cancelled(told: Callable[..., Told]) -> None:
    """glibc loads a library for it that no program names."""
    assert told("cancel")[0] == ["thread 0", "cancel 0", "join 0", "ready"]


# What it becomes


@pytest.mark.abuse_case("F6")
def test_only_a_sealed_program_is_executed(probe: tuple[Template, int], link: Link) -> None:
    """A file that could be written after it was hashed is refused before the start; a sealed one runs."""
    template, sealed = probe
    open_for_all = memory_file(compiled("probe", link))
    try:
        with pytest.raises(ValueError, match="sealed memory file"):
            Child.open(template, open_for_all, ELF)
        with open("/bin/true", "rb") as file, pytest.raises(ValueError, match="sealed memory file"):
            Child.open(template, file.fileno(), ELF)
        with _child(template, sealed, "facts", ELF) as child:
            child.close_input()
            assert isinstance(child.wait(DEADLINE_S), Exited)
    finally:
        os.close(open_for_all)


def test_a_template_refuses_a_program_of_another_kind_than_its_own(
    probe: tuple[Template, int], template: Template
) -> None:
    """A template for Python runs no compiled program, and one for compiled programs no Python."""
    elf_template, program = probe

    with pytest.raises(ValueError, match="'python' is not for programs of this template"):
        Child.open(elf_template, program, Policy())
    with pytest.raises(ValueError, match="'elf' is not for programs of this template"):
        Child.open(template, program, ELF)


def test_a_program_that_the_kernel_rejects_is_reported(link: Link, probe: tuple[Template, int]) -> None:
    """The file looks valid until the exec: none of its code runs, and the host learns the reason."""
    damaged = bytearray(compiled("probe", link))
    at, size, count = struct.unpack_from("<Q", damaged, 32)[0], 56, struct.unpack_from("<H", damaged, 56)[0]
    for segment in range(count):
        kind = struct.unpack_from("<I", damaged, at + segment * size)[0]
        if kind == 3:  # PT_INTERP: its length now ends before the NUL
            struct.pack_into("<Q", damaged, at + segment * size + 32, 3)
        elif link == "static" and kind == 1:  # PT_LOAD, none of which can be where it says
            struct.pack_into("<Q", damaged, at + segment * size + 16, 1 << 62)
    program = _sealed(bytes(damaged))
    try:
        with Child.open(probe[0], program, ELF) as child:
            ending = child.wait(DEADLINE_S)
    finally:
        os.close(program)

    if link == "dynamic":
        assert ending == RefusedToStart("exec", errno.ENOEXEC)
    else:  # found only after the old program was given up, execve(2)
        assert isinstance(ending, Signalled)
        assert ending.signal in {signal.SIGSEGV, signal.SIGKILL}


@pytest.mark.abuse_case("J7")
def test_a_compiled_program_cannot_execute_code_that_it_writes(told: Callable[..., Told]) -> None:
    """The program cannot execute what it writes, write in its root, or even read its own file."""
    said, _ = told("become-another")

    assert said[:-1] == [
        f"scratch {errno.EACCES}",
        f"program {errno.EACCES}",
        f"beside {errno.EROFS}",
        f"unlink {errno.EROFS}",
        f"executable-memory {errno.EPERM}",
        f"write {errno.EROFS}",
    ]


@pytest.mark.parametrize("policy", [ELF, pytest.param(FORKING, marks=needs_groups)], ids=lambda policy: policy.profile)
def test_an_attempt_to_connect_ends_a_compiled_program_and_is_reported(
    told: Callable[..., Told], probe: tuple[Template, int], policy: Policy
) -> None:
    """The address is named where the template can read the program's memory. A program that does not connect exits by itself."""
    said, ending = told("connect", policy)

    assert isinstance(ending, NetworkAttempt)
    is_hidden = os.getuid() != 0 and "private-memory" in probe[0].layers("elf")
    assert ending.destination == ("network:unknown" if is_hidden else "network:93.184.216.34:443")
    assert said == ["socket 0"]
    assert isinstance(told("facts", policy)[1], Exited)


@pytest.mark.parametrize("policy", [ELF, pytest.param(FORKING, marks=needs_groups)], ids=lambda policy: policy.profile)
def test_no_other_process_of_the_user_can_attach_to_the_program(probe: tuple[Template, int], policy: Policy) -> None:
    """An attached process could impersonate the program. The same attempt succeeds on an ordinary process of the user,
    and on the jailed one where the layer is not listed, before Linux 6.3.
    """
    template, program = probe
    with _child(template, program, "stay", policy) as child:
        first, *_ = _family(template, child)
        attempts = json.loads(
            subprocess.run(
                [sys.executable, "-I", "-c", _ATTACH, str(first.pid)],
                capture_output=True,
                timeout=DEADLINE_S,
                check=True,
            ).stdout
        )

    assert attempts["own"] == {"attach": 0, "mem": 0, "fd": 0, "read": 0}
    if "private-memory" in template.layers("elf"):
        assert attempts["jailed"] == {
            "attach": errno.EPERM,
            "mem": errno.EACCES,
            "fd": errno.EACCES,
            "read": errno.EPERM,
        }
    else:
        assert attempts["jailed"]["attach"] == 0


# Its family


@needs_groups
def test_only_the_subprocess_profile_allows_a_fork(told: Callable[..., Told]) -> None:
    """fork fails with EPERM in the profile without subprocesses, and works in the one with them."""
    assert told("fork")[0][0] == f"fork {errno.EPERM}"
    assert "fork 0" in told("fork", FORKING)[0]


@needs_groups
def test_a_compiled_program_can_execute_itself_again(told: Callable[..., Told]) -> None:
    """The jail shows the program to itself as /app/connector."""
    assert told("exec-itself")[0][0] == "again 1"
    assert told("exec-itself", FORKING)[0][0] == "again 1"


@needs_groups
def test_the_number_of_a_programs_processes_is_bounded(told: Callable[..., Told]) -> None:
    """The policy's number includes the first process; the next fork fails with EAGAIN."""
    said, _ = told("forks", FORKING)

    assert said[0] == f"forked {FORKING.processes - 1} {errno.EAGAIN}"


@pytest.mark.abuse_case("L4")
@needs_groups
@pytest.mark.parametrize("end", ["leaves", "killed", "template-closed"])
@pytest.mark.parametrize("word", FAMILIES)
def test_all_processes_of_a_program_end_with_the_first_one(word: str, end: str, link: Link) -> None:
    """Daemonized, stopped and orphaned processes are gone when the end is reported, whatever ended the first."""
    with _template(compiled("probe", link)) as (template, program), _child(template, program, word, FORKING) as child:
        family = _family(template, child)
        assert len(family) > FAMILIES[word]
        if end == "leaves":
            child.close_input()
        elif end == "killed":
            child.kill()
        else:
            template.close()
        ending = child.wait(DEADLINE_S) if end != "template-closed" else None

        assert [process for process in family if process.is_running()] == []
        assert ending is None or isinstance(ending, Exited if end == "leaves" else Signalled)


@needs_groups
def test_a_zip_application_can_fork_if_its_policy_allows(template: Template) -> None:
    """fork fails with EPERM in the interpreter's jail without the profile; with it the child ends with its parent."""
    forks = zipped(
        "import os, signal\n"
        "try:\n    pid = os.fork()\n"
        "except OSError as error:\n    os.write(4, b'%d' % error.errno)\n"
        "else:\n"
        "    if pid == 0:\n        os.setsid()\n        signal.pause()\n"
        "    os.write(4, b'ready')\n    os.read(3, 1)\n"
    )
    program = memory_file(forks)
    runtime = PythonRuntime.of_this_interpreter(preload=("json",))
    try:
        with Child.open(template, program, Policy()) as child:
            child.wait(DEADLINE_S)
            refused = drained(child.frames_out).decode()
        with Template.start(runtime, memory_by="groups") as grouped, Child.open(grouped, program, FORKING) as child:
            family = _family(grouped, child)
            child.close_input()
            ending = child.wait(DEADLINE_S)
    finally:
        os.close(program)

    assert refused == str(errno.EPERM)
    assert isinstance(ending, Exited)
    assert len(family) == 2
    assert [process for process in family if process.is_running()] == []


def test_the_run_command_runs_a_compiled_program(link: Link, tmp_path: Path) -> None:
    """The program's exit status is the command's; a program that cannot run here is refused with the reason."""

    def run(data: bytes) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program").write_bytes(data)
        command = [sys.executable, "-m", "aileron_sandbox", "run", str(tmp_path / "program")]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    told_nothing = run(compiled("probe", link))
    cut_short = run(compiled("probe", link)[:100])

    assert (told_nothing.returncode, told_nothing.stderr) == (64, "")  # exit status of probe.c if it gets no word
    assert (cut_short.returncode, "truncated" in cut_short.stderr) == (1, True)
