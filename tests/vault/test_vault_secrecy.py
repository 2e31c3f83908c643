"""Secrets are nowhere that they should not be: on disk, in messages, in memory once the vault is locked."""

from __future__ import annotations

import base64
import contextlib
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.vault import Vault, VaultLender
from tests.vault import page_reader
from tests.vault.conftest import API_KEY, BASIC, CANARY, PASSPHRASE, environment, use

pytestmark = pytest.mark.usefixtures("real_derivation")


def spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the ways a secret might be written: as it is, in hex, and in base64 at any of its three offsets."""
    yield secret
    yield secret.hex().encode()
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + secret)
        yield encoded[4:-4]
        yield base64.urlsafe_b64encode(bytes(shift) + secret)[4:-4]


def shows(text: bytes, secret: bytes) -> bool:
    """Return whether `text` contains the secret in any of these ways."""
    return any(spelling in text for spelling in spellings(secret))


def test_the_vault_file_shows_the_names_of_secrets_but_no_value(path: Path, key: bytes) -> None:
    """The bytes contain no value, passphrase or data key in any spelling; the names are there by design."""
    made = path.read_bytes()
    assert b'"mail"' in made
    assert shows(b"x" + base64.b64encode(b"yz" + CANARY + b"x"), CANARY)  # the search finds what is there
    for secret in (CANARY, PASSPHRASE, key):
        assert not shows(made, secret)
    for beside in path.parent.iterdir():
        assert not shows(beside.read_bytes(), CANARY)


def provoked(vault: Vault, path: Path, key: bytes) -> Iterator[AileronError]:
    """Yield the error of every refusal that has a secret, a passphrase or a key at hand."""
    canary = Secret(CANARY)
    good = path.read_bytes()
    bad = page_reader.load(path)
    bad["secrets"][0]["sealed"] = bad["secrets"][1]["sealed"]
    forged = page_reader.seal(bad, key)

    def lend_forged() -> None:
        page_reader.store(path, forged)
        other = Vault(path)
        other.unlock(Secret(PASSPHRASE))
        with VaultLender(other).lend(use(BASIC)):
            pass

    for attempt in (
        lambda: vault.unlock(canary),
        lambda: vault.create(canary),
        lambda: Vault(path).set_secret("mail", canary),
        lambda: vault.set_secret("No Name", canary),
        lambda: vault.set_secret("mail", Secret(CANARY + b"\n")),
        lambda: vault.set_secret("mail", Secret(CANARY * 4096)),
        lambda: vault.set_secret("mail", Secret(b"\0" + CANARY)),
        lambda: vault.bind(BASIC),
        lambda: vault.lock() or vault.set_secret("mail", canary),  # type: ignore[func-returns-value]
        lend_forged,
    ):
        with pytest.raises(AileronError) as caught:
            attempt()
        path.write_bytes(good)
        yield caught.value


def test_no_error_reveals_a_secret_even_in_its_traceback_frames(vault: Vault, path: Path, key: bytes) -> None:
    """Searched are message, details, causes, and the local variables of all our frames, as a debugger shows them."""
    seen = 0
    for error in provoked(vault, path, key):
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [frame for frame in told.stack if "/aileron/" in frame.filename]
        assert ours
        assert error.__cause__ is None
        text = "\n".join([str(error), repr(error), repr(error.failure), *(str(frame.locals) for frame in ours)])
        for secret in (CANARY, PASSPHRASE):
            assert not shows(text.encode("latin-1", "backslashreplace"), secret), error
        seen += 1
    assert seen == 10


def test_the_repr_of_no_object_shows_a_secret_value(standing: Vault) -> None:
    """The vault, its lender, a loan, and the lists are printed."""
    lender = VaultLender(standing)
    with lender.lend(use(API_KEY)) as loan:
        for thing in (
            standing,
            lender,
            loan,
            standing.secrets(),
            standing.bindings(),
            standing._opened,
            vars(standing),
        ):
            printed = f"{thing!r} {thing!s}".encode()
            assert not shows(printed, CANARY)
            assert not shows(printed, loan.secret.reveal())
        assert "<secret>" in repr(loan)


HOLDER = """
import sys
from pathlib import Path
from aileron.model.secret import Secret
from aileron.vault import Vault
vault = Vault(Path(sys.argv[1]))
vault.unlock(Secret(sys.stdin.readline().encode().strip()))
vault.set_secret("third", Secret(b"x" * 32))
held = vault._opened  # what holds the key is not freed, so that no reuse of its memory hides a key left there
for step in (lambda: None, vault.lock):
    step()
    print("now", flush=True)
    sys.stdin.readline()
