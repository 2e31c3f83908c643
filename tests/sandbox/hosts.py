"""Hosts in an odd state, each a process of its own: `python -m tests.sandbox.hosts NAME` prints its findings as JSON.

A host's state must not matter to its jails: its umask, limits, signals, terminal, descriptors, keyring.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyseccomp

from aileron_sandbox import kernel
from aileron_sandbox.ending import RefusedToStart
from aileron_sandbox.jail import MAX_CHILDREN, Child, Template, TemplateGone
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.template import privileges
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import memory_file, program
from tests.sandbox.processes import AHEAD, running, wait_forked_ahead

_DEADLINE_S = 20.0


def _start() -> Template:
    return Template.start(PythonRuntime.of_this_interpreter(preload=("json", "zipfile")))


def _open(template: Template, name: str, *arguments: Any) -> Child:
    fd = memory_file(program(name, *arguments))
    try:
        return Child.open(template, fd, Policy())
    finally:
        os.close(fd)


def _ask(template: Template, name: str, *arguments: Any) -> Any:
    with _open(template, name, *arguments) as child:
        child.wait(_DEADLINE_S)
        data = os.read(child.frames_out, 1 << 16)
        assert data, child.ending
        return json.loads(data)


@contextlib.contextmanager
def _ready(template: Template) -> Iterator[Child]:
    """Yield a child that has reached its own code and sleeps."""
    with _open(template, "sleep_with_scratch", 3600) as child:
        if not select.select([child.frames_out], [], [], _DEADLINE_S)[0]:
            raise TimeoutError("the child is not ready")
        template.pump()
        yield child


def _below(template: Template) -> list[psutil.Process]:
    """Return the template and its children, as the host counts them; the stub is not among them."""
    found: list[psutil.Process] = psutil.Process(template.pid).children(recursive=True)
    return found


def with_a_tight_umask() -> Any:
    """Start a jail under umask 077: one id builds the root, and another reads it."""
    os.umask(0o077)
    with _start() as template:
        return _ask(template, "typical_imports")


def with_open_descriptors_and_a_full_environment() -> Any:
    """Open two hundred inheritable descriptors and put a secret in the environment before the template starts."""
    os.environ["SECRET"] = "canary-in-the-environment"
    for _ in range(200):
        os.set_inheritable(os.open("/dev/null", os.O_RDWR), True)
    with _start() as template, _ready(template):
        stub = psutil.Process(template.pid)
        return {
            "inside": _ask(template, "descriptors")["loot"],
            "environment": _ask(template, "facts")["loot"]["environment"],
            "descriptors of the stub": len(os.listdir(f"/proc/{stub.pid}/fd")),
            "environment of the stub": stub.environ(),
        }


def with_descriptors_beyond_select() -> Any:
    """Use more descriptors than select(2) takes: it takes none over 1023."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else 4096, hard))
    for _ in range(1100):
        os.open("/dev/null", os.O_RDONLY)
    with _start() as template:
        return {"descriptor": template.fileno(), "loot": _ask(template, "facts")["loot"]["host"]}


def with_a_terminal() -> Any:
    """Press Ctrl-C on a terminal; report which process has the terminal and which one noticed the signal."""
    felt: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: felt.append(number))
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    with _start() as template, _ready(template) as child:
        wait_forked_ahead(template)
        terminals = [process.terminal() for process in [psutil.Process(template.pid), *_below(template)]]
        os.killpg(os.getpgrp(), signal.SIGINT)
        alive = _ask(template, "facts")["loot"]["host"]
        return {
            "felt by the host": len(felt),
            "still serving": alive,
            "child": child.ending is None,
            "terminals": terminals,
            "own terminal": psutil.Process().terminal(),
        }


