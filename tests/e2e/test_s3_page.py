"""docs/how-to/use-s3.md, followed as it stands: its commands run in one shell, at moto with authentication on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import ROOT, Shell, home, shell, with_its_own
from tests.support.canary import scan
from tests.support.moto import REGION, Moto
from tests.support.upstream import Authority

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE = ROOT / "docs" / "how-to" / "use-s3.md"
BUCKET = "acme-reports"


@pytest.fixture
def moto(authority: Authority) -> Iterator[Moto]:
    """Start a server with the reader's account."""
    with Moto(authority) as server:
        server.bucket(BUCKET)
        server.put(BUCKET, "2026/may.csv", b"city,sales\nBergen,1\n")
        yield server


def test_every_step_of_the_s3_page_works(shell: Shell, home: Path, moto: Moto, authority: Authority) -> None:
    """The test does every step, from the build to the record; the object is stored, and the key stays where it was put."""
    place = f"localhost:{moto.port}"
    (home / "connectors").symlink_to(ROOT / "connectors")
    (home / "secret-access-key.txt").write_text(moto.secret)
    shell.begin(place, ca_file=authority.ca_file)

    text = with_its_own(
        PAGE,
        (f"--host s3.{REGION}.amazonaws.com:443", f"--host {place}"),
        ("AKIAIOSFODNN7EXAMPLE", moto.key_id),
    )
    assert f"--region {REGION} " in text
    said = "".join(printed for _step, printed in shell.follow(text, home))

    assert "2026/may.csv" in said
    assert "Bergen" in said
    assert moto.get(BUCKET, "drafts/june.txt") == b"Sales were up."
    assert scan([home / ".aileron"], b"Sales were up."), "the scan finds nothing that is there"
    assert scan([home / ".aileron"], moto.secret.encode()) == {}
    assert moto.secret not in said
