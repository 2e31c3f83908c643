"""The vault's recorded generation, across restarts: an older file is found, a backup restored on purpose, no decision undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
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
    """Start a home with an open vault and no approver."""
    with daemon_home() as made:
        made.unlock()
        yield made


@pytest.fixture
def signed(approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, a credential that serves the probe, and the vault open."""
    with bound_home(approver) as made:
        yield made


def unlocked(home: DaemonHome, passphrase: str = PASSPHRASE) -> Answer:
    """Unlock the vault and return the response."""
    return home.ask("POST", "/v1/vault/unlock", {"passphrase": passphrase})


def store(home: DaemonHome, name: str) -> None:
    """Store a secret that nothing uses."""
    home.must("PUT", f"/v1/secrets/{name}", {"value_base64": "c29tZSB2YWx1ZQ=="})


def restored(home: DaemonHome, file: Path, passphrase: str = PASSPHRASE) -> Answer:
    """Restore a backup and return the response."""
    return home.ask("POST", "/v1/vault/restore", {"file": str(file), "passphrase": passphrase}, wait_s=30)


def names(home: DaemonHome) -> list[str]:
    """Return the names of the stored secrets."""
    return [entry["name"] for entry in home.must("GET", "/v1/secrets")["secrets"]]


def recorded(home: DaemonHome, kind: str) -> list[dict[str, Any]]:
    """Return the events of a type, newest first."""
    found: list[dict[str, Any]] = home.must("GET", f"/v1/audit?type={kind}")["events"]
    return found


def generation_on_record(home: DaemonHome, least: int) -> None:
    """Wait until the record has this generation of the vault, which is written in the background."""
    wait_until(
        lambda: any(event["generation"] >= least for event in recorded(home, "vault.changed")),
        f"generation {least} is on record",
        seen=lambda: recorded(home, "vault.changed"),
    )


@pytest.mark.parametrize("end", [DaemonHome.stop, DaemonHome.kill])
def test_an_older_vault_file_is_refused_by_the_next_daemon(home: DaemonHome, tmp_path: Path, end: Any) -> None:
    """The file is intact and its passphrase right: the error names the command that accepts it. The newest opens."""
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


def test_a_vault_opens_with_changes_that_a_killed_daemon_did_not_record(home: DaemonHome) -> None:
    """The file is written before the record, so a newer file than recorded must be accepted."""
    for number in range(5):
        store(home, f"later-{number}")
    home.kill()
    assert word(unlocked(home)) == "ok"
    assert len(names(home)) == 6
    assert recorded(home, "vault.unlocked")[0]["way"] == "passphrase"


def test_a_vault_backup_opens_only_after_it_was_restored_by_command(home: DaemonHome, tmp_path: Path) -> None:
    """The restored vault has its earlier contents and is locked; the previous file stays beside it, as older."""
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


def test_an_older_vault_file_put_back_by_hand_can_be_restored_in_place(home: DaemonHome, tmp_path: Path) -> None:
    """The error says so: the command accepts the vault's own path."""
    file, old = home.path / "vault.json", tmp_path / "old.json"
    shutil.copy(file, old)
    store(home, "later")
    home.stop()
    file.write_bytes(old.read_bytes())
    assert word(unlocked(home)) == "hash_mismatch"
    assert word(restored(home, file)) == "ok"
    assert word(unlocked(home)) == "ok"
    assert names(home) == ["pw"]


def test_a_foreign_vault_file_opens_only_after_it_was_restored_by_command(home: DaemonHome, tmp_path: Path) -> None:
    """Otherwise, whoever put it there could read the next secret that the user stores."""
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
def test_a_failed_vault_restore_changes_nothing(home: DaemonHome, tmp_path: Path, passphrase: str) -> None:
    """The backup is damaged or the passphrase wrong: the vault stays open and in place, and the try is on record."""
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


def test_a_backup_from_after_the_approvers_last_decision_can_be_restored(signed: DaemonHome, tmp_path: Path) -> None:
    """The restore undoes no approval: only a secret that nothing uses was stored since, and it is gone again."""
    copy = tmp_path / "copy"
    signed.must("POST", "/v1/vault/backup", {"file": str(copy)})
    store(signed, "later")
    assert word(restored(signed, copy)) == "ok"
    assert word(unlocked(signed)) == "ok"
    assert names(signed) == ["pw"]
    assert signed.must("GET", "/v1/approver")["status"] == "ready"


