"""The file as bytes: it is what the page says, has one spelling, and no bytes do harm before a key is derived."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.canonical import canonical_json
from aileron.model.credential import OAuthGrant, Reach
from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault import Vault
from aileron.vault.contents import (
    BindingEntry,
    Contents,
    ContentsError,
    SecretEntry,
    UnknownFormatError,
    decode,
    encode,
)
from aileron.vault.envelope import COST, Cost, Sealed
from aileron.vault.slots import KeyringSlot, PassphraseSlot, RecoverySlot, Slot
from tests.vault import page_reader
from tests.vault.conftest import CANARY, OTHER, PASSPHRASE, python, refused, write

pytestmark = pytest.mark.usefixtures("real_derivation")

ids = st.text("0123456789abcdef", min_size=32, max_size=32)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)
times = st.integers(0, 253402300799000 // 2)
counts = st.integers(1, 2**53 - 1)


def sealed(shortest: int, longest: int) -> st.SearchStrategy[Sealed]:
    """Return a strategy for sealed values whose plaintext has `shortest` to `longest` bytes."""
    nonces = st.binary(min_size=12, max_size=12)
    return st.builds(Sealed, nonces, st.binary(min_size=shortest + 16, max_size=longest + 16))


def sorted_tuples(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Return a strategy for sorted tuples without repetitions."""
    return st.lists(strategy, max_size=3).map(lambda found: tuple(sorted(set(found))))


scopes = sorted_tuples(st.from_regex(r"[!#-\[\]-~]{1,40}", fullmatch=True))
hosts = sorted_tuples(
    st.builds("{}.example:{}".format, st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.integers(1, 9))
)
words = st.text(st.characters(codec="utf-8", categories=("L", "N", "S")), max_size=20)
reaches = st.builds(Reach, hosts=hosts, scopes=scopes, wire=words, client=st.none() | words)
grants = st.builds(
    OAuthGrant,
    scopes=scopes,
    obtained_ms=times,
    account=st.none() | words,
    refreshable=st.booleans(),
    expires_ms=st.none() | times,
    refreshed_ms=st.none() | times,
    renewing_ms=st.none() | times,
    failed=st.none() | st.just("invalid_grant"),
)


@st.composite
def contents(draw: st.DrawFn) -> Contents:
    """Draw contents that a file may have, as far as their shape goes."""
    costs = st.builds(Cost, st.integers(64 << 10, 1 << 20), st.integers(3, 8), st.integers(1, 16))
    salts, keys = st.binary(min_size=16, max_size=16), sealed(32, 32)
    slots: list[Slot] = [PassphraseSlot(draw(costs), draw(salts), draw(keys))]
    slots += draw(st.lists(st.builds(RecoverySlot, salts, keys), max_size=4))
    slots += draw(st.lists(st.builds(KeyringSlot, ids, salts, keys), max_size=1))
    secrets = []
    for name, entry_id in draw(st.lists(st.tuples(names, ids), max_size=4, unique_by=(lambda x: x[0], lambda x: x[1]))):
        created, later = draw(times), draw(times)
        elsewhere = draw(st.none() | st.builds(Elsewhere, st.just("pass:a/b"), program=st.just("/usr/bin/pass")))
        value = draw(sealed(8, 64) if elsewhere is None else sealed(64, 64))
        secrets.append(SecretEntry(name, entry_id, draw(counts), created, created + later, value, elsewhere))
    bindings = []
    for name in draw(st.lists(names, max_size=4, unique=True)) if secrets else ():
        secret = draw(st.sampled_from(secrets)).name
        kind, user = draw(st.sampled_from([("basic", "jürgen"), ("basic", "\U0001f511"), ("api_key", None)]))
        reach = draw(st.none() | reaches)
        bindings.append(BindingEntry(f"{kind}/{name}/x", "github://o/r", secret, user, draw(times), reach))
    if secrets and all(bound.secret != secrets[0].name for bound in bindings):
        name = f"oauth2/{draw(names)}/x"
        bindings.append(BindingEntry(name, "github://o/r", secrets[0].name, None, draw(times), None, draw(grants)))
    secrets.sort(key=lambda entry: entry.name)
    bindings.sort(key=lambda entry: entry.name)
    seal = draw(st.binary(min_size=32, max_size=32))
    return Contents(1, draw(ids), draw(counts), tuple(slots), tuple(secrets), tuple(bindings), seal)


