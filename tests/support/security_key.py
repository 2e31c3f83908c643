"""A security key of a test's own: a CTAP 2.1 authenticator in Python, plugged in over CTAPHID at a pseudoterminal.

`SoftKey` is the authenticator: CBOR in, CBOR out, with a PIN, its tries and the two PIN protocols, tokens with permissions,
passkeys, and a touch that a test must give. `Plugged` is its USB port: packets of 64 bytes at the other end of a pty, as a
program has them at /dev/hidrawN. So the library, the product's module and the daemon are the real ones; only the kernel's HID is
missing.

It has the faults that a test sets: `Lie`. Its PIN protocols are written here, from the specification, and not the library's.

Source: FIDO Alliance, CTAP 2.1, sections 6.1, 6.2, 6.4, 6.5 and 11.2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import os
import pty
import select
import struct
import threading
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fido2 import cbor

from aileron.approver_key.hidraw import Port
from aileron.model.passkey import base64url, from_base64url, passkey_id
from tests.support.authenticator import ORIGIN

__all__ = ["PATIENCE_S", "PIN", "Lie", "Plugged", "SoftKey", "plugged"]

PIN: Final = "a-pin-of-its-own-2468"
"""PIN of every key here; long enough that finding it in a file is no accident."""
PATIENCE_S: Final = 20.0
"""Seconds to wait for a packet of the other side, a thread or program of a test, which may stand still longer than a device."""
_UP, _UV, _AT = 0x01, 0x04, 0x40

_OK: Final = b"\x00"
_ERRORS: Final = {
    "invalid": 0x01,
    "missing": 0x14,
    "cancel": 0x2D,
    "no credentials": 0x2E,
    "pin invalid": 0x31,
    "pin blocked": 0x32,
    "auth invalid": 0x33,
    "auth blocked": 0x34,
    "not set": 0x35,
    "verify": 0x36,
    "uv invalid": 0x3F,
}


class _Refusal(Exception):
    """An error status in place of a response."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.status = bytes([_ERRORS[why]])


@dataclasses.dataclass
class Lie:
    """Faults of a device that no honest one has. Each is off by default."""

    unverified: bool = False
    """True if the key signs without having verified its owner, and says so in its flags."""
    other_digest: bool = False
    """True if the key signs other data than it was given."""
    other_key: bool = False
    """True if the key signs with another key than the passkey's."""
    replays: bool = False
    """True if the key answers with the first assertion that it ever gave."""
    garbage: bytes | None = None
    """Response to every request but the one for its properties; None: an honest response."""
    silent_at: int | None = None
    """Command to which the key does not respond."""
    never_stops: bool = False
    """True if the key still reports that it waits for a touch when it is told to stop."""
    is_busy: bool = False
    """True if another program uses the key."""


@dataclasses.dataclass
class _Held:
    key: ec.EllipticCurvePrivateKey
    rp_id: str
    needs_verification: bool
    """True for credProtect level 3: the key does not reveal the passkey without verification."""


