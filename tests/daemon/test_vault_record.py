"""How far the vault has come, across restarts: an older file is found, a copy is put back on purpose, nobody's word is undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.audit import events
from aileron.audit.checkpoints import VaultCheckpoint, vault_checkpoints
from aileron.audit.log import Audit
from aileron.client import Answer
from aileron.ledger import Ledger
from tests.support.approver import Approver, bound_home
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home, word
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
NEW = "another horse battery"
_DEADLINE_S = 20.0


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """A home with an open vault, and nobody who signs."""
    with daemon_home() as made:
        made.unlock()
        yield made


@pytest.fixture
def signed(approver: Approver) -> Iterator[DaemonHome]:
    """A home with an approver, a credential that serves the probe, the vault open."""
    with bound_home(approver) as made:
        yield made


def unlocked(home: DaemonHome, passphrase: str = PASSPHRASE) -> Answer:
    """What unlocking says."""
    return home.ask("POST", "/v1/vault/unlock", {"passphrase": passphrase})


def store(home: DaemonHome, name: str) -> None:
    """One more secret, of no use."""
    home.must("PUT", f"/v1/secrets/{name}", {"value_base64": "c29tZSB2YWx1ZQ=="})


def restored(home: DaemonHome, file: Path, passphrase: str = PASSPHRASE) -> Answer:
    """What restoring says."""
    return home.ask("POST", "/v1/vault/restore", {"file": str(file), "passphrase": passphrase}, wait_s=30)


def names(home: DaemonHome) -> list[str]:
    """What is stored."""
    return [entry["name"] for entry in home.must("GET", "/v1/secrets")["secrets"]]


def recorded(home: DaemonHome, kind: str) -> list[dict[str, Any]]:
    """The events of a type, newest first."""
    found: list[dict[str, Any]] = home.must("GET", f"/v1/audit?type={kind}")["events"]
    return found


def generation_on_record(home: DaemonHome, least: int) -> None:
    """Until the record says that the vault has come so far: it is written down in the background."""
    wait_until(
        lambda: any(event["generation"] >= least for event in recorded(home, "vault.changed")),
        f"generation {least} is on record",
        seen=lambda: recorded(home, "vault.changed"),
    )


@pytest.mark.parametrize("end", [DaemonHome.stop, DaemonHome.kill])
def test_an_older_file_in_its_place_is_found_by_the_next_daemon(home: DaemonHome, tmp_path: Path, end: Any) -> None:
    """Whole, sealed, with the right passphrase, and of before: refused with the way out. The newest opens, before and after."""
    file, old = home.path / "vault.json", tmp_path / "old.json"
    shutil.copy(file, old)
    store(home, "later")
    generation_on_record(home, home.must("GET", "/v1/vault/status")["generation"])
    newest = file.read_bytes()
    end(home)
    file.write_bytes(old.read_bytes())

    refused = unlocked(home)

    assert word(refused) == "hash_mismatch"
    assert "replaced by an older copy" in refused.body["error"]["message"]
    assert f"aileron vault restore {file}" in refused.body["error"]["message"]
    assert home.must("GET", "/v1/vault/status")["locked"]
    assert recorded(home, "vault.unlock_failed")[0]["class"] == "hash_mismatch"
    end(home)
    file.write_bytes(newest)
    assert word(unlocked(home)) == "ok"
    assert names(home) == ["later", "pw"]


def test_what_a_killed_daemon_did_not_put_on_record_is_newer_and_opens(home: DaemonHome) -> None:
    """The vault is written first; each change is on disk whatever the record says."""
    for number in range(5):
        store(home, f"later-{number}")
    home.kill()
    assert word(unlocked(home)) == "ok"
    assert len(names(home)) == 6
    assert recorded(home, "vault.unlocked")[0]["way"] == "passphrase"


def test_a_backup_is_restored_on_purpose_and_only_then_counts(home: DaemonHome, tmp_path: Path) -> None:
    """Put back it is locked and holds what it held; what was there lies beside it, and is older from now on."""
    copy, file = tmp_path / "copy", home.path / "vault.json"
    home.must("POST", "/v1/vault/backup", {"file": str(copy)})
    store(home, "later")
    newest = file.read_bytes()

    answer = restored(home, copy)

    assert word(answer) == "ok", answer.body
    assert (answer.body["locked"], Path(answer.body["aside"]).read_bytes()) == (True, newest)
    assert recorded(home, "vault.locked")[0]["reason"] == "restored"
    (event,) = recorded(home, "vault.restored")
    assert (event["file"], event["aside"]) == (str(copy), answer.body["aside"])
    assert event["generation"] == answer.body["generation"] > json.loads(newest)["generation"]
    assert word(unlocked(home)) == "ok"
    assert names(home) == ["pw"]
    home.stop()
    now = file.read_bytes()
    for older in (newest, copy.read_bytes()):
        file.write_bytes(older)
        assert word(unlocked(home)) == "hash_mismatch"
    file.write_bytes(now)
    assert word(unlocked(home)) == "ok"


def test_the_file_that_was_put_back_by_hand_is_accepted_in_its_place(home: DaemonHome, tmp_path: Path) -> None:
    """As the refusal says: restored from where it lies."""
    file, old = home.path / "vault.json", tmp_path / "old.json"
    shutil.copy(file, old)
    store(home, "later")
    home.stop()
    file.write_bytes(old.read_bytes())
    assert word(unlocked(home)) == "hash_mismatch"
    assert word(restored(home, file)) == "ok"
    assert word(unlocked(home)) == "ok"
    assert names(home) == ["pw"]


def test_another_vault_than_the_one_on_record_is_not_opened_but_on_purpose(home: DaemonHome, tmp_path: Path) -> None:
    """With a passphrase of its own, too: whoever put it there would have the next secret that is stored."""
    file = home.path / "vault.json"
    with daemon_home() as elsewhere:
        elsewhere.unlock()
        other = (elsewhere.path / "vault.json").read_bytes()
    home.stop()
    mine = file.read_bytes()
    file.write_bytes(other)
    refused = unlocked(home)
    assert (word(refused), "another vault" in refused.body["error"]["message"]) == ("hash_mismatch", True)
    file.write_bytes(mine)
    assert word(unlocked(home)) == "ok"
    (tmp_path / "other").write_bytes(other)
    assert word(restored(home, tmp_path / "other")) == "ok"
    assert word(unlocked(home)) == "ok"


@pytest.mark.parametrize("passphrase", [PASSPHRASE, "a wrong one"])
def test_what_cannot_be_restored_changes_nothing(home: DaemonHome, tmp_path: Path, passphrase: str) -> None:
    """Damaged or with a wrong passphrase: the vault stays open, in its place, and the try is on record."""
    copy, before = tmp_path / "copy", (home.path / "vault.json").read_bytes()
    damaged = bytearray(before)
    if passphrase == PASSPHRASE:
        damaged[damaged.index(b'"pw"') + 1] ^= 1  # the name of the secret
    copy.write_bytes(damaged)
    answer = restored(home, copy, passphrase)
    assert word(answer) == ("hash_mismatch" if passphrase == PASSPHRASE else "unauthorized")
    assert not home.must("GET", "/v1/vault/status")["locked"]
    assert (home.path / "vault.json").read_bytes() == before
    assert recorded(home, "vault.unlock_failed")[0]["class"] == word(answer)
    assert recorded(home, "vault.restoring") == []


def test_where_somebody_signs_a_copy_of_after_their_last_word_is_restored(signed: DaemonHome, tmp_path: Path) -> None:
    """Nothing that they agreed to is undone by it: a secret that serves nobody was stored since, and is gone again."""
    copy = tmp_path / "copy"
    signed.must("POST", "/v1/vault/backup", {"file": str(copy)})
    store(signed, "later")
    assert word(restored(signed, copy)) == "ok"
    assert word(unlocked(signed)) == "ok"
    assert names(signed) == ["pw"]
    assert signed.must("GET", "/v1/approver")["status"] == "ready"


def test_where_somebody_signs_no_copy_brings_back_what_was_revoked(signed: DaemonHome, tmp_path: Path) -> None:
    """Refused with what it would undo and what to do; nothing is replaced, nothing locked, and it stays revoked."""
    copy, file = tmp_path / "copy", signed.path / "vault.json"
    signed.must("POST", "/v1/vault/backup", {"file": str(copy)})
    signed.must("DELETE", "/v1/bindings/basic/probe/me")
    before = file.read_bytes()

    refused = restored(signed, copy)

    assert word(refused) == "consent_required"
    assert "basic/probe/me" in refused.body["error"]["message"]
    assert "move ledger.db away" in refused.body["error"]["message"]
    assert (file.read_bytes(), signed.must("GET", "/v1/vault/status")["locked"]) == (before, False)
    assert signed.must("GET", "/v1/bindings")["bindings"] == []
    signed.stop()
    file.write_bytes(copy.read_bytes())
    assert word(unlocked(signed)) == "hash_mismatch"  # nor by hand


def test_where_somebody_signs_no_vault_without_them_is_restored(signed: DaemonHome, tmp_path: Path) -> None:
    """Such a one would let everything run unsigned."""
    with daemon_home() as elsewhere:
        elsewhere.unlock()
        shutil.copy(elsewhere.path / "vault.json", tmp_path / "other")
    refused = restored(signed, tmp_path / "other")
    assert word(refused) == "consent_required"
    assert signed.must("GET", "/v1/approver")["status"] == "ready"


def test_rotating_is_on_record_and_unlocks_a_locked_vault_on_the_way(home: DaemonHome) -> None:
    """By passphrase and, once it is forgotten, by recovery code; the codes are in the answer and nowhere else."""
    body = {"passphrase": PASSPHRASE, "new_passphrase": NEW, "recovery_codes": True}
    home.must("POST", "/v1/vault/lock")
    found = home.must("POST", "/v1/vault/rotate", body, wait_s=30)
    assert (found["locked"], found["recovery_codes"], len(found["codes"])) == (False, 4, 4)
    home.stop()
    assert word(unlocked(home)) == "unauthorized"
    assert word(unlocked(home, found["codes"][0])) == "ok"
    assert recorded(home, "vault.unlocked")[0]["way"] == "recovery"
    body = {"passphrase": found["codes"][1], "new_passphrase": PASSPHRASE}
    assert home.must("POST", "/v1/vault/rotate", body, wait_s=30)["codes"] == []
    assert [event["way"] for event in recorded(home, "vault.rotated")] == ["recovery", "passphrase"]
    assert word(unlocked(home, NEW)) == word(unlocked(home, found["codes"][0])) == "unauthorized"
    assert word(unlocked(home)) == "ok"
    home.stop()
    for code in (*found["codes"], NEW):
        for file in home.path.rglob("*"):
            assert not file.is_file() or code.encode() not in file.read_bytes(), file


def test_a_rotation_that_is_refused_leaves_it_as_locked_as_it_was(home: DaemonHome) -> None:
    """A short new passphrase of a locked vault, a wrong old one of an open one; only the second counts as a try to open."""
    home.must("POST", "/v1/vault/lock")
    body = {"passphrase": PASSPHRASE, "new_passphrase": "short"}
    assert word(home.ask("POST", "/v1/vault/rotate", body, wait_s=30)) == "bad_input"
    assert home.must("GET", "/v1/vault/status")["locked"]
    assert recorded(home, "vault.unlock_failed") == []
    assert word(unlocked(home)) == "ok"
    body = {"passphrase": "a wrong one", "new_passphrase": NEW}
    assert word(home.ask("POST", "/v1/vault/rotate", body, wait_s=30)) == "unauthorized"
    assert not home.must("GET", "/v1/vault/status")["locked"]
    assert len(recorded(home, "vault.unlock_failed")) == 1


def test_a_recovery_code_does_not_name_who_decides(home: DaemonHome, approver: Approver) -> None:
    """Whoever finds the paper can open the vault, and not become the approver with it; the passphrase's holder can."""
    body = {"passphrase": PASSPHRASE, "new_passphrase": PASSPHRASE, "recovery_codes": True}
    codes = home.must("POST", "/v1/vault/rotate", body, wait_s=30)["codes"]
    assert word(unlocked(home, codes[0])) == "ok"
    asked = approver.appointment(home, passphrase=codes[0])
    assert word(home.ask("POST", "/v1/approver", asked)) == "unauthorized"
    assert word(home.ask("POST", "/v1/approver", approver.appointment(home))) == "ok"


