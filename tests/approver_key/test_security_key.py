"""Security keys: a key signs what it is asked for after it has verified the person and was touched; nothing else counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.api.approver import PasskeyEntry
from aileron.approver_key import ctap_channel, hidraw, security_key
from aileron.approver_key.hidraw import Port
from aileron.approver_key.security_key import SecurityKeyError, SecurityKeys, enrolled
from aileron.model.decision import DecisionStatement
from aileron.model.failure import AileronError
from aileron.model.passkey import PasskeyKey, base64url, check_assertion, passkey_id
from aileron.model.secret import Secret
from tests.support.authenticator import ORIGIN
from tests.support.security_key import PATIENCE_S, PIN, Plugged, SoftKey

DIGEST = f"sha256:{'1' * 64}"


class Hands:
    """A person: the PINs that they type, and the prompts that they see."""

    def __init__(self, *typed: str) -> None:
        self.typed = list(typed)
        self.asked: list[str] = []
        self.told: list[str] = []

    def ask(self, question: str) -> Secret:
        """Return the next PIN, which must exist."""
        self.asked.append(question)
        return Secret(self.typed.pop(0).encode())

    @contextlib.contextmanager
    def touching(self) -> Iterator[Callable[[str], None]]:
        """Yield the function that records prompts."""
        yield self.told.append


def entry(key: SoftKey, **other: Any) -> PasskeyEntry:
    """Return a passkey that this key makes, as the daemon lists it."""
    credential_id, cose = key.make()
    return PasskeyEntry(
        **{
            "id": passkey_id(credential_id, cose),
            "name": "my key",
            "origin": ORIGIN,
            "usable": True,
            "algorithm": "ES256",
            "synced": "no",
            "aaguid": None,
            "transports": ["usb"],
            "credential_id": base64url(credential_id),
            "public_key": cose.hex(),
            "approval_id": "act-1",
            "enrolled_at": "2026-11-24T10:00:00.000Z",
            **other,
        }
    )


def about(key_id: str, digest: str = DIGEST) -> DecisionStatement:
    """Return the statement of an approval."""
    return DecisionStatement(
        approval_id="act-2",
        digest=digest,
        decision="approve",
        reason=None,
        at="2026-11-24T10:00:00.000Z",
        key_id=key_id,
    )


class Desk:
    """A key in a port with an enrolled passkey, and a person."""

    def __init__(self, port: Plugged) -> None:
        self.port = port
        self.key = port.key
        self.hands = Hands(PIN)
        self.passkeys: tuple[PasskeyKey, ...] = enrolled([entry(self.key)])
        self.ports: Callable[[], list[Port]] = lambda: [port.port]

    def keys(self) -> SecurityKeys:
        """Return the keys as a command has them."""
        return SecurityKeys(self.passkeys, self.hands, plugged_in=self.ports)

    def sign(self) -> tuple[DecisionStatement, str]:
        """Return the signed statement `about`, and its signature."""
        return self.keys().sign(about)

    def why(self) -> str:
        """Return the reason for which signing fails."""
        with pytest.raises(SecurityKeyError) as refused:
            self.sign()
        return refused.value.why


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeout for the device, which is a thread of this process and may stand still longer than a device is
    waited for.
    """
    monkeypatch.setattr(ctap_channel, "SILENCE_S", PATIENCE_S)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Return a desk with a key that has a PIN, and a person who touches it."""
    with Plugged(SoftKey()) as port:
        yield Desk(port)


def test_a_pin_and_a_touch_sign_a_statement_that_the_daemon_accepts(desk: Desk) -> None:
    """The person gets one question, one prompt and one touch; the prompt comes once the key itself waits for the touch."""
    statement, signature = desk.sign()

    check_assertion(desk.passkeys[0], statement, signature)
    assert (desk.hands.asked, desk.hands.told) == (["PIN of Test Key 5"], ["Touch Test Key 5"])
    assert desk.key.touched == 1


def test_a_security_key_with_only_the_first_pin_protocol_can_sign() -> None:
    """Older devices do not have the second protocol."""
    with Plugged(SoftKey(protocols=(1,))) as port:
        desk = Desk(port)
        statement, signature = desk.sign()
        check_assertion(desk.passkeys[0], statement, signature)


def test_a_security_keys_signature_covers_only_its_own_digest(desk: Desk) -> None:
    """An assertion beside another digest is refused."""
    statement, signature = desk.sign()

    check_assertion(desk.passkeys[0], statement, signature)
    with pytest.raises(AileronError, match="different challenge"):
        check_assertion(desk.passkeys[0], about(statement.key_id, f"sha256:{'2' * 64}"), signature)


def test_each_signature_takes_a_touch_but_the_pin_is_typed_only_once_per_command(desk: Desk) -> None:
    """The device's PIN token is valid for one assertion, so the command gets a new token for each signature."""
    keys = desk.keys()
    first, second = keys.sign(about), keys.sign(about)

    assert (desk.key.touched, len(desk.hands.asked)) == (2, 1)
    assert first[1] != second[1]
    keys.wipe()
    desk.hands.typed = [PIN]
    keys.sign(about)
    assert len(desk.hands.asked) == 2