class SoftKey:
    """An authenticator. `touch` returns whether it is touched now; while that is False, it waits."""

    def __init__(
        self,
        *,
        pin: str | None = PIN,
        has_sensor: bool = False,
        protects: bool = True,
        protocols: tuple[int, ...] = (2, 1),
    ) -> None:
        self.lie = Lie()
        self.touch: Callable[[], bool] = lambda: True
        self.finger: Callable[[], bool] = lambda: True
        """Function that returns whether the sensor recognizes the finger."""
        self.tries = 8
        self.tries_in_a_row = 3
        self.touched = 0
        """Number of touches."""
        self.signed: list[bytes] = []
        """The hashes that it signed after a touch."""
        self._pin_hash = None if pin is None else hashlib.sha256(pin.encode()).digest()[:16]
        self._has_sensor = has_sensor
        self._protects = protects
        self._protocols = protocols
        self._agreement = ec.generate_private_key(ec.SECP256R1())
        self._token = os.urandom(32)
        self._permissions = 0
        self._rp: str | None = None
        self._held: dict[bytes, _Held] = {}
        self._count = 0
        self._first: bytes | None = None

    # What its owner does

    def unplugged(self) -> None:
        """Reset the state that a key loses when it is pulled out and plugged in again."""
        self.tries_in_a_row = 3
        self._agreement, self._token, self._permissions = ec.generate_private_key(ec.SECP256R1()), os.urandom(32), 0

    def enrolled(self, options: dict[str, Any], origin: str = ORIGIN) -> dict[str, Any]:
        """Return what a page sends on from `navigator.credentials.create(…)`: a browser's part, with the PIN already checked."""
        public = options["publicKey"]
        said = (
            f'{{"type":"webauthn.create","challenge":"{public["challenge"]}","origin":"{origin}","crossOrigin":false}}'
        )
        credential_id, cose = self.make(public["rp"]["id"])
        data = self._data(public["rp"]["id"], _UP | _UV | _AT) + bytes(16)
        data += struct.pack(">H", len(credential_id)) + credential_id + cose
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        return {"client_data": base64url(said.encode()), "attestation": base64url(attestation), "transports": ["usb"]}

    def make(self, rp_id: str = "localhost") -> tuple[bytes, bytes]:
        """Create a passkey that the device holds from now on. Return its id, and its key in COSE."""
        key, credential_id = ec.generate_private_key(ec.SECP256R1()), os.urandom(32)
        self._held[credential_id] = _Held(key, rp_id, self._protects)
        return credential_id, cbor.encode({1: 2, 3: -7, -1: 1, **_point(key)})

    def key_ids(self) -> list[str]:
        """Return the ids of its passkeys as decisions name them."""
        made = [
            (credential_id, cbor.encode({1: 2, 3: -7, -1: 1, **_point(held.key)}))
            for credential_id, held in self._held.items()
        ]
        return [passkey_id(*passkey) for passkey in made]

    def touch_alone(self, credential_id: str, client_hash: bytes, verified: bool) -> tuple[bytes, bytes]:
        """Return authenticator data and signature, as a program gets them that asks by itself and for a touch only."""
        given = self._signed(
            from_base64url(credential_id), "localhost", client_hash, is_verified=verified, is_touched=True
        )
        return given[2], given[3]

    # What it answers

    def answer(self, request: bytes, touched: Callable[[], bool]) -> bytes:
        """Return the response to one CTAP2 request. `touched` waits for a touch and returns False if it was told to stop."""
        if self.lie.garbage is not None and request[0] != 0x04:
            return self.lie.garbage
        try:
            given = cbor.decode(request[1:]) if len(request) > 1 else {}
            assert isinstance(given, dict)
            match request[0]:
                case 0x04:
                    return _OK + cbor.encode(self._info())
                case 0x06:
                    return _OK + _written(self._client_pin(given, touched))
                case 0x02:
                    return _OK + _written(self._assertion(given, touched))
                case _:
                    raise _Refusal("invalid")
        except _Refusal as refusal:
            return refusal.status

    def _info(self) -> dict[int, Any]:
        options: dict[str, bool] = {"rk": True, "up": True, "plat": False, "clientPin": self._pin_hash is not None}
        options |= {"pinUvAuthToken": True}
        if self._has_sensor:
            options |= {"uv": True}
        return {
            1: ["FIDO_2_0", "FIDO_2_1"],
            3: bytes(16),
            4: options,
            5: 1200,
            6: list(self._protocols),
            8: 32,
            9: ["usb"],
        }

    def _client_pin(self, given: dict[int, Any], touched: Callable[[], bool]) -> dict[int, Any]:
        match given[2]:
            case 0x01:
                return {3: self.tries, 4: self.tries_in_a_row == 0}
            case 0x02:
                return {1: {1: 2, 3: -25, -1: 1, **_point(self._agreement)}}
            case 0x09:
                shared = self._shared(given)
                self._check_pin(given[1], shared, given[6])
            case 0x06 if self._has_sensor:
                shared = self._shared(given)
                if not touched():
                    raise _Refusal("cancel")
                if not self.finger():
                    raise _Refusal("uv invalid")
            case _:
                raise _Refusal("invalid")
        self._token, self._permissions, self._rp = os.urandom(32), given[9], given.get(10)
        return {2: _encrypted(given[1], shared, self._token)}

    def _check_pin(self, protocol: int, shared: bytes, encrypted: bytes) -> None:
        if self._pin_hash is None:
            raise _Refusal("not set")
        if self.tries == 0:
            raise _Refusal("pin blocked")
        if self.tries_in_a_row == 0:
            raise _Refusal("auth blocked")
        self.tries, self.tries_in_a_row = self.tries - 1, self.tries_in_a_row - 1
        if not hmac.compare_digest(_decrypted(protocol, shared, encrypted), self._pin_hash):
            self._agreement = ec.generate_private_key(ec.SECP256R1())
            if self.tries == 0:
                raise _Refusal("pin blocked")
            raise _Refusal("auth blocked" if self.tries_in_a_row == 0 else "pin invalid")
        self.tries, self.tries_in_a_row = 8, 3

    def _shared(self, given: dict[int, Any]) -> bytes:
        theirs = given[3]
        numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(theirs[-2]), int.from_bytes(theirs[-3]), ec.SECP256R1())
        secret = self._agreement.exchange(ec.ECDH(), numbers.public_key())
        if given[1] == 1:
            return hashlib.sha256(secret).digest()
        return b"".join(_hkdf(secret, info) for info in (b"CTAP2 HMAC key", b"CTAP2 AES key"))

    def _is_verified(self, given: dict[int, Any], rp_id: str, permission: int) -> bool:
        proof = given.get(6)
        if proof is None:
            return False
        made = hmac.digest(self._token, given[2], "sha256")[: 16 if given[7] == 1 else 32]
        if not hmac.compare_digest(made, proof) or not self._permissions & permission or self._rp not in (None, rp_id):
            raise _Refusal("auth invalid")
        return True

    def _assertion(self, given: dict[int, Any], touched: Callable[[], bool]) -> dict[int, Any]:
        rp_id, client_hash, wants_touch = given[1], given[2], given.get(5, {}).get("up", True)
        is_verified = self._is_verified(given, rp_id, 0x02)
        known = [
            descriptor["id"] for descriptor in given.get(3, ()) if self._tells_of(descriptor["id"], rp_id, is_verified)
        ]
        if not known:
            raise _Refusal("no credentials")
        if wants_touch:
            if not touched():
                raise _Refusal("cancel")
            self.touched += 1
            self._permissions = 0
            self.signed.append(client_hash)
        return self._signed(known[0], rp_id, client_hash, is_verified=is_verified, is_touched=wants_touch)

    def _tells_of(self, credential_id: bytes, rp_id: str, is_verified: bool) -> bool:
        held = self._held.get(credential_id)
        return held is not None and held.rp_id == rp_id and (is_verified or not held.needs_verification)

    def _signed(
        self, credential_id: bytes, rp_id: str, client_hash: bytes, *, is_verified: bool, is_touched: bool
    ) -> dict[int, Any]:
        self._count += 1
        flags = _UP * is_touched | _UV * (is_verified and not self.lie.unverified)
        data = self._data(rp_id, flags)
        key = self._held[credential_id].key
        if is_touched and self.lie.other_key:
            key = ec.generate_private_key(ec.SECP256R1())
        about = hashlib.sha256(b"another").digest() if is_touched and self.lie.other_digest else client_hash
        response = {
            1: {"type": "public-key", "id": credential_id},
            2: data,
            3: key.sign(data + about, ec.ECDSA(hashes.SHA256())),
        }
        if not is_touched:
            return response
        self._first = self._first or cbor.encode(response)
        if self.lie.replays:
            replayed = cbor.decode(self._first)
            assert isinstance(replayed, dict)
            return replayed
        return response

    def _data(self, rp_id: str, flags: int) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + struct.pack(">BI", flags, self._count)


