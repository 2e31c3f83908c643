"""A passkey's signature counts for one statement, on one page, by a verified user; each lie is refused with its reason."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import struct
from typing import Any, get_args

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.decision import DecisionStatement, PageStatement, Statement
from aileron.model.passkey import (
    MAX_ATTESTATION_BYTES,
    MAX_AUTHENTICATOR_BYTES,
    MAX_CLIENT_BYTES,
    MAX_CREDENTIAL_ID_BYTES,
    MAX_SIGNATURE_BYTES,
    Assertion,
    PasskeyError,
    PasskeyKey,
    base64url,
    challenge_of,
    check_assertion,
    check_registration,
    from_base64url,
    is_passkey,
    passkey_id,
    said_challenge,
)
from tests.support.authenticator import ORIGIN, Algorithm, Authenticator, Told, cbor

ALL: tuple[Algorithm, ...] = get_args(Algorithm)
DEVICES = {algorithm: Authenticator(algorithm) for algorithm in ALL}
DEVICE = DEVICES["ES256"]
STATEMENT = DecisionStatement(
    approval_id="act-1", digest="sha256:" + "5d" * 32, decision="approve", reason=None, at="…", key_id=DEVICE.key_id
)


def why(signature: str, statement: Statement = STATEMENT, passkey: PasskeyKey | None = None) -> str | None:
    """Return what is wrong with an assertion, or None."""
    try:
        check_assertion(passkey or DEVICE.enrolled(), statement, signature)
    except PasskeyError as error:
        return error.why
    return None


def made(told: Told = Told(), device: Authenticator = DEVICE, origin: str = ORIGIN) -> Any:  # noqa: B008
    """Return what making a passkey gives: its registration, or why it is refused."""
    options: dict[str, Any] = {
        "rp": {"id": "localhost"},
        "challenge": base64url(b"c" * 32),
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in (-7, -8, -257)],
        "excludeCredentials": [],
    }
    answer = device.make({"publicKey": options}, told)
    client, attestation = from_base64url(answer["client_data"]), from_base64url(answer["attestation"])
    try:
        return check_registration(client, attestation, challenge=options["challenge"], origin=origin)
    except PasskeyError as error:
        return error.why


@pytest.mark.parametrize("algorithm", ALL)
def test_a_passkeys_signature_is_valid_for_exactly_one_statement(algorithm: Algorithm) -> None:
    """A signature by each algorithm is valid for no other question, answer or kind of statement."""
    device = DEVICES[algorithm]
    signature = device.sign(STATEMENT)
    others = [
        msgspec.structs.replace(STATEMENT, digest="sha256:" + "00" * 32),
        msgspec.structs.replace(STATEMENT, approval_id="act-2"),
        msgspec.structs.replace(STATEMENT, decision="deny"),
        msgspec.structs.replace(STATEMENT, reason="no"),
        PageStatement(nonce="00" * 16, at="…", key_id=device.key_id),
    ]

    assert why(signature, passkey=device.enrolled()) is None
    assert [why(signature, other, device.enrolled()) for other in others] == ["challenge"] * len(others)


LIES = [
    ("type", Told(type="webauthn.create")),
    ("challenge", Told(challenge=base64url(b"x" * 32))),
    ("challenge", Told(challenge=challenge_of(STATEMENT) + "=")),
    ("origin", Told(origin="http://localhost:24101")),
    ("origin", Told(origin="http://localhost")),
    ("origin", Told(origin="https://localhost:24100")),
    ("origin", Told(origin="http://LOCALHOST:24100")),
    ("origin", Told(origin="http://localhost:24100/")),
    ("origin", Told(origin="http://127.0.0.1:24100")),
    ("frame", Told(client={"crossOrigin": True})),
    ("frame", Told(client={"topOrigin": "https://example.com"})),
    ("rp", Told(rp_id="example.com")),
    ("rp", Told(rp_id="localhost:24100")),
    ("presence", Told(is_there=False)),
    ("verification", Told(is_verified=False)),
]
"""Lies that an assertion and a registration are tested with."""


@pytest.mark.parametrize(("reason", "told"), LIES)
def test_a_false_claim_in_an_assertion_is_refused_with_its_reason(reason: str, told: Told) -> None:
    """Each one is signed by the right key; the honest assertion beside it is accepted."""
    assert why(DEVICE.sign(STATEMENT, told)) == reason
    assert why(DEVICE.sign(STATEMENT)) is None


def test_optional_fields_from_a_browser_do_not_affect_verification() -> None:
    """The cases are unknown fields, a null crossOrigin, a signature count, and a synced passkey."""
    for told in (
        Told(client={"other_keys_can_be_added_here": "do not compare"}),
        Told(client={"crossOrigin": None}),
        Told(count=7),
        Told(is_synced=True),
    ):
        assert why(DEVICE.sign(STATEMENT, told)) is None


def test_a_signature_by_another_key_is_refused() -> None:
    """Another device's assertion is refused, whatever its algorithm, and so is an honest one with a byte changed."""
    other = Authenticator()
    signature, data, client = Assertion.parse(DEVICE.sign(STATEMENT))
    changed = struct.pack(">I", 1)

    assert why(other.sign(STATEMENT)) == "signature"
    assert [why(DEVICES[name].sign(STATEMENT)) for name in ALL[1:]] == ["signature", "signature"]
    assert why(Assertion(signature, data[:-4] + changed, client).spelled()) == "signature"
    assert why(Assertion(signature, data, client + b" ").spelled()) == "signature"
    assert why(Assertion(signature, data, client).spelled()) is None