def test_a_backup_that_would_undo_a_revocation_is_not_restored(signed: DaemonHome, tmp_path: Path) -> None:
    """The home has an approver: the error says what would be undone; the vault is neither replaced nor locked."""
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
    assert word(unlocked(signed)) == "hash_mismatch"  # putting it back by hand does not help either


def test_a_vault_without_an_approver_cannot_replace_one_with_an_approver(signed: DaemonHome, tmp_path: Path) -> None:
    """Such a vault would let everything run unsigned."""
    with daemon_home() as elsewhere:
        elsewhere.unlock()
        shutil.copy(elsewhere.path / "vault.json", tmp_path / "other")
    refused = restored(signed, tmp_path / "other")
    assert word(refused) == "consent_required"
    assert signed.must("GET", "/v1/approver")["status"] == "ready"


def test_rotating_is_recorded_and_leaves_the_vault_unlocked(home: DaemonHome) -> None:
    """The vault is rotated with the passphrase or a recovery code; new codes are in the response and in no file."""
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


def test_a_refused_rotation_leaves_the_vault_as_it_was(home: DaemonHome) -> None:
    """The new passphrase of a locked vault is too short, or the old one of an open vault is wrong; only the second
    counts as a failed try.
    """
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


def test_a_recovery_code_cannot_enroll_an_approver(home: DaemonHome, approver: Approver) -> None:
    """A person who finds the paper can open the vault, but not become the approver; the passphrase can do both."""
    body = {"passphrase": PASSPHRASE, "new_passphrase": PASSPHRASE, "recovery_codes": True}
    codes = home.must("POST", "/v1/vault/rotate", body, wait_s=30)["codes"]
    assert word(unlocked(home, codes[0])) == "ok"
    asked = approver.appointment(home, passphrase=codes[0])
    assert word(home.ask("POST", "/v1/approver", asked)) == "unauthorized"
    assert word(home.ask("POST", "/v1/approver", approver.appointment(home))) == "ok"


def test_an_unused_vault_locks_itself(home: DaemonHome) -> None:
    """The vault locks after the configured time, the record has the reason, and it can be unlocked again."""
    assert home.must("GET", "/v1/vault/status")["locks_at"] is None
    home.stop()
    home.configure('[vault]\nlock_after = "1s"\n')

    def is_locked_on_record(times: int) -> bool:
        return len(recorded(home, "vault.locked")) >= times

    for times in (1, 2):
        assert word(unlocked(home)) == "ok"
        wait_until(lambda: home.must("GET", "/v1/vault/status")["locked"], "it locks")
        # it locks before it records that
        wait_until(partial(is_locked_on_record, times), "it is on record")
    found = home.must("GET", "/v1/vault/status")
    assert (found["lock_after_s"], found["locks_at"]) == (1.0, None)
    assert [event["reason"] for event in recorded(home, "vault.locked")] == ["idle", "idle"]


def test_each_use_postpones_the_vaults_lock_time_in_the_status(home: DaemonHome) -> None:
    """Every change of the vault defers the time."""
    home.stop()
    home.configure('[vault]\nlock_after = "1h"\n')
    assert word(unlocked(home)) == "ok"
    first = home.must("GET", "/v1/vault/status")["locks_at"]
    store(home, "later")
    assert home.must("GET", "/v1/vault/status")["locks_at"] > first


@pytest.mark.parametrize("value", ['"0s"', '"25h"', '"1d"', '"soon"', "15", "true"])
def test_an_invalid_lock_time_keeps_the_daemon_from_starting(value: str) -> None:
    """The error names the key and the expected value."""
    with daemon_home() as home:
        home.configure(f"[vault]\nlock_after = {value}\n")
        with pytest.raises(
            Exception, match=r"config\.toml:2: .*lock_after'? is (not a duration|an? \w+; expected a string)"
        ):
            home.ask("GET", "/healthz")


@pytest.mark.anyio
async def test_during_a_vault_restore_the_record_accepts_the_old_and_the_new_vault(tmp_path: Path) -> None:
    """A daemon may be killed between the two events, and must not refuse every vault afterwards."""
    tmp_path.chmod(0o700)
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "1.0.0") as ledger:
        audit = Audit(ledger)
        assert await vault_checkpoints(ledger) == ()
        await audit.note(events.VaultUnlocked())  # of a version that did not record the generation
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
