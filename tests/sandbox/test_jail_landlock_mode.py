"""Tests that promises 2 and 3 hold without namespaces too: no file of the user's is read, and no byte leaves.

As root the interpreter must be readable for others, because the jail runs as nobody there.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Exited, NetworkAttempt, OverLimit, Signalled
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import DEADLINE_S, drained, trying
from tests.sandbox.seen import Seen
from tests.support.elf_programs import LINKS, Link, compiled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
Attempt = Callable[..., Seen]
Free = Callable[..., Any]
_ELF = Policy(profile="elf")


def _start(**runtime: Any) -> Template:
    try:
        return Template.start(PythonRuntime.of_this_interpreter(**runtime), mode="landlock")
    except JailUnavailable as error:
        others_cannot_read_it = os.geteuid() == 0 and "EACCES" in error.what
        if os.environ.get("AILERON_MUST_JAIL") and not others_cannot_read_it:
            raise
        pytest.skip(f"no such jail here: {error}")


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """Start the template that all tests here share."""
    with _start(preload=("json", "zipfile")) as started:
        yield started


@pytest.fixture
def attempt(template: Template) -> Attempt:
    """Make one attempt in a jail without namespaces."""

    def make(name: str, *arguments: Any, policy: Policy | None = None) -> Seen:
        with trying(template, name, *arguments, policy=policy) as child:
            ending = child.wait(DEADLINE_S)
            said, log = drained(child.frames_out), drained(child.log)
        return Seen(json.loads(said) if said else None, ending, log.decode("utf-8", "replace"))

    return make


def test_the_layers_of_a_jail_without_namespaces_show_the_weaker_mode(template: Template) -> None:
    """The audit record thus shows that the jail had no namespaces."""
    layers = template.layers("python")

    assert "no-namespaces" in layers
    assert not [layer for layer in layers if layer.endswith("-ns")]
    assert any(layer.startswith("landlock:") for layer in layers)


# Files


@pytest.mark.parametrize("how", ["read", "listing"])
def test_without_namespaces_no_file_of_the_user_can_be_read(
    attempt: Attempt, free: Free, tmp_path: Path, how: str
) -> None:
    """Landlock answers EACCES for a planted file and its directory; the standard library can be read."""
    planted = tmp_path / "canary"
    planted.write_text("canary", encoding="utf-8")
    path = str(planted if how == "read" else tmp_path)

    assert "loot" in free(how, path)
    assert attempt(how, path).report == {"errno": "EACCES"}
    assert "loot" in attempt(how, os.__file__ if how == "read" else os.path.dirname(os.__file__)).report


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/proc/1/cmdline", "/proc/version"])
def test_without_namespaces_no_file_of_the_system_can_be_read(attempt: Attempt, path: str) -> None:
    """The program cannot read the password file, another process's memory or environment, or even its own."""
    assert attempt("read", path).report == {"errno": "EACCES"}


def test_the_hosts_memory_and_environment_cannot_be_read(attempt: Attempt, free: Free) -> None:
    """The victim is this very process; an ordinary process of the same user can read it."""
    assert "loot" in free("read", f"/proc/{os.getpid()}/status")
    for name in ("environ", "mem", "maps", "status", "cmdline"):
        assert attempt("read", f"/proc/{os.getpid()}/{name}").report == {"errno": "EACCES"}, name


@pytest.mark.parametrize("path", ["/tmp/x", "/dev/shm/x", "/x", os.__file__])
def test_without_namespaces_no_file_can_be_written(attempt: Attempt, path: str) -> None:
    """This mode has no scratch; /dev/null takes what is written to it."""
    assert attempt("write", path).report["errno"] in {"EACCES", "EROFS"}
    assert "loot" in attempt("write", "/dev/null").report


@pytest.mark.parametrize(
    "how", ["mkdir", "symlink", "rename", "unlink", "truncate", "utime", "chown", "setxattr", "link"]
)
def test_without_namespaces_metadata_of_the_users_files_cannot_be_changed(
    attempt: Attempt, tmp_path: Path, how: str
) -> None:
    """The filter refuses what Landlock does not cover: times, owners, attributes."""
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")
    tmp_path.chmod(0o777)
    mine.chmod(0o666)
    target = tmp_path if how in {"mkdir", "symlink"} else mine

    assert attempt("change", how, str(target)).report["errno"] in {"EACCES", "EPERM"}
    assert mine.read_text(encoding="utf-8") == "mine"


# Network