def test_an_approvers_key_and_a_passkey_cannot_be_confused() -> None:
    """Their ids have different prefixes, and their signatures different forms."""
    assert is_passkey(passkey_id(b"x", b"key"))
    assert passkey_id(b"x", b"key") == "webauthn:" + hashlib.sha256(b"\0\1xkey").hexdigest()[:32]
    assert len({passkey_id(b"x", b"key"), passkey_id(b"x", b"other"), passkey_id(b"xk", b"ey")}) == 3
    assert not is_passkey("ed25519:" + "0" * 32)
    assert why("7C+RWLbsHRIeJl3oOu5zIeU6Dqhr38AeN0F13l3H2R6AlNpv0GhdtF6hTBmCZ8/SXRbzPOIyYQe6EiipcDhYAA==") == "form"


def test_an_assertion_with_missing_overlong_or_misspelled_parts_is_refused() -> None:
    """An assertion has one spelling and three parts, each within its bound."""
    good = Assertion.parse(DEVICE.sign(STATEMENT))
    spelled = good.spelled()
    signature, data, client = spelled.split(".")
    wrong = [
        "",
        ".",
        "..",
        "...",
        signature,
        f"{signature}.{data}",
        f"{spelled}.",
        f"{spelled}.{client}",
        f".{data}.{client}",
        f"{signature}..{client}",
        f"{signature}.{data}.",
        f"{signature}=.{data}.{client}",
        f"{signature}.{data}.{client}\n",
        f" {spelled}",
        f"{signature}.{data}.{client[:-1]}é",
        Assertion(b"s" * (MAX_SIGNATURE_BYTES + 1), good.authenticator_data, good.client_data).spelled(),
        Assertion(good.signature, b"d" * (MAX_AUTHENTICATOR_BYTES + 1), good.client_data).spelled(),
        Assertion(good.signature, good.authenticator_data, b"c" * (MAX_CLIENT_BYTES + 1)).spelled(),
        "A" * (1 << 20),
        Assertion(good.signature, good.authenticator_data[:36], good.client_data).spelled(),
        Assertion(good.signature, good.authenticator_data + b"x", good.client_data).spelled(),
        Assertion(good.signature, good.authenticator_data, good.client_data[:-1]).spelled(),
        Assertion(good.signature, good.authenticator_data, b"[]").spelled(),
        Assertion(good.signature, good.authenticator_data, b"\xff{}").spelled(),
        Assertion(good.signature, good.authenticator_data, b"[" * MAX_CLIENT_BYTES).spelled(),
    ]

    assert [why(text) for text in wrong] == ["form"] * len(wrong)
    assert why(spelled) is None
    (short,) = {why(Assertion(cut, good.authenticator_data, good.client_data).spelled()) for cut in (b"\0",)}
    assert short == "signature"


def test_an_assertion_with_nonzero_unused_base64_bits_is_refused() -> None:
    """Otherwise one value would have several spellings."""
    assert from_base64url("AA") == b"\0"
    for text in ("AB", "A", "AA==", "A+", "A/", "A A", "AA\n"):
        with pytest.raises(PasskeyError, match="base64url"):
            from_base64url(text)


