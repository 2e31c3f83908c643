"""A stranger's vault, with its own approver and a known passphrase, is put in the place of the one in use."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.approver import Approver, bound_home
from tests.support.home import PASSPHRASE, DaemonHome, word

pytestmark = pytest.mark.jail
OWN = "words of their own, all lower case"


@pytest.fixture(scope="module")
def stranger() -> Approver:
    """Return an approver who does not decide for the home."""
    return Approver()


@pytest.fixture(scope="module")
def foreign(stranger: Approver, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the stranger's vault, made in a home of its own."""
    home = DaemonHome(tmp_path_factory.mktemp("own"))
    try:
        home.must("POST", "/v1/vault/init", {"passphrase": OWN})
        answer = home.ask("POST", "/v1/approver", stranger.appointment(home, passphrase=OWN))
        assert answer.status == 200, answer.body
        return (home.path / "vault.json").read_bytes()
    finally:
        home.stop()


@pytest.fixture
def home(approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, a credential in use and the vault open."""
    with bound_home(approver) as made:
        yield made


def opened(home: DaemonHome, passphrase: str) -> str:
    """Unlock the vault and return the status or failure class."""
    return word(home.ask("POST", "/v1/vault/unlock", {"passphrase": passphrase}))


@pytest.mark.parametrize("locked_first", [False, True])
def test_a_foreign_vault_is_not_opened_and_stores_no_new_secret(
    home: DaemonHome, approver: Approver, stranger: Approver, foreign: bytes, locked_first: bool
) -> None:
    """The vault is replaced while a new value waits for approval: the stranger decides nothing, and the real vault
    works again.
    """
    value = base64.b64encode(b"the-new-value-of-it").decode()
    waiting = home.ask("PUT", "/v1/secrets/pw", {"value_base64": value}).body["approval_id"]
    file = Path(home.path / "vault.json")
    real = file.read_bytes()

    file.write_bytes(foreign)
    if locked_first:
        home.must("POST", "/v1/vault/lock")
    said = opened(home, OWN)
    status = home.must("GET", "/v1/approver")
    decided = stranger.decide(home, waiting)
    kept = file.read_bytes()
    file.write_bytes(real)
    again = opened(home, PASSPHRASE)

    assert said == "hash_mismatch"
    assert status.get("key_id") in (None, approver.key_id)
    assert word(decided) in ("unauthorized", "vault_locked")
    assert kept == foreign
    assert again == "ok"  # the controls: the real vault opens and decides
    assert approver.decide(home, waiting).body["status"] == "completed"
