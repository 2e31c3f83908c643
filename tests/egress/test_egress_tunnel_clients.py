"""The way out of a cell, used by agents' tools with nothing but HTTPS_PROXY: git, npm, pip, node.

Each fetches something from a server that only the proxy can resolve, and reports the reason if the host is not listed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aileron.model.names import HostPort
from tests.support.tunnels import DEADLINE_S, Proxy
from tests.support.upstream import Authority, Seen, Upstream, answer

HOST = "packages.example.test"
OTHER = "elsewhere.example.test"


class Files:
    """Served files, by their path."""

    def __init__(self) -> None:
        self.served: dict[str, bytes] = {}

    def __call__(self, seen: Seen) -> bytes:
        """Answer a request as the script of an upstream."""
        found = self.served.get(seen.target.partition("?")[0])
        if found is None:
            return answer(status="404 Not Found")
        return answer(found, f"Content-Type: {'text/html' if found.startswith(b'<') else 'application/octet-stream'}")


@pytest.fixture
def files() -> Files:
    """Return an empty set of files."""
    return Files()


@pytest.fixture
def upstream(authority: Authority, files: Files) -> Iterator[Upstream]:
    """Start a server of these files."""
    with Upstream(files, authority.server_context(HOST, OTHER)) as running:
        yield running


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[Proxy]:
    """Start a proxy for a cell that lists the server by one of its names."""
    private = [HostPort(name, upstream.port) for name in (HOST, OTHER)]
    with Proxy([f"{HOST}:{upstream.port}"], private) as running:
        running.resolver[HOST] = running.resolver[OTHER] = ["127.0.0.1"]
        yield running


def run(proxy: Proxy, authority: Authority, folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in an empty home, with the proxy and the authority in the environment."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    certificates = dict.fromkeys(
        ("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "npm_config_cafile"), str(authority.ca_file)
    )
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), f"http://127.0.0.1:{proxy.port}")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **certificates, **proxies}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=2 * DEADLINE_S
    )


def test_git_clones_over_https_through_a_tunnel(
    proxy: Proxy, upstream: Upstream, authority: Authority, files: Files, tmp_path: Path
) -> None:
    """The repository has one file; for an unlisted host name git shows the status of the proxy's response."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return run(proxy, authority, tmp_path, ["git", *words])

    git("init", "-q", "-b", "main", "made")
    (tmp_path / "made" / "file").write_text("content\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.test")
    for words in (("add", "file"), (*author, "commit", "-qm", "one"), ("update-server-info",)):
        assert git("-C", "made", *words).returncode == 0
    repository = tmp_path / "made" / ".git"
    files.served = {
        f"/r.git/{path.relative_to(repository)}": path.read_bytes() for path in repository.rglob("*") if path.is_file()
    }

    cloned = git("clone", "-q", f"https://{HOST}:{upstream.port}/r.git", "cloned")
    assert (cloned.returncode, (tmp_path / "cloned" / "file").read_text()) == (0, "content\n"), cloned.stderr
    refused = git("clone", "-q", f"https://{OTHER}:{upstream.port}/r.git", "refused")
    assert refused.returncode == 128
    assert "response 403" in refused.stderr


def test_pip_downloads_a_wheel_through_a_tunnel(
    proxy: Proxy, upstream: Upstream, authority: Authority, files: Files, tmp_path: Path
) -> None:
    """The wheel comes from an index; for an unlisted host name pip shows the whole reason when it retries."""
    wheel, name = io.BytesIO(), "probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        packed.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr("probe-1.0.dist-info/RECORD", "")
    files.served = {
        "/simple/probe/": f'<!DOCTYPE html><html><body><a href="/f/{name}">{name}</a></body></html>'.encode(),
        f"/f/{name}": wheel.getvalue(),
    }

    def pip(host: str) -> subprocess.CompletedProcess[str]:
        index = ("--index-url", f"https://{host}:{upstream.port}/simple/")
        options = ("--isolated", "--disable-pip-version-check", "--no-cache-dir", "--retries", "1")
        command = [sys.executable, "-m", "pip", "download", *options, *index, "--no-deps", "-d", "into", "probe"]
        return run(proxy, authority, tmp_path, [*command, "--cert", str(authority.ca_file)])

    got = pip(HOST)
    assert got.returncode == 0, got.stdout + got.stderr
    assert (tmp_path / "into" / name).read_bytes() == wheel.getvalue()
    refused = pip(OTHER)
    assert refused.returncode == 1
    assert f"ask the person to start it with --allow-host {OTHER}" in refused.stdout + refused.stderr


def test_npm_reads_its_registry_through_a_tunnel(
    proxy: Proxy, upstream: Upstream, authority: Authority, files: Files, tmp_path: Path
) -> None:
    """`npm view` shows the version of a package; for an unlisted host name npm shows the proxy's status."""
    digest = "sha512-" + base64.b64encode(hashlib.sha512(b"").digest()).decode()
    package = {
        "name": "probe",
        "dist-tags": {"latest": "1.2.3"},
        "versions": {
            "1.2.3": {"name": "probe", "version": "1.2.3", "dist": {"tarball": "https://x/", "integrity": digest}}
        },
    }
    files.served = {"/probe": json.dumps(package).encode()}

    def npm(host: str) -> subprocess.CompletedProcess[str]:
        options = ("--fetch-retries=0", "--no-update-notifier", f"--registry=https://{host}:{upstream.port}/")
        return run(proxy, authority, tmp_path, ["npm", "view", "probe", "version", *options])

    assert npm(HOST).stdout == "1.2.3\n"
    refused = npm(OTHER)
    assert refused.returncode != 0
    assert "403" in refused.stderr


def test_node_s_own_http_client_reaches_a_listed_host_through_a_tunnel(
    proxy: Proxy, upstream: Upstream, authority: Authority, files: Files, tmp_path: Path
) -> None:
    """The program uses `http.request` with CONNECT and TLS in that socket, as proxy agents do. A header field has the reason."""
    files.served = {"/": b"hello"}
    program = """
    const [host, port, proxy] = process.argv.slice(1);
    const asked = require("http").request({host: "127.0.0.1", port: proxy, method: "CONNECT", path: `${host}:${port}`});
    asked.on("connect", (answer, socket) => {
        if (answer.statusCode !== 200) { console.log(answer.statusCode, answer.headers["aileron-reason"]); process.exit(0); }
        require("https").get({host, port, socket, servername: host, agent: false}, (got) => {
            got.on("data", (data) => { console.log(String(data)); process.exit(0); });
        });
    });
    asked.end();
    """

    def node(host: str) -> str:
        command = ["node", "-e", program, host, str(upstream.port), str(proxy.port)]
        return run(proxy, authority, tmp_path, command).stdout.strip()

    assert node(HOST) == "hello"
    assert node(OTHER) == "403 host_not_listed"