def with_few_descriptors_for_the_template() -> Any:
    """Fill a template until it cannot take another request; it must say so and keep the children that it has."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (72, hard))  # the template moves descriptors to 64 and up
    template = _start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
    children: list[Child] = []
    with template, contextlib.ExitStack() as stack:
        refused = None
        while refused is None and len(children) < MAX_CHILDREN:
            child = stack.enter_context(_open(template, "sleep_with_scratch", 3600))
            select.select([child.frames_out], [], [], _DEADLINE_S)
            if not os.read(child.frames_out, 100):
                child.wait(_DEADLINE_S)
            template.pump()  # untaken descriptors count for the whole user, unix(7) ETOOMANYREFS
            refused = child.ending
            children.append(child)
        alive = [child for child in children if child.ending is None]
        for survivor in alive[: 1 + AHEAD]:  # children forked ahead may take the room first
            survivor.kill()
            survivor.wait(_DEADLINE_S)
        return {
            "refused": str(refused) if isinstance(refused, RefusedToStart) else None,
            "alive": len(alive),
            "processes": len(running(template)),
            "afterwards": _ask(template, "facts")["loot"]["host"],
        }


def without_a_descriptor_for_the_pidfd() -> Any:
    """Leave no descriptor for a child's pidfd: a child that cannot be killed must not run, so the host gives the template up."""
    with _start() as template:
        below = _below(template)
        child = _open(template, "sleep", 3600)
        filling = _filling()
        try:
            child.wait(_DEADLINE_S)
            said = "nothing"
        except TemplateGone as gone:
            said = str(gone)
        for fd in filling:
            os.close(fd)
        _, left = psutil.wait_procs(below, timeout=_DEADLINE_S)
        child.close()
        return {"said": said, "left": len(left)}