def _written(response: dict[int, Any]) -> bytes:
    return cbor.encode(response)


def _point(key: ec.EllipticCurvePrivateKey) -> dict[int, bytes]:
    numbers = key.public_key().public_numbers()
    return {-2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}


def _hkdf(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=bytes(32), info=info).derive(secret)


def _aes(protocol: int, shared: bytes, start: bytes) -> Cipher[modes.CBC]:
    return Cipher(algorithms.AES(shared if protocol == 1 else shared[32:]), modes.CBC(start))


def _encrypted(protocol: int, shared: bytes, plain: bytes) -> bytes:
    start = bytes(16) if protocol == 1 else os.urandom(16)
    encryptor = _aes(protocol, shared, start).encryptor()
    return (b"" if protocol == 1 else start) + encryptor.update(plain) + encryptor.finalize()


def _decrypted(protocol: int, shared: bytes, given: bytes) -> bytes:
    start, given = (bytes(16), given) if protocol == 1 else (given[:16], given[16:])
    decryptor = _aes(protocol, shared, start).decryptor()
    return decryptor.update(given) + decryptor.finalize()


# --- its USB port ------------------------------------------------------------------------------------------------

_PACKET = 64
_BROADCAST = 0xFFFFFFFF
_INIT, _CBOR, _CANCEL, _KEEPALIVE, _ERROR = 0x86, 0x90, 0x91, 0xBB, 0xBF
_PAUSE_S = 0.02
"""Seconds between two keepalives: five times as often as required."""