def test_a_vault_that_nobody_uses_locks_itself(home: DaemonHome) -> None:
    """After as long as is set; the record says why, and it opens again."""
    assert home.must("GET", "/v1/vault/status")["locks_at"] is None
    home.stop()
    home.configure('[vault]\nlock_after = "1s"\n')
    for times in (1, 2):
        assert word(unlocked(home)) == "ok"
        wait_until(lambda: home.must("GET", "/v1/vault/status")["locked"], "it locks")
        # it locks first and says so next
        wait_until(lambda n=times: len(recorded(home, "vault.locked")) >= n, "it is on record")
    found = home.must("GET", "/v1/vault/status")
    assert (found["lock_after_s"], found["locks_at"]) == (1.0, None)
    assert [event["reason"] for event in recorded(home, "vault.locked")] == ["idle", "idle"]


def test_when_it_locks_itself_is_told_and_far_off_while_it_is_used(home: DaemonHome) -> None:
    """With an hour to go nothing is locked; every change moves the hour on."""
    home.stop()
    home.configure('[vault]\nlock_after = "1h"\n')
    assert word(unlocked(home)) == "ok"
    first = home.must("GET", "/v1/vault/status")["locks_at"]
    store(home, "later")
    assert home.must("GET", "/v1/vault/status")["locks_at"] > first


