"""A vault in many threads: no change is lost or half done, and no caller waits without need."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.vault import Vault, VaultLender
from tests.vault.conftest import BASIC, CANARY, CONNECTOR, OTHER, PASSPHRASE, use, verify

pytestmark = pytest.mark.usefixtures("real_derivation")


def test_concurrent_changes_from_many_threads_are_all_applied(vault: Vault) -> None:
    """Each is based on the last, so there are as many generations as changes."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: vault.set_secret(f"s{n:02}", Secret(b"value-%08d" % n)), range(40)))
    assert [info.name for info in vault.secrets()] == ["mail", *(f"s{n:02}" for n in range(40)), "tickets"]
    assert vault.status().generation == 45
    verify(vault)


def test_concurrent_changes_from_two_vaults_on_one_file_are_all_applied(vault: Vault, path: Path) -> None:
    """The two vault objects stand for two processes, so the lock must be on the file."""
    second = Vault(path)
    second.unlock(Secret(PASSPHRASE))

    def change(vault: Vault, letter: str) -> None:
        for number in range(10):
            vault.set_secret(f"{letter}{number}", Secret(OTHER))

    with ThreadPoolExecutor(2) as threads:
        for each, letter in ((vault, "a"), (second, "b")):
            threads.submit(change, each, letter)
    second.lock()
    fresh = Vault(path)
    assert len(fresh.secrets()) == 22
    assert fresh.status().generation == 25


def test_reading_lending_and_locking_do_not_wait_for_a_writer(vault: Vault, path: Path) -> None:
    """Quick requests are answered while a change waits for another process, and locking takes effect at once.

    The change that was waiting is refused then: there is no key to make it with.
    """
    lock = os.open(path.with_name("vault.json.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with ThreadPoolExecutor(1) as threads:
            change = threads.submit(vault.set_secret, "mail", Secret(OTHER))
            assert [candidate.name for candidate in vault.candidates(CONNECTOR, "basic")] == [BASIC.name]
            with VaultLender(vault).lend(use(BASIC)) as loan:
                assert loan.secret.reveal() == CANARY
            assert vault.status().locked is False
            assert not change.done()
            vault.lock()
            assert vault.is_locked
            fcntl.flock(lock, fcntl.LOCK_UN)
            error = change.exception(timeout=10)
    finally:
        os.close(lock)
    assert isinstance(error, AileronError)
    assert error.failure.failure_class == FailureClass.VAULT_LOCKED
    assert vault.is_locked
    vault.unlock(Secret(PASSPHRASE))
    with VaultLender(vault).lend(use(BASIC)) as loan:
        assert loan.secret.reveal() == CANARY


def test_a_vault_locked_while_a_change_is_written_stays_locked(
    vault: Vault, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vault is locked between sealing and renaming: the change, requested before, is made; no key comes back with it."""
    flush = os.fsync

    def lock_then_flush(descriptor: int) -> None:
        vault.lock()
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", lock_then_flush)
    vault.set_secret("mail", Secret(OTHER))
    assert vault.is_locked
    monkeypatch.undo()
    vault.unlock(Secret(PASSPHRASE))
    with VaultLender(vault).lend(use(BASIC)) as loan:
        assert loan.secret.reveal() == OTHER


def test_the_key_is_not_wiped_while_it_is_in_use(path: Path) -> None:
    """Locking waits for the cryptography of a change in progress, so that the sealed value is whole."""
    lockers: list[threading.Thread] = []

    def clock() -> float:  # asked for the date of a secret while the key is held
        lockers.append(threading.Thread(target=vault.lock))
        lockers[0].start()
        lockers[0].join(timeout=0.05)  # long enough for a lock that does not wait
        return 1_750_000_001.0

    vault = Vault(path, clock=clock)
    vault.unlock(Secret(PASSPHRASE))
    vault.set_secret("mail", Secret(OTHER))
    lockers[0].join(timeout=10)
    assert vault.is_locked
    vault.unlock(Secret(PASSPHRASE))
    with VaultLender(vault).lend(use(BASIC)) as loan:
        assert loan.secret.reveal() == OTHER
    vault.lock()


def test_a_vault_locked_during_use_gives_the_secret_or_reports_the_lock(vault: Vault) -> None:
    """Four threads borrow and one changes during locks and unlocks: each gets right values or vault_locked."""
    stop = threading.Event()
    kinds: set[FailureClass] = set()
    values: set[bytes] = set()

    def borrow() -> None:
        while not stop.is_set():
            try:
                with VaultLender(vault).lend(use(BASIC)) as loan:
                    values.add(loan.secret.reveal())
            except AileronError as error:
                kinds.add(error.failure.failure_class)

    def change() -> None:
        while not stop.is_set():
            try:
                vault.set_secret("third", Secret(OTHER))
            except AileronError as error:
                kinds.add(error.failure.failure_class)

    with ThreadPoolExecutor(5) as threads:
        users = [*(threads.submit(borrow) for _ in range(4)), threads.submit(change)]
        for _ in range(3):
            vault.lock()
            vault.unlock(Secret(PASSPHRASE))
        stop.set()
        for user in users:
            user.result(timeout=10)
    assert values == {CANARY}
    assert kinds <= {FailureClass.VAULT_LOCKED}
    verify(vault)