@given(contents())
def test_contents_written_to_a_file_are_read_back(value: Contents) -> None:
    """Any contents of a valid shape are tried, and the bytes are canonical JSON."""
    assert decode(encode(value)) == value
    assert encode(value) == canonical_json(msgspec.to_builtins(value)) + b"\n"


@given(contents(), st.data())
def test_every_accepted_vault_file_is_encoded_to_the_same_bytes_again(value: Contents, data: st.DataObject) -> None:
    """Two different files never mean the same, so no byte can be changed without a change of meaning."""
    raw = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        read = decode(bytes(raw))
    except (ContentsError, UnknownFormatError):
        return
    assert encode(read) == bytes(raw)


@given(st.one_of(st.binary(), st.from_regex(rb'\{"format":1[^"]*"', fullmatch=False)))
def test_bytes_that_are_no_vault_are_refused_with_a_printable_message(data: bytes) -> None:
    """The only errors are ContentsError and UnknownFormatError, with a printable message."""
    with pytest.raises((ContentsError, UnknownFormatError)) as caught:
        decode(data)
    assert str(caught.value).isprintable()


def respelled(made: bytes) -> dict[str, bytes]:
    """Return the vault as other JSON programs would write it."""
    text, value = made.decode(), json.loads(made)
    return {
        "indented": json.dumps(value, indent=1).encode(),
        "without the line end": made[:-1],
        "with two": made + b"\n",
        "with a space": text.replace('"format":1', '"format": 1').encode(),
        "with a key twice": text.replace('"format":1', '"format":1,"format":1').encode(),
        "with a byte order mark": b"\xef\xbb\xbf" + made,
        "with an escape": text.replace('"mail"', '"m\\u0061il"').encode(),
        "in another order": (json.dumps(dict(reversed(value.items())), separators=(",", ":")) + "\n").encode(),
        "with a float": text.replace('"format":1,', '"format":1.0,').encode(),
        "with stray bits in base64": re.sub(r"[AQgw](?===)", lambda last: chr(ord(last[0]) + 1), text).encode(),
        "with an unknown key": text.replace('"format":1', '"format":1,"forward":1').encode(),
        "with an unknown key in an entry": text.replace('"version":1', '"version":1,"z":1', 1).encode(),
        "empty": b"",
    }


def test_a_vault_file_that_is_not_in_canonical_json_is_refused(made: bytes) -> None:
    """A byte without meaning could be changed unnoticed."""
    decode(made)
    for how, data in respelled(made).items():
        assert data != made, how
        with pytest.raises(ContentsError):
            decode(data)


REACH: dict[str, Any] = {"client": None, "hosts": [], "scopes": [], "wire": ""}
HOSTS = [f"{letter}{digit}.example:443" for letter in "abcd" for digit in "012345678"][:33]


def shared_grant(vault: dict[str, Any]) -> None:
    """Add a sign-in whose tokens another binding would be lent as they are."""
    grant = {"obtained_ms": 1, "scopes": []}
    vault["bindings"].append({**vault["bindings"][0], "name": "oauth2/mail/x", "grant": grant})


def recovery(vault: dict[str, Any]) -> dict[str, Any]:
    """Return a recovery slot that is valid in shape only."""
    return {"key": vault["slots"][0]["key"], "kind": "recovery", "salt": vault["slots"][0]["salt"]}


def keyring(vault: dict[str, Any]) -> dict[str, Any]:
    """Return a keyring slot that is valid in shape only."""
    return {**recovery(vault), "id": "0" * 32, "kind": "keyring"}


def slots_refused(made: bytes) -> Iterator[dict[str, Any]]:
    """Yield vaults without a passphrase slot, or with it in another place."""
    for slots in ([], [recovery], [recovery, None]):
        vault = json.loads(made)
        vault["slots"] = [make(vault) if make else vault["slots"][0] for make in slots]
        yield vault


def test_the_passphrase_slot_must_exist_and_be_first(path: Path, made: bytes) -> None:
    """A vault with further slots behind it is accepted."""
    for vault in slots_refused(made):
        page_reader.store(path, vault)
        with refused(FailureClass.HASH_MISMATCH) as refusal:
            Vault(path).bindings()
        assert "passphrase slot" in refusal.message
    vault = json.loads(made)
    vault["slots"] += [recovery(vault), keyring(vault)]
    page_reader.store(path, vault)
    assert Vault(path).status().recovery_codes == 1
    assert Vault(path).status().keyring == "0" * 32