class Plugged:
    """A port with a key in it, for the length of a with block."""

    def __init__(self, key: SoftKey, name: str = "Test Key 5") -> None:
        self.key = key
        self.name = name
        self.sent = b""
        """Every byte received from the program."""
        self._over = threading.Event()
        self._channels = 0

    @property
    def port(self) -> Port:
        """The port in the form in which the product finds it."""
        return Port(Path(os.ttyname(self._slave)), self.name, _PACKET, _PACKET)

    def __enter__(self) -> Self:
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)
        os.close(self._master)
        os.close(self._slave)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                packet = self._next(0.05)
                if packet is not None:
                    self._take(packet)

    def _next(self, wait_s: float) -> bytes | None:
        """Return the next packet without the number of its report; None if there was none in time."""
        if not select.select([self._master], [], [], wait_s)[0]:
            return None
        packet = b""
        while len(packet) < _PACKET + 1:
            packet += os.read(self._master, _PACKET + 1 - len(packet))
        self.sent += packet
        return packet[1:]

    def _take(self, packet: bytes) -> None:
        channel, command, length = struct.unpack_from(">IBH", packet)
        data = packet[7:]
        while len(data) < length:
            more = self._next(PATIENCE_S)
            assert more is not None
            data += more[5:]
        data = data[:length]
        if command == _INIT:
            self._channels += 1
            self._say(channel, _INIT, data + struct.pack(">IBBBBB", self._channels, 2, 5, 7, 1, 0x04 | 0x08))
        elif command == _CBOR and self.key.lie.is_busy and data[0] != 0x04:
            self._say(channel, _ERROR, b"\x06")
        elif command == _CBOR and data[0] != self.key.lie.silent_at:
            self._say(channel, _CBOR, self.key.answer(data, lambda: self._touched(channel)))

    def _touched(self, channel: int) -> bool:
        while not self._over.is_set():
            self._say(channel, _KEEPALIVE, b"\x02")
            if self.key.touch():
                return True
            packet = self._next(_PAUSE_S)
            if packet is not None and packet[4] == _CANCEL and not self.key.lie.never_stops:
                return False
        return False

    def _say(self, channel: int, command: int, data: bytes) -> None:
        head, sequence = struct.pack(">IBH", channel, command, len(data)), 0
        while data or sequence == 0:
            room = _PACKET - len(head)
            os.write(self._master, (head + data[:room]).ljust(_PACKET, b"\0"))
            data = data[room:]
            head, sequence = struct.pack(">IB", channel, sequence & 0x7F), sequence + 1


def plugged(key: SoftKey | None = None, **options: Any) -> Plugged:
    """Return a port with this key, or with a new one."""
    return Plugged(key or SoftKey(**options))
