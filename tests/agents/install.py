"""The five agents as their makers publish them, in the versions of pins/, installed once into a cache.

Every archive is checked against a hash in pins/. pi's own dependencies are not all published, so it is unpacked
beside them: its archive bundles all but `quickjs-wasi` and `jiti`, which loads extensions. The cache is of kind
`agents`, about 1.7 GB.

    $ python -m tests.agents.install            # prints the directory to put first into PATH

Not here: where node, npm and the cache come from (support/npm.py), what the agents are made to do (test_agents.py).
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.support.npm import NotInstalled, cached, npm, put_packages, put_program, run

__all__ = ["AGENTS", "NotInstalled", "installed"]

_PINS: Final = Path(__file__).parent / "pins"
_PI: Final[dict[str, str]] = json.loads((_PINS / "pi.json").read_text(encoding="utf-8"))
_PI_WANTED: Final = f"{_PI['name']}@{_PI['version']}"
_FORM: Final = 1
"""Form of the cache; raised when something else is made from the same pins."""

_PROGRAMS: Final = {
    "claude": "node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    "codex": "node_modules/@openai/codex/bin/codex.js",
    "opencode": "node_modules/opencode-ai/bin/opencode.exe",
    "goose": "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
    "pi": f"node_modules/{_PI['name']}/dist/bundle/cli.js",
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
    "pi": _PI["version"],
}
"""Each agent and its version, in the order of the pages."""

_VERSION_S: Final = 60.0


def installed() -> Path:
    """Return the directory with `claude`, `codex`, `opencode`, `goose`, `pi` and `node`; install it first if needed,
    or NotInstalled.
    """
    return cached("agents", _PINS, form=_FORM, build=_build) / "bin"


def _build(at: Path) -> None:
    """Install node, then the agents, then one directory with all of them, and check that each starts."""
    print("installing node and five agents, once: 1.7 GB, half a minute on a fast line", file=sys.stderr)
    node = put_packages(at, _PINS, "--ignore-scripts=false", "--include=optional")
    _unpack_pi(at)
    shutil.rmtree(at / "npm-cache")
    for name, target in {"node": str(node), **_PROGRAMS}.items():
        put_program(at, name, target)
    for agent, version in AGENTS.items():
        _check_version(at, agent, version)


def _unpack_pi(at: Path) -> None:
    """Unpack pi where npm would put it, so that it finds `quickjs-wasi` and `jiti` beside itself."""
    npm(at, "pack", _PI_WANTED, f"--pack-destination={at}")
    (archive,) = at.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != _PI["sha512"]:
        raise NotInstalled(f"{_PI_WANTED}: the archive's sha512 is {found}, {_PI['sha512']} was pinned")
    place = at / "node_modules" / _PI["name"]
    with tempfile.TemporaryDirectory(dir=at) as unpacked, tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # not in Debian 12's Python; the bytes are known either way
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(unpacked)
        place.parent.mkdir(parents=True, exist_ok=True)
        (Path(unpacked) / "package").rename(place)
    archive.unlink()


def _check_version(at: Path, agent: str, version: str) -> None:
    """Check that the agent starts and has the requested version."""
    with tempfile.TemporaryDirectory() as home:
        said = run(at, [str(at / "bin" / agent), "--version"], _VERSION_S, HOME=home, PI_OFFLINE="1")
    if version not in said:
        raise NotInstalled(f"{agent} --version said {said.strip()!r}, {version} was installed")


if __name__ == "__main__":
    try:
        print(installed())
    except NotInstalled as problem:
        sys.exit(f"an agent could not be installed: {problem}")