def test_a_fingerprint_on_a_security_key_replaces_the_pin() -> None:
    """The person types nothing."""
    with Plugged(SoftKey(has_sensor=True)) as port:
        desk = Desk(port)
        statement, signature = desk.sign()

        check_assertion(desk.passkeys[0], statement, signature)
        assert (desk.hands.asked, desk.hands.told[0]) == ([], "Put your finger on Test Key 5")


def test_after_an_unknown_fingerprint_the_security_key_asks_for_the_pin() -> None:
    """A security key that has neither signs nothing."""
    with Plugged(SoftKey(has_sensor=True)) as port:
        desk = Desk(port)
        desk.key.finger = lambda: False
        statement, signature = desk.sign()
        check_assertion(desk.passkeys[0], statement, signature)
        assert desk.hands.asked == ["Finger not recognized. PIN of Test Key 5"]
    with Plugged(SoftKey(has_sensor=True, pin=None)) as port:
        desk = Desk(port)
        desk.key.finger = lambda: False
        assert desk.why() == "verification"


def test_a_wrong_pin_is_reported_with_the_tries_left_and_can_be_retried(desk: Desk) -> None:
    """A text that cannot be a PIN costs no try."""
    desk.hands.typed = ["wrong-1", "abc", "wrong-2", PIN]
    desk.sign()

    assert desk.hands.asked == [
        "PIN of Test Key 5",
        "Wrong PIN, 7 tries left before it blocks. PIN of Test Key 5",
        "A PIN has 4 characters or more. PIN of Test Key 5",
        "Wrong PIN, 6 tries left before it blocks. PIN of Test Key 5",
    ]


def test_after_invalid_pins_the_prompt_appears_at_most_three_times_and_no_try_is_used(desk: Desk) -> None:
    """A fourth question is not asked."""
    desk.hands.typed = ["a", "ab", "x" * 64]
    assert desk.why() == "pin"
    assert (desk.key.tries, len(desk.hands.asked)) == (8, 3)


def test_three_wrong_pins_block_the_security_key_until_it_is_unplugged(desk: Desk) -> None:
    """The device enforces this; once plugged in again, it signs with the right PIN."""
    desk.hands.typed = ["wrong-1", "wrong-2", "wrong-3"]
    assert desk.why() == "blocked"
    desk.hands.typed = [PIN]
    assert desk.why() == "blocked"

    desk.key.unplugged()
    desk.hands.typed = [PIN]
    desk.hands.asked.clear()
    assert desk.sign()
    assert desk.hands.asked == ["PIN of Test Key 5"]


def test_a_low_number_of_pin_tries_is_shown_in_the_prompt(desk: Desk) -> None:
    """A security key without tries left causes no prompt."""
    desk.key.tries = 2
    desk.sign()
    desk.key.tries = 0
    assert desk.why() == "blocked"
    assert desk.hands.asked == ["PIN of Test Key 5 (2 tries left before it blocks)"]


