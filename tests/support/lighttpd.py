"""lighttpd as Debian has it, in a directory of the test: static files that HTTP Digest protects, with MD5 and with SHA-256.

>>> with Lighttpd(directory, "ann", "a password") as server:      # doctest: +SKIP
...     server.port, server.requests()

Without TLS. `requests` are the lines of its access log: status, user and request line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, program

__all__ = ["REALMS", "Lighttpd"]

REALMS: Final = {
    "md5": "the realm of MD5",
    "sha": "the realm of SHA-256",
    "hashed": "names are hashed",
    "both": "either",
}
"""Realms by the first segment of a path; each has a file `page` that names it."""
_PROGRAM: Final = shutil.which("lighttpd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_CONFIG: Final = """
server.modules = ("mod_auth", "mod_authn_file", "mod_accesslog")
server.document-root = "{here}/www"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{here}/error.log"
accesslog.filename = "{here}/access.log"
accesslog.format = "%s %u %r"
auth.backend = "htdigest"
auth.backend.htdigest.userfile = "{here}/users"
auth.require = (
  "/md5/" => ("method" => "digest", "realm" => "{md5}", "require" => "valid-user", "algorithm" => "MD5"),
  "/sha/" => ("method" => "digest", "realm" => "{sha}", "require" => "valid-user", "algorithm" => "SHA-256"),
  "/both/" => ("method" => "digest", "realm" => "{both}", "require" => "valid-user", "algorithm" => "MD5|SHA-256"),
  "/hashed/" => ("method" => "digest", "realm" => "{hashed}", "require" => "valid-user", "algorithm" => "SHA-256",
                 "userhash" => "enable"),
  "/basic/" => ("method" => "basic", "realm" => "{md5}", "require" => "valid-user")
)
"""


class Lighttpd(Server):
    """A running server with one user. Skip the test if the program is not installed; fail under CI."""

    def __init__(self, directory: Path, user: str, password: str) -> None:
        if _PROGRAM is None:
            assert not os.environ.get("CI"), "no lighttpd: apt-get install lighttpd"
            pytest.skip("needs lighttpd")
        self._program: Final = _PROGRAM
        self._here: Final = directory
        (self.port,) = reserve_ports(1)
        for path, realm in REALMS.items():
            (directory / "www" / path).mkdir(parents=True)
            (directory / "www" / path / "page").write_text(realm)
        lines = []
        for path, realm in REALMS.items():
            function = "md5" if path == "md5" else "sha256"
            key = hashlib.new(function, f"{user}:{realm}:{password}".encode()).hexdigest()
            name = hashlib.new(function, f"{user}:{realm}".encode()).hexdigest()
            lines.append(f"{user}:{realm}:{key}:{name}" if path == "hashed" else f"{user}:{realm}:{key}")
        (directory / "users").write_text("\n".join([*lines, ""]))
        (directory / "lighttpd.conf").write_text(_CONFIG.format(here=directory, port=self.port, **REALMS))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block."""
        command, log = [self._program, "-D", "-f", self._here / "lighttpd.conf"], self._here / "error.log"
        end = subprocess.Popen.terminate
        with program(command, self.port, says=log.read_text, end=end, stderr=subprocess.DEVNULL):
            yield

    def requests(self) -> list[str]:
        """Return the requests answered so far. The server writes them when it ends."""
        return (self._here / "access.log").read_text().splitlines()