def test_without_namespaces_no_socket_can_be_made_and_no_listener_is_reached(attempt: Attempt, free: Free) -> None:
    """The loopback is the host's own here: an ordinary process reaches a listener on it, and the jailed program does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert free("connect_to", "127.0.0.1", port) == {"loot": True}
        listener.accept()[0].close()

        ending = attempt("connect_to", "127.0.0.1", port).ending

        assert isinstance(ending, NetworkAttempt)
        assert ending.destination == f"network:127.0.0.1:{port}"
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert attempt("all_sockets").report == {"loot": ["EACCES", "ok"]}


@pytest.mark.parametrize("how", ["connect", "sendto", "sendto, a pair", "sendmsg"])
def test_without_namespaces_every_way_to_the_network_is_refused(attempt: Attempt, how: str) -> None:
    """TCP, UDP, and one socket of a pair that claims to be an IP socket are tried."""
    assert isinstance(attempt("give_addresses", how).ending, NetworkAttempt)


# Processes


def test_without_namespaces_no_other_process_can_be_signalled_or_limited(attempt: Attempt, free: Free) -> None:
    """Signals, to processes and to single threads, and limits are tried on a process of the same user."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        try:
            assert free("signal_process", victim.pid) == {"loot": True}
            assert attempt("signal_process", victim.pid).report == {"errno": "EPERM"}
            assert attempt("processes_that_answer", [victim.pid, os.getpid(), 1]).report == {"loot": []}
            assert attempt("resource_of_other", victim.pid).report == {"errno": "EPERM"}
        finally:
            victim.communicate(b"\n")


def test_without_namespaces_no_process_can_be_started(attempt: Attempt) -> None:
    """Threads can still be started."""
    assert attempt("fork").report == {"errno": "EPERM"}
    assert attempt("execute").report["errno"] == "EPERM"
    assert attempt("threads", 4).report == {"loot": 4}


def test_tracing_the_host_kills_the_program(attempt: Attempt) -> None:
    """The probe calls ptrace on the host's process by its real pid."""
    number = 101 if os.uname().machine == "x86_64" else 117
    ending = attempt("raw", number, 16, os.getpid(), 0, 0).ending

    assert isinstance(ending, Signalled)
    assert ending.signal == signal.SIGSYS


def test_without_namespaces_a_program_that_needs_subprocesses_is_refused(template: Template) -> None:
    """The jail could not be sure to end all processes without a pid namespace."""
    with (
        pytest.raises(JailUnavailable, match="without namespaces"),
        trying(template, "facts", policy=Policy(profile="elf-subprocess")),
    ):
        pass


# Compiled programs


@pytest.mark.abuse_case("J13")
@pytest.mark.parametrize("link", LINKS)
def test_without_namespaces_a_compiled_program_is_refused(link: Link) -> None:
    """The exec would make the program dumpable, so that every process of the user could attach to it, and would undo that it
    ends with the template. With namespaces the same program runs.
    """
    fd = _sealed(compiled("probe", link))
    try:
        with pytest.raises(JailUnavailable, match="compiled program cannot run without namespaces") as refused:
            Template.start(ElfRuntime.of_program(fd), mode="landlock")
        assert "[sandbox]" in refused.value.fix

        with Template.start(ElfRuntime.of_program(fd)) as template, Child.open(template, fd, _ELF) as child:
            os.write(child.frames_in, b"facts")
            child.close_input()
            assert isinstance(child.wait(DEADLINE_S), Exited)
    finally:
        os.close(fd)


def _sealed(data: bytes) -> int:
    fd = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


# Limits and ends


def test_without_namespaces_memory_and_processor_time_are_limited(attempt: Attempt) -> None:
    """The limits are those of the mode with namespaces."""
    assert attempt("allocate", 512).report == {"errno": "MemoryError"}
    assert attempt("allocate", 16).report == {"loot": 16 << 20}
    assert isinstance(attempt("spin", policy=Policy(cpu_s=1)).ending, OverLimit)
    assert isinstance(attempt("facts").ending, Exited)


@pytest.mark.parametrize("who", ["template", "host"])
def test_a_child_ends_with_its_template(who: str) -> None:
    """The template is killed, or its host closes it, while a child sleeps."""
    template = _start(preload=("json",))
    with template, trying(template, "sleep", 3600) as child:

        def is_born() -> bool:
            template.pump()
            return child.is_born

        wait_until(is_born, "the child is born")
        process = psutil.Process(child.pid)
        everybody = [process, *psutil.Process(template.pid).children()]
        if who == "template":
            os.kill(template.pid, signal.SIGKILL)
        else:
            template.close()
        _, left = psutil.wait_procs(everybody, timeout=DEADLINE_S)
    assert left == []


def test_without_namespaces_a_real_time_signal_ends_only_the_child_that_gets_it(template: Template) -> None:
    """Any process of the user can send one, as there is no namespace; such signals have a number but no name."""
    with trying(template, "sleep", 3600) as child:
        wait_until(lambda: template.pump() or child.is_born, "the child is born")
        os.kill(child.pid, signal.SIGRTMIN + 6)
        ending = child.wait(DEADLINE_S)

    assert isinstance(ending, Signalled)
    assert ending.name == f"signal {signal.SIGRTMIN + 6}"


def test_only_packages_named_by_the_host_can_be_imported() -> None:
    """A package is found by its host path, and the module beside it is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # root's jail runs as another user
        package = Path(name, "named")
        package.mkdir(mode=0o755)
        (package / "__init__.py").write_text("", encoding="utf-8")
        Path(name, "beside.py").write_text("", encoding="utf-8")
        with (
            _start(packages={"named": package}) as template,
            trying(template, "import_names", "named", "beside") as child,
        ):
            child.wait(DEADLINE_S)
            assert json.loads(drained(child.frames_out)) == {"loot": [True, False]}
