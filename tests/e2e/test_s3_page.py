"""docs/how-to/use-s3.md, followed as it stands: its commands run in one shell, at moto with authentication on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import ROOT, Command, Shell, home, missing, shell, steps
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


def test_the_page_does_what_it_says(shell: Shell, home: Path, moto: Moto, authority: Authority) -> None:
    """The test does every step, from the build to the record; the object is stored, and the key stays where it was put."""
    place = f"localhost:{moto.port}"
    (home / "connectors").symlink_to(ROOT / "connectors")
    (home / "secret-access-key.txt").write_text(moto.secret)
    for before in (
        f"aileron config add egress.private {place}",
        f"aileron config set egress.ca_file {authority.ca_file}",
        "export AILERON_VAULT_PASSPHRASE=correct-horse-battery-staple && aileron vault init",
    ):
        status, printed = shell.run(before)
        assert status == 0, printed

    text = PAGE.read_text(encoding="utf-8")
    assert f"--region {REGION} " in text
    for shown, real in (
        (f"--host s3.{REGION}.amazonaws.com:443", f"--host {place}"),
        ("AKIAIOSFODNN7EXAMPLE", moto.key_id),
    ):
        assert shown in text
        text = text.replace(shown, real)
    said = ""
    todo = list(steps(text))
    for step, after in zip(todo, [*todo[1:], None], strict=True):
        assert isinstance(step, Command)
        status, printed = shell.run(step.text)
        is_asked = isinstance(after, Command) and after.text == "echo $?"
        assert (status == 0) or is_asked, f"{step.text}: {printed}"
        assert (line := missing(step.shown, printed)) is None, f"{step.text}: no {line!r} in {printed}"
        said += printed

    assert "2026/may.csv" in said
    assert "Bergen" in said
    assert moto.get(BUCKET, "drafts/june.txt") == b"Sales were up."
    assert scan([home / ".aileron"], b"Sales were up."), "the scan finds nothing that is there"
    assert scan([home / ".aileron"], moto.secret.encode()) == {}
    assert moto.secret not in said