def test_a_security_key_without_pin_and_fingerprint_signs_nothing() -> None:
    """The assertion of such a key would say that the user was not verified."""
    with Plugged(SoftKey(pin=None)) as port:
        desk = Desk(port)
        assert desk.why() == "verification"
        assert (desk.hands.asked, desk.key.touched) == ([], 0)


def test_a_security_key_without_a_passkey_of_this_home_needs_no_touch(desk: Desk) -> None:
    """The command reports it as not enrolled before any prompt."""
    desk.passkeys = enrolled([entry(SoftKey())])
    assert desk.why() == "enrolled"
    assert desk.key.touched == 0


def test_among_several_security_keys_the_one_with_an_enrolled_passkey_is_chosen() -> None:
    """A PIN is not asked for if several are left and none reports a passkey."""
    with Plugged(SoftKey(protects=False), "Mine") as mine, Plugged(SoftKey(), "Another") as other:
        desk = Desk(mine)
        desk.ports = lambda: [other.port, mine.port]
        desk.sign()
        assert desk.hands.asked == ["PIN of Mine"]

        other.key.lie.garbage = b"\x00\xff"
        desk.hands.typed = [PIN]
        desk.sign()

        desk.passkeys = enrolled([entry(SoftKey())])
        assert desk.why() == "several"


