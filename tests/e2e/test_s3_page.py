"""docs/how-to/use-s3.md, followed as it stands: its commands run in one shell, at moto with authentication on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Answers
from tests.e2e.test_tutorial import ROOT, Shell, home, script, shell, with_its_own
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
    """The test does every step, from the dialogue to the removal; the object is stored, and the key stays in the vault."""
    place = f"localhost:{moto.port}"
    shell.begin(place, ca_file=authority.ca_file)

    answers: list[tuple[str, Answers]] = [
        (
            "aileron add s3",
            [
                ("Server, such as s3.eu-central-1.amazonaws.com: ", place),
                ("Region, such as eu-central-1 [us-east-1]: ", REGION),
                ("Which actions? [1-3, Enter for 2] ", ""),
                ("Secret access key: ", moto.secret),
                ("Bucket, to try it (Enter to skip): ", BUCKET),
            ],
        ),
        ("aileron remove s3", [("[y/N] ", "y")]),
    ]
    said = ""
    text = with_its_own(
        PAGE, ("AKIAIOSFODNN7EXAMPLE", moto.key_id), (f"--host s3.{REGION}.amazonaws.com", f"--host {place}")
    )
    for step, printed in shell.follow(text, home, answers=answers):
        assert scan([home / ".aileron"], moto.secret.encode()) == {}, step
        said += printed

    (home / "secret-access-key.txt").write_text(moto.secret)
    list(shell.follow(script(text), home))
    assert "2026/may.csv" in shell.must(f"aileron run s3-list-objects bucket={BUCKET}")

    assert "2026/may.csv" in said
    assert "Bergen" in said
    assert moto.get(BUCKET, "drafts/june.txt") == b"Sales were up."
    assert scan([home / ".aileron"], b"Sales were up."), "the scan finds nothing that is there"
    assert moto.secret not in said