@pytest.mark.parametrize("value", ['"0s"', '"25h"', '"1d"', '"soon"', "15", "true"])
def test_a_time_that_is_none_keeps_the_daemon_from_starting(value: str) -> None:
    """With the key, and what it takes."""
    with daemon_home() as home:
        home.configure(f"[vault]\nlock_after = {value}\n")
        with pytest.raises(
            Exception, match=r"config\.toml:2: .*lock_after'? is (not a duration|an? \w+; expected a string)"
        ):
            home.ask("GET", "/healthz")


@pytest.mark.anyio
async def test_between_the_two_halves_of_a_restore_either_vault_may_be_there(tmp_path: Path) -> None:
    """Event by event, as a daemon that is killed leaves the record: never is there a moment when nothing would open."""
    tmp_path.chmod(0o700)
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "1.0.0") as ledger:
        audit = Audit(ledger)
        assert await vault_checkpoints(ledger) == ()
        await audit.note(events.VaultUnlocked())  # of a version that did not say
        assert await vault_checkpoints(ledger) == ()
        await audit.note(events.VaultCreated(vault="aa", generation=1))
        await audit.note(events.VaultChanged(vault="aa", generation=9))
        assert await vault_checkpoints(ledger) == (VaultCheckpoint("aa", 9),)
        await audit.note(events.VaultRestoring(vault="bb", generation=10, file="/copy"))
        assert await vault_checkpoints(ledger) == (VaultCheckpoint("aa", 9), VaultCheckpoint("bb", 10))
        await audit.note(events.VaultRestored(vault="bb", generation=10, file="/copy"))
        assert await vault_checkpoints(ledger) == (VaultCheckpoint("bb", 10),)
        await audit.note(events.VaultRestoring(vault="cc", generation=11, file="/copy"))
        await audit.note(events.VaultUnlocked(way="passphrase", vault="bb", generation=10))
        assert await vault_checkpoints(ledger) == (VaultCheckpoint("bb", 10),)
        assert VaultCheckpoint("bb", 10).allows("bb", 10)
        assert VaultCheckpoint("bb", 10).allows("bb", 11)
        assert not VaultCheckpoint("bb", 10).allows("bb", 9)
        assert not VaultCheckpoint("bb", 10).allows("cc", 11)
