"""Debian's nginx, which serves only clients with a certificate of one authority, over HTTP/2 and over HTTP/1.1 alone.

    with Nginx(directory, authority, client_ca_file) as nginx:
        ...
        assert nginx.log[-1].client == "CN=mira@example.test"

Its response is the client's name and the request as it saw them (`Served`), as JSON; `/redirect` leads to `/`. Verification is
per server, so requests without a certificate have another port. It runs as the user of the tests, in a directory of the test's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, program
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

__all__ = ["Nginx", "Served", "needs_nginx"]

_PROGRAM: Final = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_nginx = pytest.mark.skipif(
    _PROGRAM is None and "CI" not in os.environ, reason="nginx is not installed: apt-get install nginx-light"
)
"""A decorator that skips a test if nginx is missing. In CI it must be installed, or the test fails."""

_CONFIGURATION: Final = """\
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log info;
events {{}}
http {{
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    log_format told escape=json '{{"client":"$ssl_client_s_dn","protocol":"$server_protocol","connection":$connection,'
        '"target":"$request_uri","authorization":"$http_authorization","status":$status}}';
    access_log {directory}/access.log told;
    default_type application/json;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
{servers}
}}
"""
_SERVER: Final = """\
    server {{
        listen 127.0.0.1:{port} ssl{http2};
        ssl_client_certificate {client_ca};
        ssl_verify_client {verify};
        location = /redirect {{ return 302 /; }}
        location / {{
            return 200 '{{"client":"$ssl_client_s_dn","protocol":"$server_protocol","connection":$connection,\
"target":"$request_uri","authorization":"$http_authorization","status":200}}';
        }}
    }}
"""


class Served(msgspec.Struct, frozen=True):
    """A request as nginx saw it. `connection` is a number of nginx's own; `client` is empty without a certificate."""

    client: str
    protocol: str
    connection: int
    target: str
    authorization: str
    status: int


class Nginx(Server):
    """A running server: `port` speaks HTTP/2 and 1.1, `port_1` only 1.1, `open_port` requests no certificate.

    `verify` is the setting of the first two ports: `on`, or `optional_no_ca`, which accepts any certificate, or none.
    """

    def __init__(
        self, directory: Path, authority: Authority, client_ca: Path, host: str = "localhost", verify: str = "on"
    ) -> None:
        self.directory: Final = directory
        """Folder of the server's logs."""
        self.port, self.port_1, self.open_port = reserve_ports(3)
        key, certificate = authority.server_files(directory, host, "127.0.0.1")
        listening = ((self.port, " http2", verify), (self.port_1, "", verify), (self.open_port, " http2", "off"))
        servers = [
            _SERVER.format(port=port, http2=http2, verify=asks, client_ca=client_ca) for port, http2, asks in listening
        ]
        (directory / "nginx.conf").write_text(
            _CONFIGURATION.format(directory=directory, key=key, certificate=certificate, servers="".join(servers)),
            encoding="utf-8",
        )

    @property
    def log(self) -> list[Served]:
        """Every request in the log now; nginx logs a request after it has answered it (`logged`)."""
        lines = (self.directory / "access.log").read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Served) for line in lines]

    def logged(self, count: int) -> list[Served]:
        """Wait until at least `count` requests are in the log, and return all."""
        return wait_until(lambda: log if len(log := self.log) >= count else [], f"{count} requests are written down")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block."""
        assert _PROGRAM is not None, "nginx is not installed: apt-get install nginx-light"
        command = [_PROGRAM, "-p", self.directory, "-e", "error.log", "-c", "nginx.conf"]
        printed = self.directory / "nginx.out"
        with (
            printed.open("wb") as out,
            program(command, self.open_port, says=printed.read_text, stdout=out, stderr=subprocess.STDOUT),
        ):
            yield
