"""Real overlay for tests: mounted in namespaces of its own, changed by a program with the overlay as root, unmounted with them.

    aside = Aside(tmp_path)                      a project, a home, a session
    aside.project / "a" …                        what is there before
    aside.begin()                                prepare_overlay and Watch.begin, as `aileron launch` does
    seen = aside.agent([["write", "a", "x", 0o644], …])     runs in the overlay; what it sees at the end
    aside.finish()

One process forks the program, in namespaces of its own, for all tests: fifty kills of one list and sixty trees are tried, and an
interpreter, a shell, unshare(1) and mount(8) for each took longer than all else. test_changes_in_a_cell.py has real cells.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aileron.cell.changes import Watch, starts_of
from aileron.cell.kept import Kept
from aileron.cell.listing import Changes
from aileron.cell.overlay import prepare_overlay
from aileron.cell.start import Root

__all__ = ["SESSION", "Aside", "asked", "snapshot"]

SESSION = "ses-20260101-aside"
CLOCK_REALTIME_COARSE = 5  # linux/time.h
_DEADLINE_S = 60.0
_PROGRAM = r"""
import ctypes, json, os, shutil, socket, stat, sys

libc = ctypes.CDLL(None, use_errno=True)

def checked(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def enter(options, mounted):
    uid, gid = os.geteuid(), os.getegid()
    checked(libc.unshare(0x10000000 | 0x20000))  # CLONE_NEWUSER, CLONE_NEWNS
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open("/proc/self/" + name, "w") as file: file.write(line)
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(0x4000 | 1 << 18), None))  # MS_REC, MS_PRIVATE
    checked(libc.mount(b"overlay", os.fsencode(mounted), b"overlay", ctypes.c_ulong(0), os.fsencode(options)))
    os.chdir(mounted)
    os.chroot(".")  # a link to /etc, or out of the folder, leads to what is in the overlay, and never to the machine's own
    os.chdir("/")

def kind(path):
    status = os.lstat(path)
    return stat.S_IFMT(status.st_mode)

def gone(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)

def one(verb, path, *more):
    if verb == "write":
        if os.path.isdir(path) and not os.path.islink(path) or os.path.islink(path): gone(path)
        with open(path, "w") as file: file.write(more[0])
        os.chmod(path, more[1])
    elif verb == "folder":
        if not os.path.isdir(path) or os.path.islink(path):
            gone(path)
            os.mkdir(path)
    elif verb == "link":
        gone(path)
        os.symlink(more[0], path)
    elif verb == "remove": gone(path)
    elif verb == "move":
        if more[0] != path and not (more[0] + "/").startswith(path + "/") and not (path + "/").startswith(more[0] + "/"):
            gone(more[0])
            shutil.move(path, more[0])
    elif verb == "rename": os.rename(path, more[0])
    elif verb == "mode": os.chmod(path, more[0])
    elif verb == "times": os.utime(path, (more[0], more[0]))
    elif verb == "second name": os.link(path, more[0])
    elif verb == "pipe": os.mkfifo(path)
    elif verb == "device": os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
    elif verb == "attribute": os.setxattr(path, more[0], more[1].encode())
    elif verb == "deep":
        folder = os.open(path, os.O_RDONLY)
        for _ in range(more[0]):
            os.mkdir("down", dir_fd=folder)
            inner = os.open("down", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
    elif verb == "socket":
        with socket.socket(socket.AF_UNIX) as listener: listener.bind(path)

def agent(options, mounted, steps):
    enter(options, mounted)
    failed = []
    for number, step in enumerate(steps):
        try: one(*step)
        except OSError as error: failed.append([number, error.errno])
    return [failed, snapshot(".")]

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try: said = json.dumps(agent(*json.loads(line)))
        except OSError as error: said = json.dumps(str(error))
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""
_SNAPSHOT = r"""
def snapshot(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            what = stat.S_IFMT(status.st_mode)
            if what == stat.S_IFLNK: value = ["link", os.readlink(path)]
            elif what == stat.S_IFDIR: value = ["folder", stat.S_IMODE(status.st_mode) & 0o777]
            elif what == stat.S_IFREG:
                with open(path, "rb") as file: content = file.read().decode("latin-1")
                value = ["file", stat.S_IMODE(status.st_mode) & 0o777, content, status.st_mtime_ns]
            else: value = ["other"]
            found[os.path.relpath(path, root)] = value
    return found
"""
_own: dict[str, Any] = {"os": os, "stat": stat}
exec(_SNAPSHOT, _own)  # the same code here and in the overlay


def snapshot(root: Path) -> dict[str, Any]:
    """Return everything in a folder: kinds, permissions, contents, and the times of files."""
    found: dict[str, Any] = _own["snapshot"](str(root))
    return found


@functools.cache
def _server(program: str) -> subprocess.Popen[str]:
    server = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def asked(program: str, question: Any) -> Any:
    """Ask a program that answers each line of JSON with one. It is started once, and ends with this process."""
    server = _server(program)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    assert select.select([server.stdout], [], [], _DEADLINE_S)[0], "no answer"
    return json.loads(server.stdout.readline())


class Aside:
    """Project and what one session keeps aside of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.project = path / "project"
        self.project.mkdir()
        self.home = path / "home"
        self.home.mkdir(mode=0o700)
        self.kept = Kept(self.home / "cells" / SESSION)
        self._watch: Watch | None = None

    def begin(self) -> None:
        """Prepare overlay and watch as before an agent starts; the files in the project are older than the start."""
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= now:
            pass
        prepare_overlay(self.kept.path, str(self.project))
        self._watch = Watch.begin(starts_of([Root(str(self.project))], self.kept.path.parent), self.kept.path)

    def agent(self, steps: list[list[Any]]) -> dict[str, Any]:
        """Do the steps in the overlay. Return what is visible in it afterwards, and set `failed`: number of a step → errno."""
        mounted = self.path / "mounted"
        mounted.mkdir(exist_ok=True)
        # The names are those of pytest's folders: they have no character with a meaning in the options of a mount.
        options = f"lowerdir={self.project},upperdir={self.kept.upper},workdir={self.kept.work},userxattr"
        said = asked(_SNAPSHOT + _PROGRAM, [options, str(mounted), steps])
        if isinstance(said, str):
            pytest.fail(f"the overlay: {said}")
        failed, seen = said
        self.failed: dict[int, int] = dict(failed)
        found: dict[str, Any] = seen
        return found

    def finish(self) -> Changes:
        """Finish the watch as after the agent's end."""
        assert self._watch is not None
        return self._watch.finish()

    def session(self, steps: list[list[Any]]) -> Changes:
        """Do the steps in the overlay and finish the watch: all that an agent's session comes to. Return the changes."""
        self.agent(steps)
        return self.finish()

    def abandon(self) -> None:
        """Abandon the watch as if the agent's program could not be started."""
        assert self._watch is not None
        self._watch.abandon()