"""


def copies(pid: int, needle: bytes) -> int:
    """Return how often `needle` is in the memory of another process, in all that is mapped readable and writable."""
    count = 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found:
                start, end = (int(part, 16) for part in found.groups())
                memory.seek(start)
                with contextlib.suppress(OSError):  # what is mapped and cannot be read, such as [vvar]
                    count += memory.read(end - start).count(needle)
    return count


class Holder:
    """A process that stops to be inspected, until it is told to go on."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.pid = process.pid
        self._said = process.stdout
        self.told = process.stdin

    def stopped(self) -> None:
        """Wait until the process has stopped."""
        assert self._said.readline() == b"now\n"

    def go_on(self, line: bytes = b"") -> None:
        """Let the process go on with the line that it reads there."""
        self.told.write(line + b"\n")


@contextlib.contextmanager
def holding(program: str, path: Path) -> Iterator[Holder]:
    """Run the program with the vault at `path`; wait for its end on leaving the block."""
    with subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        bufsize=0,
    ) as process:
        holder = Holder(process)
        try:
            yield holder
        finally:
            if process.poll() is None:
                holder.told.close()


def test_the_data_key_is_gone_from_memory_once_the_vault_is_locked(path: Path, key: bytes) -> None:
    """Another process unlocks, uses and locks a vault: the key is found in its memory before, and not after."""
    with holding(HOLDER, path) as holder:
        holder.go_on(PASSPHRASE)
        holder.stopped()
        before = copies(holder.pid, key)
        holder.go_on()
        holder.stopped()
        after = copies(holder.pid, key)
        holder.go_on()
    assert before >= 1
    assert after == 0


ROTATOR = """
import sys
from pathlib import Path
from aileron.model.secret import Secret
from aileron.vault import Vault
from aileron.vault.slots import KeyringKey
old, new, path = Secret(b"correct horse battery"), Secret(b"another horse battery"), Path(sys.argv[1])
key, held = KeyringKey("0" * 32, Secret(bytes(range(32)))), []
vault = Vault(path)
vault.unlock(old)
def stop():
    held.append(vault._opened)  # as above
    print("now", flush=True)
    sys.stdin.readline()
codes = vault.rotate(old, new, recovery_codes=True, keyring=key).codes
stop()  # 1
copy = vault.backup().data
vault.check_opens(codes[0])
vault.lock()
vault.unlock_with_keyring(key.key)
vault.check_opens_with_keyring(key.key)
vault.lock()
vault.backup(codes[1])
stop()  # 2
vault.unlock(codes[2])
vault.rotate(codes[3], old)
found = vault.copy(copy, new, "the copy")
held.append(found)
vault.put_back(found, 0)
found.wipe()
stop()  # 3
"""


def test_no_key_stays_in_memory_whichever_way_the_vault_was_opened(path: Path, key: bytes) -> None:
    """A rotation leaves only the new key; opening by code or keyring, copies and a restore leave no key."""
    found, second = [], b""
    with holding(ROTATOR, path) as holder:
        for _ in range(3):
            holder.stopped()
            if not second:
                second = page_reader.data_key(page_reader.load(path), b"another horse battery")
            found.append((copies(holder.pid, key), copies(holder.pid, second)))
            holder.go_on()
    assert found[0][0] == 0
    assert found[0][1] >= 1
    assert found[1:] == [(0, 0), (0, 0)]
