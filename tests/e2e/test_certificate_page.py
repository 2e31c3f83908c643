"""docs/how-to/use-a-client-certificate.md, followed as it stands: its files and its commands, at Debian's nginx."""

from __future__ import annotations

from pathlib import Path

import pytest

from aileron.model.pem import pem_blocks
from tests.e2e.test_tutorial import ROOT, Shell, home, shell, with_its_own
from tests.support.canary import scan
from tests.support.client_certificates import ClientAuthority
from tests.support.nginx import Nginx, needs_nginx
from tests.support.upstream import Authority

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow, needs_nginx]
PAGE = ROOT / "docs" / "how-to" / "use-a-client-certificate.md"


def issue(clients: ClientAuthority, home: Path, name: str) -> bytes:
    """Write the reader's two files. Return a line of the private key."""
    *chain, (_, key) = pem_blocks(clients.issue(f"{name}@example.test"))
    (home / f"{name}.crt").write_bytes(b"".join(text for _, text in chain))
    (home / f"{name}.key").write_bytes(key)
    return key.splitlines()[1]


def test_every_step_of_the_certificate_page_works(
    shell: Shell, home: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The test does every step, to the renewal; the server saw both certificates, and no file has a key."""
    clients = ClientAuthority(tmp_path_factory.mktemp("clients"), has_intermediate=True)
    keys = [issue(clients, home, name) for name in ("client", "new")]
    (home / "bank").mkdir()
    with Nginx(tmp_path_factory.mktemp("nginx"), authority, clients.ca_file) as nginx:
        place = f"localhost:{nginx.port}"
        shell.begin(place, ca_file=authority.ca_file)
        list(shell.follow(with_its_own(PAGE, ("bank.example.com:443", place)), home))
        first, second = nginx.logged(2)

    assert "CN=client@example.test" in first.client
    assert "CN=new@example.test" in second.client
    assert (first.target, second.target) == ("/accounts", "/accounts")
    assert scan([home / ".aileron"], b"/accounts"), "the scan finds nothing that is there"
    assert scan([home / ".aileron"], *keys) == {}