def broken(made: bytes) -> dict[str, dict[str, Any]]:
    """Return vaults in the right spelling that each break one rule of the page."""

    def but(change: Any) -> dict[str, Any]:
        vault: dict[str, Any] = json.loads(made)
        change(vault)
        return vault

    return {
        "not one passphrase slot, and it first": but(lambda v: v["slots"].append(v["slots"][0])),
        "17 slots beside": but(lambda v: v["slots"].extend([recovery(v)] * 17)),
        "2 keyring slots": but(lambda v: v["slots"].extend([keyring(v)] * 2)),
        "id of the keyring's key": but(lambda v: v["slots"].append({**keyring(v), "id": "\x1b"})),
        "generation is out of range": but(lambda v: v.update(generation=0)),
        "vault's id is not": but(lambda v: v.update(vault="ABC")),
        "seal has another length": but(lambda v: v.update(seal="AAAA")),
        "salt has another length": but(lambda v: v["slots"][0].update(salt="AAAA")),
        "nonce of the wrapped key": but(lambda v: v["slots"][0]["key"].update(nonce="AAAA")),
        "the wrapped key has": but(lambda v: v["slots"][0]["key"].update(ciphertext="AAAA")),
        "secrets are not in order": but(lambda v: v["secrets"].reverse()),
        "two secrets with one id": but(lambda v: v["secrets"][0].update(id=v["secrets"][1]["id"])),
        "id of secret mail is not": but(lambda v: v["secrets"][0].update(id="..")),
        "version of secret mail": but(lambda v: v["secrets"][0].update(version=0)),
        "times of secret mail": but(lambda v: v["secrets"][0].update(created_ms=1_750_000_000_501)),
        "times of secret tickets": but(lambda v: v["secrets"][1].update(updated_ms=253402300799001)),
        "nonce of secret mail": but(lambda v: v["secrets"][0]["sealed"].update(nonce="AAAA")),
        "secret mail has -13 bytes": but(lambda v: v["secrets"][0]["sealed"].update(ciphertext="AAAA")),
        "is not a secret's name": but(lambda v: v["secrets"][0].update(name="\x1b[2J")),
        "bindings are not in order": but(lambda v: v["bindings"].reverse()),
        "which is not there": but(lambda v: v["secrets"].pop(0)),
        "KIND/SERVICE/IDENTITY": but(lambda v: v["bindings"][0].update(name="api_key/\x1b/x")),
        "kind 'a_shell' is not one of": but(lambda v: v["bindings"][0].update(name="a_shell/a/b")),
        "no known scheme": but(lambda v: v["bindings"][0].update(connector="file:///etc")),
        "user name holds U+001B": but(lambda v: v["bindings"][1].update(username="\x1b[2J")),
        "sent holds U+001B": but(lambda v: v["bindings"][0].update(reach={**REACH, "wire": "\x1b"})),
        "33 hosts to reach": but(lambda v: v["bindings"][0].update(reach={**REACH, "hosts": HOSTS})),
        "hosts to reach are not sorted": but(
            lambda v: v["bindings"][0].update(reach={**REACH, "hosts": ["b.example:1", "a.example:1"]})
        ),
        "only for kind oauth2": but(lambda v: v["bindings"][0].update(grant={"obtained_ms": 1, "scopes": []})),
        "shares the secret tickets": but(shared_grant),
    }


def test_canonical_json_that_breaks_a_rule_of_the_vault_format_is_refused(path: Path, made: bytes) -> None:
    """Each rule is checked on its own, by its reason, without a key; the message is printable."""
    vault = Vault(path)
    for words, value in broken(made).items():
        page_reader.store(path, value)
        with refused(FailureClass.HASH_MISMATCH) as refusal:
            vault.bindings()
        assert words in refusal.message
        assert "aileron vault init" in refusal.message
        assert refusal.message.isprintable()
    write(path, made)
    assert len(vault.bindings()) == 2


def test_a_vault_truncated_anywhere_is_refused(path: Path, made: bytes) -> None:
    """Every proper prefix is refused, the empty one too; the whole file is read."""
    vault = Vault(path)
    for length in range(len(made)):
        write(path, made[:length])
        with refused(FailureClass.HASH_MISMATCH):
            vault.bindings()
    write(path, made)
    assert len(vault.bindings()) == 2


def test_the_decoder_refuses_a_vault_file_of_too_many_bytes() -> None:
    """The decoder checks the length itself, as its caller may not have."""
    with pytest.raises(ContentsError, match="more than"):
        decode(b" " * ((16 << 20) + 1))