def with_ever_more_descriptors() -> Any:
    """Free no descriptor, then one, and so on until a template starts, then until a child does; report refusals and residue."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _start() as template:  # late imports happen here
        _ask(template, "facts")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    templates = _tried(_start)
    processes = len(psutil.Process().children(recursive=True))
    with _start() as template:
        _ask(template, "facts")
        fd = memory_file(program("facts"))
        children = _tried(lambda: Child.open(template, fd, Policy()))
        os.close(fd)
        return {
            "templates": templates,
            "processes": processes,
            "children": children,
            "afterwards": _ask(template, "facts")["loot"]["host"],
        }


def _tried(make: Callable[[], Template | Child]) -> list[tuple[str, int]]:
    """Return each refusal, with one descriptor more free than before: its words, and the descriptors that it left open."""
    refusals: list[tuple[str, int]] = []
    filling = _filling()
    while True:
        free = len(refusals)
        for _ in range(free):
            os.close(filling.pop())
        try:
            make().close()
            break
        except JailUnavailable as error:
            refilled = _filling()
            refusals.append((str(error), free - len(refilled)))
            filling += refilled
    for fd in filling:
        os.close(fd)
    return refusals


def _filling() -> list[int]:
    """Open /dev/null until no descriptor is free, and return the descriptors."""
    filling = []
    with contextlib.suppress(OSError):
        while True:
            filling.append(os.open("/dev/null", os.O_RDONLY))
    return filling


def with_a_key_in_its_keyring() -> Any:
    """Report whether a key of the session keyring is found before and after the step that leaves it, keyctl(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    keyctl, add_key = (250, 248) if os.uname().machine == "x86_64" else (219, 217)
    search, session = 10, ctypes.c_int(-3)
    kernel.join_new_session_keyring()

    def finds() -> str:
        found = libc.syscall(keyctl, search, session, b"user", b"aileron-canary", 0)
        return "found" if found > 0 else os.strerror(ctypes.get_errno())

    if libc.syscall(add_key, b"user", b"aileron-canary", b"x", ctypes.c_size_t(1), session) < 0:
        return {"unavailable": os.strerror(ctypes.get_errno())}
    before = finds()
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        privileges.leave_session()
        os.write(written, finds().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return {"before": before, "after": os.read(read, 100).decode()}


def where_unshare_is_refused() -> Any:
    """Start a template where unshare(2) is refused, like in a container with a default seccomp profile."""
    import pyseccomp

    profile = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    profile.add_rule(pyseccomp.ERRNO(1), "unshare")
    profile.load()
    return _why_not()


def where_there_are_no_user_namespaces() -> Any:
    """Start a template where user.max_user_namespaces is 0, in a user namespace of this test's own."""
    uid = os.getuid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    return _why_not()


def _why_not() -> Any:
    try:
        _start().close()
    except JailUnavailable as error:
        return {"what": error.what, "fix": error.fix, "left": len(psutil.Process().children(recursive=True))}
    return {"what": None}


def where_namespaces_run_out_and_come_back() -> Any:
    """Set the limit to 0 while the next child is forked ahead, and while one is requested; then raise it again."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {gid} 1")
    limit = Path("/proc/sys/user/max_user_namespaces")
    heard, log = os.pipe()
    os.dup2(log, 2)
    with _start() as template:
        waiting = wait_forked_ahead(template)
        limit.write_text("0")
        before = [_ask(template, "facts")["loot"]["host"] for _ in waiting]
        said = _until_quiet(heard)
        refused = set()
        for tenths_ms in range(0, 100, 2):  # some hit a child forked ahead that is about to fail
            time.sleep(tenths_ms / 10_000)
            with _open(template, "facts") as child:
                refused.add(str(child.wait(_DEADLINE_S)))
        _until_quiet(heard)  # a child on its way would take the next request along
        limit.write_text("1000")
        return {
            "before": before,
            "said": list(dict.fromkeys(said.decode().splitlines())),  # it may or may not try again between two requests
            "meanwhile": sorted(refused),
            "afterwards": _ask(template, "facts")["loot"]["host"],
            "waiting again": set(wait_forked_ahead(template)).isdisjoint(waiting),
        }


def _until_quiet(heard: int) -> bytes:
    """Read the log until a child was lost and no more is said: one message follows the other by at most 10 ms."""
    said = b""
    while select.select([heard], [], [], 0.5 if b"lost" in said else _DEADLINE_S)[0]:
        said += os.read(heard, 1 << 16)
    return said


def under_a_filter_that_asks_already() -> Any:
    """Start a template under another listener: a container runtime may run everything under one, and the kernel allows one."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    asks = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    asks.add_rule(pyseccomp.NOTIFY, "acct")  # no process here calls it
    with tempfile.TemporaryFile() as file:
        asks.export_bpf(file)
        file.seek(0)
        listener = kernel.Filter(file.read()).install_with_listener()
    with _start() as template:
        sockets = _ask(template, "all_sockets")
        with _open(template, "give_addresses", "getaddrinfo") as child:
            ending = type(child.wait(_DEADLINE_S)).__name__
            looked_up = json.loads(os.read(child.frames_out, 1 << 16))
        return {
            "layers": template.layers("python"),
            "sockets": sockets,
            "ending": ending,
            "looked up": looked_up,
            "open": listener > 0,
        }


def that_is_killed_at(stage: str) -> Any:
    """Reach `stage`, print the pids of stub, template and children, and wait to be killed there."""
    template = _start()
    if stage != "just started":
        wait_forked_ahead(template)
    with contextlib.ExitStack() as stack:
        if stage in {"asked", "running", "ended"}:
            child = stack.enter_context(_open(template, "sleep_with_scratch", 0 if stage == "ended" else 3600))
            if stage != "asked":
                select.select([child.frames_out], [], [], _DEADLINE_S)
            if stage == "ended":
                child.wait(_DEADLINE_S)
        print(json.dumps([process.pid for process in [psutil.Process(template.pid), *_below(template)]]), flush=True)
        time.sleep(3600)


def that_waits_to_be_killed() -> Any:
    """Start three sleeping children beside those forked ahead, print all pids, and wait to be killed."""
    template = _start()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(_ready(template))
        wait_forked_ahead(template)
        print(json.dumps([process.pid for process in [psutil.Process(template.pid), *_below(template)]]), flush=True)
        time.sleep(3600)


HOSTS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        with_a_tight_umask,
        with_open_descriptors_and_a_full_environment,
        with_a_terminal,
        with_few_descriptors_for_the_template,
        without_a_descriptor_for_the_pidfd,
        with_ever_more_descriptors,
        with_descriptors_beyond_select,
        with_a_key_in_its_keyring,
        where_unshare_is_refused,
        where_there_are_no_user_namespaces,
        where_namespaces_run_out_and_come_back,
        under_a_filter_that_asks_already,
        that_is_killed_at,
        that_waits_to_be_killed,
    )
}

if __name__ == "__main__":
    print(json.dumps(HOSTS[sys.argv[1]](*sys.argv[2:])))