def test_a_missing_or_inaccessible_security_key_is_reported_with_the_fix(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a device that cannot be opened names the udev rule."""
    desk.ports = list
    assert desk.why() == "absent"
    desk.ports = lambda: [Port(tmp_path / "gone", "Mine", 64, 64)]
    with pytest.raises(SecurityKeyError, match="udev") as refused:
        desk.sign()
    assert refused.value.why == "permission"


# What a device can do to us


@pytest.mark.parametrize("lie", ["unverified", "other_digest", "other_key"])
def test_an_invalid_assertion_is_refused_before_it_is_sent_to_the_daemon(desk: Desk, lie: str) -> None:
    """The assertion lacks verification, covers another digest or is by another key: it is refused here, before the
    daemon would.
    """
    setattr(desk.key.lie, lie, True)
    assert desk.why() == "answer"
    assert desk.key.touched == 1
    setattr(desk.key.lie, lie, False)
    desk.hands.typed = [PIN]
    assert desk.sign()


def test_a_security_keys_replayed_assertion_is_refused(desk: Desk) -> None:
    """The key answers the second request with its first assertion."""
    desk.sign()
    desk.key.lie.replays = True
    desk.hands.typed = [PIN]
    with pytest.raises(SecurityKeyError) as refused:
        desk.keys().sign(lambda key_id: about(key_id, f"sha256:{'3' * 64}"))
    assert refused.value.why == "answer"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00",
        b"\x00\xff",
        b"\x00\xa1\x01",
        b"\x00\xbf\xff\xff\xff\xff",
        b"\x00" + b"\x81" * 3000,  # in packets, no more than a pseudoterminal holds: it would cut one of them
        b"\x00\xa3\x01\x01\x02\x02\x03\x03",
        b"\xee",
        b"\x00\xa1\x01\xa0",
        b"\x00\x9b" + b"\xff" * 8,
    ],
    ids=lambda raw: raw[:6].hex() or "empty",
)
def test_a_security_keys_malformed_response_is_reported_without_its_bytes(desk: Desk, garbage: bytes) -> None:
    """The error is the same whatever exception the library raises."""
    desk.key.lie.garbage = garbage
    with pytest.raises(SecurityKeyError) as refused:
        desk.sign()
    assert refused.value.why == "answer"
    assert "ff" * 3 not in str(refused.value)


def test_the_wait_for_a_silent_security_key_times_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait ends after the longest silence that a device may keep."""
    monkeypatch.setattr(ctap_channel, "SILENCE_S", 0.3)
    desk.key.lie.silent_at = 0x02
    assert desk.why() == "answer"


class Clock:
    """A stand-in for the module `time` that a test can advance."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """Return the seconds of time.monotonic(), plus those that it is ahead."""
        return time.monotonic() + self.ahead_s


def test_the_request_to_a_security_key_that_is_not_touched_in_time_is_cancelled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout counts from the prompt for the touch, however long it took to get there."""
    clock = Clock()
    monkeypatch.setattr(security_key, "time", clock)

    def touch() -> bool:
        clock.ahead_s = security_key.TOUCH_S if desk.hands.told else 0.0
        return False

    desk.key.touch = touch
    assert desk.why() == "timeout"
    assert desk.hands.told == ["Touch Test Key 5"]


def test_a_security_key_that_ignores_the_cancellation_is_abandoned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device keeps reporting that it waits for a touch, and must not block the command forever."""
    monkeypatch.setattr(security_key, "TOUCH_S", 0.3)
    monkeypatch.setattr(security_key, "GRACE_S", 0.3)
    desk.key.touch = lambda: False
    desk.key.lie.never_stops = True
    assert desk.why() == "answer"


def test_there_is_no_touch_prompt_for_a_security_key_that_another_program_uses(desk: Desk) -> None:
    """A touch would approve the other program's request; signing is not retried."""
    desk.key.lie.is_busy = True
    with pytest.raises(SecurityKeyError, match="Do not touch it") as refused:
        desk.sign()
    assert (refused.value.why, desk.hands.told) == ("busy", [])


def test_the_pin_is_not_sent_to_the_security_key_in_clear(desk: Desk) -> None:
    """The error also contains nothing that was typed."""
    desk.sign()
    assert PIN.encode() not in desk.port.sent
    desk.hands.typed = ["wrong-1", "wrong-2", "wrong-3"]
    with pytest.raises(SecurityKeyError) as refused:
        desk.sign()
    assert "wrong" not in str(refused.value).replace("wrong PINs", "")


# Which passkeys are meant


def test_passkeys_that_no_security_key_can_use_for_this_home_are_skipped() -> None:
    """Skipped are unusable ones, those of other pages, of this machine itself, and with a wrong id. Positive control: a
    passkey without transports.
    """
    key = SoftKey()
    assert len(enrolled([entry(key, transports=[])])) == 1
    for other in (
        {"usable": False},
        {"origin": "https://bank.example"},
        {"transports": ["internal"]},
        {"transports": ["hybrid", "internal"]},
        {"id": "webauthn:" + "0" * 32},
        {"credential_id": "not base64!"},
    ):
        assert enrolled([entry(key, **other)]) == ()


# What the kernel says is plugged in

FIDO_DESCRIPTOR = bytes.fromhex("06d0f10901a1010920150026ff007508954081020921150026ff00750895409102c0")
KEYBOARD = bytes.fromhex("05010906a101050719e029e715002501750195088102c0")


def put(folder: Path, name: str, descriptor: bytes, called: str) -> None:
    """Write a HID device as sysfs has it."""
    device = folder / name / "device"
    device.mkdir(parents=True)
    (device / "report_descriptor").write_bytes(descriptor)
    (device / "uevent").write_text(f"DRIVER=hid-generic\nHID_NAME={called}\n")


def test_security_keys_are_recognized_without_opening_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Device names are sanitized; a device with a false HID descriptor is not recognized."""
    monkeypatch.setattr(hidraw, "SYSFS", tmp_path / "class")
    assert (hidraw.is_plugged_in(), hidraw.ports()) == (False, [])
    put(tmp_path / "class", "hidraw0", KEYBOARD, "Keyboard")
    assert (hidraw.is_plugged_in(), hidraw.ports()) == (False, [])
    put(tmp_path / "class", "hidraw1", FIDO_DESCRIPTOR, "Evil: \x1b[2KKey")
    put(tmp_path / "class", "hidraw2", FIDO_DESCRIPTOR.replace(b"\x95\x40", b"\x95\x01"), "Tiny")

    assert hidraw.is_plugged_in()
    assert hidraw.ports() == [Port(Path("/dev/hidraw1"), "Evil  \\x1b[2KKey", 64, 64)]