def test_an_assertion_that_contains_attested_credential_data_is_refused() -> None:
    """The attested credential data belongs only in a registration."""
    name = b"\1" * 16
    holding = bytes(16) + struct.pack(">H", len(name)) + name + cbor(DEVICE.cose)

    assert why(DEVICE.sign(STATEMENT, Told(flags=0x45, more=holding))) == "form"
    assert why(DEVICE.sign(STATEMENT, Told(flags=0x85, more=cbor({"credProps": True})))) is None, (
        "extensions may be there"
    )


@pytest.mark.parametrize("algorithm", ALL)
def test_a_registration_yields_the_key_that_verifies_later_assertions(algorithm: Algorithm) -> None:
    """The result also has the credential id, and whether the device says that it synchronizes the passkey."""
    device = DEVICES[algorithm]
    found = made(device=device)

    assert (found.credential_id, found.algorithm) == (device.credential_id, algorithm)
    assert found.public_key.hex() == device.enrolled().public_key
    assert (found.synced, found.aaguid) == ("no", None)
    assert made(Told(is_synced=True), device).synced == "yes"
    assert made(Told(flags=0x4D), device).synced == "possible"


@pytest.mark.parametrize(
    ("reason", "told"),
    [(reason, told) for reason, told in LIES if told.type is None],
    ids=[f"{reason}-{number}" for number, (reason, told) in enumerate(LIES) if told.type is None],
)
def test_a_false_claim_in_a_registration_is_refused_with_its_reason(reason: str, told: Told) -> None:
    """The reasons are the same as those for an assertion."""
    assert made(told) == reason
    assert not isinstance(made(), str)


def test_an_assertion_is_not_accepted_as_a_registration() -> None:
    """The type in the client data tells them apart."""
    assert made(Told(type="webauthn.get")) == "type"


def _beside_the_curve() -> dict[int, Any]:
    return {**DEVICE.cose, -3: bytes(32)}


@pytest.mark.parametrize(
    "key",
    [
        {1: 2, -1: 1, -2: bytes(32), -3: bytes(32)},
        {**DEVICE.cose, 3: 0},
        {**DEVICE.cose, 3: -35},
        {**DEVICE.cose, 3: -47},
        {**DEVICE.cose, 3: -9},
        {**DEVICE.cose, 1: 1},
        {**DEVICE.cose, -1: 2},
        {**DEVICE.cose, -1: True},
        {**DEVICE.cose, -2: bytes(31)},
        {**DEVICE.cose, -4: b"private"},
        _beside_the_curve(),
        {**DEVICES["EdDSA"].cose, -2: bytes(31)},
        {**DEVICES["EdDSA"].cose, -1: 7},
        {**DEVICES["RS256"].cose, -2: b"\x03"},
        {**DEVICES["RS256"].cose, -1: b"\xff" * 128},
        {**DEVICES["RS256"].cose, -1: b"\0" + b"\xff" * 255},
        {**DEVICES["RS256"].cose, -1: b"\xff" * 513},
        {**DEVICES["RS256"].cose, 3: -65535},
    ],
    ids=lambda key: f"{key.get(3)}-{len(key)}",
)
def test_a_key_of_another_algorithm_or_with_wrong_numbers_is_refused(key: dict[int, Any]) -> None:
    """The cases are missing or unrequested algorithms, invalid points and short RSA keys. None would count if enrolled either."""
    assert made(Told(key=key)) in ("algorithm", "form")
    enrolled = msgspec.structs.replace(DEVICE.enrolled(), public_key=cbor(key).hex())
    assert why(DEVICE.sign(STATEMENT), passkey=enrolled) in ("algorithm", "signature")


def test_a_registration_is_bounded() -> None:
    """The credential id has a bounded length, nothing follows the data, and backup flags are consistent."""
    for told in (
        Told(credential_id=b""),
        Told(credential_id=b"i" * (MAX_CREDENTIAL_ID_BYTES + 1)),
        Told(more=b"x"),
        Told(flags=0x05),
        Told(flags=0x55),
        Told(attestation=b""),
        Told(attestation=b"\0" * (MAX_ATTESTATION_BYTES + 1)),
        Told(attestation=cbor({"fmt": "none", "attStmt": {}, "authData": b"short"})),
        Told(attestation=cbor([])),
        Told(attestation=b"\x81" * MAX_ATTESTATION_BYTES),
        Told(client_data=b"{" + b" " * MAX_CLIENT_BYTES),
    ):
        assert made(told) == "form", told
    assert len(made(Told(credential_id=b"i" * MAX_CREDENTIAL_ID_BYTES)).credential_id) == MAX_CREDENTIAL_ID_BYTES