def test_a_vault_file_of_a_later_format_is_refused_with_the_advice_to_upgrade(path: Path) -> None:
    """A later format is no damage: the advice is to upgrade, whatever else the file holds."""
    page_reader.store(path, {"format": 2, "anything": []})
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        Vault(path).status()
    assert "format 2" in refusal.message
    assert "upgrade aileron" in refusal.message


def test_the_format_page_is_enough_to_read_the_secrets(path: Path) -> None:
    """A reader written from docs/reference/vault-format.md finds both values, and the seal that it expects."""
    vault = page_reader.load(path)
    key = page_reader.data_key(vault, PASSPHRASE)
    assert page_reader.secret(vault, key, "mail") == CANARY
    assert page_reader.secret(vault, key, "tickets") == OTHER
    assert page_reader.seal(vault, key) == vault


def test_the_cost_of_a_passphrase_guess_is_that_of_the_format_page(path: Path) -> None:
    """The cost is RFC 9106's second recommended option."""
    slot = page_reader.load(path)["slots"][0]
    assert slot["argon2id"] == {"memory_kib": 65536, "passes": 3, "lanes": 4}
    assert slot["argon2id"] == msgspec.to_builtins(COST)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"memory_kib": 4 << 20}, "4194304 KiB"),
        ({"memory_kib": (1 << 20) + 1}, "1048577 KiB"),
        ({"memory_kib": 2**53 - 1}, "KiB"),
        ({"passes": 9}, "9 argon2id passes"),
        ({"passes": 2**31}, "passes"),
        ({"lanes": 17}, "17 argon2id lanes"),
        ({"lanes": 0}, "0 argon2id lanes"),
        ({"lanes": -1}, "lanes"),
        ({"memory_kib": (64 << 10) - 1}, "65535 KiB"),
        ({"memory_kib": 8}, "8 KiB"),
        ({"passes": 2}, "2 argon2id passes"),
    ],
)
def test_a_derivation_cost_out_of_bounds_is_refused_before_the_derivation(
    path: Path, cost: dict[str, int], words: str
) -> None:
    """An excessive cost would exhaust the machine, and a low one would expose the passphrase; neither check needs a key."""
    vault = page_reader.load(path)
    vault["slots"][0]["argon2id"].update(cost)
    page_reader.store(path, vault)
    for attempt in (lambda: Vault(path).unlock(Secret(PASSPHRASE)), lambda: Vault(path).bindings()):
        with refused(FailureClass.HASH_MISMATCH) as refusal:
            attempt()
        assert words in refusal.message


def test_the_lowest_and_highest_derivation_costs_are_accepted() -> None:
    """The bounds themselves are allowed."""
    Cost(1 << 20, 8, 16).check()
    Cost(64 << 10, 3, 1).check()


BOMB = r"""
import re, sys
from pathlib import Path
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.vault import Vault
def peak():  # not ru_maxrss, which survives exec
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
try:
    Vault(Path(sys.argv[1])).unlock(Secret(b"correct horse battery"))
except AileronError as error:
    print(error.failure.failure_class)
print((peak() - before) // 1024)
"""


def unlock_apart(path: Path) -> list[str]:
    """Unlock in a process of its own; return the failure, if any, and by how many MiB its memory grew."""
    return python("-c", BOMB, path).split()


def test_a_vault_that_demands_excessive_memory_is_refused_without_using_it(path: Path) -> None:
    """An intact vault takes its 64 MiB for the derivation; one that demands 512 GiB takes almost none."""
    (grown,) = unlock_apart(path)
    assert int(grown) >= 60
    vault = page_reader.load(path)
    vault["slots"][0]["argon2id"]["memory_kib"] = 512 << 20
    page_reader.store(path, vault)
    failure, grown = unlock_apart(path)
    assert failure == "hash_mismatch"
    assert int(grown) < 16


CRAMPED = r"""
import resource, sys
from pathlib import Path
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.vault import Vault
vault = Vault(Path(sys.argv[1]))
vault.status()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
for room in (32 << 20, 512 << 20):
    resource.setrlimit(resource.RLIMIT_AS, (used + room, -1))
    try:
        vault.unlock(Secret(b"correct horse battery"))
        print("open")
    except AileronError as error:
        print(error)
"""


def test_a_lack_of_memory_for_the_key_derivation_is_reported(path: Path) -> None:
    """The failure states how much memory a derivation needs; with enough of it the vault opens."""
    told = python("-c", CRAMPED, path).splitlines()
    assert told == ["not enough memory to derive the vault's key (64 MiB at once); free some and try again", "open"]