def test_a_passkey_that_is_not_in_canonical_form_is_refused() -> None:
    """Browser and daemon each compute the key's id, so it must have exactly one encoding."""
    backwards = dict(reversed(DEVICE.cose.items()))

    assert made(Told(key=backwards)) == "form"
    assert not isinstance(made(Told(key=DEVICE.cose)), str)


def test_an_attestation_is_ignored() -> None:
    """Some authenticators send one although none was requested."""
    name = DEVICE.credential_id
    data = hashlib.sha256(b"localhost").digest() + b"\x45" + bytes(4)
    data += bytes(range(16)) + struct.pack(">H", len(name)) + name + cbor(DEVICE.cose)
    told = cbor({"fmt": "packed", "attStmt": {"alg": -7, "sig": b"s" * 70, "x5c": [b"c" * 900] * 3}, "authData": data})

    assert made(Told(attestation=told)).aaguid == "00010203-0405-0607-0809-0a0b0c0d0e0f"


# Laws over arbitrary bytes

GOOD = Assertion.parse(DEVICE.sign(STATEMENT))


@given(st.text(max_size=200) | st.lists(st.binary(max_size=80).map(base64url), max_size=4).map(".".join))
def test_any_text_is_parsed_or_raises_passkey_error(text: str) -> None:
    """A text that parses is spelled back unchanged, and none of these texts verifies."""
    with contextlib.suppress(PasskeyError):
        assert Assertion.parse(text).spelled() == text
    assert why(text) is not None


@given(st.tuples(*[st.binary(min_size=1, max_size=80)] * 3))
def test_an_assertion_is_read_back_as_spelled(parts: tuple[bytes, bytes, bytes]) -> None:
    """decode(encode(x)) = x."""
    assert Assertion.parse(Assertion(*parts).spelled()) == parts


@given(st.data())
def test_a_changed_signature_is_refused(data: st.DataObject) -> None:
    """Any part may be cut, doubled or mutated; PasskeyError is the only exception."""
    which = data.draw(st.integers(0, 2))
    parts = list(GOOD)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(parts[which]))] * 2)))
    parts[which] = parts[which][:start] + data.draw(st.binary(max_size=8)) + parts[which][end:]

    assert (why(Assertion(*parts).spelled()) is None) == (tuple(parts) == tuple(GOOD))


@given(st.data())
def test_any_registration_bytes_are_accepted_or_raise_passkey_error(data: st.DataObject) -> None:
    """The bytes are mutated registrations, and random ones."""
    answer = DEVICE.make(
        {
            "publicKey": {
                "rp": {"id": "localhost"},
                "challenge": "AA",
                "pubKeyCredParams": [{"type": "public-key", "alg": -7}],
                "excludeCredentials": [],
            }
        }
    )
    client, attestation = from_base64url(answer["client_data"]), from_base64url(answer["attestation"])
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(attestation))] * 2)))
    mutated = attestation[:start] + data.draw(st.binary(max_size=16)) + attestation[end:]
    for raw in (mutated, data.draw(st.binary(max_size=200))):
        with contextlib.suppress(PasskeyError):
            check_registration(client, raw, challenge="AA", origin=ORIGIN)
    for raw in (client[:start], data.draw(st.binary(max_size=60))):
        with contextlib.suppress(PasskeyError):
            said_challenge(raw)


def test_the_longest_registrations_are_read_quickly() -> None:
    """The CBOR reader copies the rest at each value, which only the size limit keeps fast."""
    for raw in (
        b"\x80" * MAX_ATTESTATION_BYTES,
        b"\x99\xff\xff" + b"\x00" * (MAX_ATTESTATION_BYTES - 3),
        b"\xbb" + b"\xff" * 64,
    ):
        with pytest.raises(PasskeyError):
            check_registration(b"{}", raw, challenge="", origin="")


def test_points_of_another_curve_are_refused() -> None:
    """The numbers are of P-384, under the name of P-256."""
    numbers = ec.generate_private_key(ec.SECP384R1()).public_key().public_numbers()
    key = {**DEVICE.cose, -2: numbers.x.to_bytes(48, "big"), -3: numbers.y.to_bytes(48, "big")}

    assert made(Told(key=key)) == "algorithm"
    assert list(itertools.islice(key, 2)) == [1, 3]
