"""Signatures by a security key at this machine in place of the approver's key, with a PIN or a fingerprint, and a touch.

Runs where a decision is signed, in a process that no other process can read (isolation.py). The statement is made here, as
for the approver's key; the response is a passkey's assertion, in the form that a browser would send, and is checked here by
the daemon's own rules before it is sent (model/passkey.py). Neither the daemon, which lists the enrolled passkeys, nor the
device is trusted.

The steps for one statement:
1. a key is chosen: the only plugged-in key that this user can open or, of several, the only one that reports a passkey
   of this home
2. it can verify its user: by a sensor of its own, or by a PIN, which is typed at the terminal
3. after that verification it issues a token, which is valid for one assertion of our relying party
4. the token is used to ask which of the home's passkeys the key holds, without a touch
5. the statement names that passkey; the key signs it once the person touches it, within TOUCH_S
6. the response is checked as the daemon will check it

Rules
- The PIN goes to the key alone, encrypted for it (CTAP 2.2, section 6.5), and is stored until `wipe` at most.
- Verification is not optional: there is no assertion without it, and no U2F, which cannot verify.
- Each signature needs its own touch. A key that does not respond in time is told to stop.
- No PIN is retried automatically, and the person is told how many tries are left: after eight the key blocks its PIN.

Source: FIDO Alliance, CTAP 2.2, sections 6.2 and 6.5; W3C, Web Authentication Level 3, section 5.8.1;
docs/adr/0046-security-keys-at-a-terminal.md. Not here: the keys that are plugged in (hidraw.py), packets (ctap_channel.py), the
kinds that a passkey decides (model/consent.py), enrolling a passkey (the page).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar, final

from aileron.api.approver import PasskeyEntry
from aileron.approver_key import isolation
from aileron.approver_key.hidraw import Port, ports
from aileron.model.decision import Statement
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.passkey import RP_ID, Assertion, PasskeyKey, challenge_of, check_assertion, from_base64url, id_of
from aileron.model.secret import Secret

if TYPE_CHECKING:  # 80 ms, needed only if there is a key
    from fido2.ctap import CtapError
    from fido2.ctap2.base import AssertionResponse, Ctap2
    from fido2.ctap2.pin import PinProtocol

__all__ = [
    "GRACE_S",
    "OFFER",
    "TOUCH_S",
    "AtTerminal",
    "Person",
    "SecurityKeyError",
    "SecurityKeys",
    "Why",
    "client_data",
    "enrolled",
]

OFFER: Final = "Security key found: press Enter to use it, or type the approver passphrase."
"""Line shown above the passphrase prompt."""
TOUCH_S: Final = 60.0
"""Seconds to wait for the touch after the PIN. Keys themselves wait for 30 s; keys with a sensor that retries wait longer."""
_LOOK_S: Final = 5.0
"""Seconds to wait for the responses to requests that need no person; a key responds in milliseconds."""
GRACE_S: Final = 2.0
"""Seconds to wait after TOUCH_S for a key to report that it has stopped."""
_TRIES: Final = 3
"""Number of wrong PINs in a row after which a key must be unplugged before the next try: CTAP 2.2, section 6.5.5.7.2."""
_FEW_TRIES: Final = 3
"""Number of remaining attempts at and below which the PIN prompt shows how many remain."""
_MIN_PIN: Final = 4
"""Minimum length of a PIN in code points: CTAP 2.2, section 6.5.1. A shorter text cannot be a PIN, and would cost an
attempt.
"""
_MAX_PIN_BYTES: Final = 63
_NO_DATA: Final = bytes(32)
"""Hash for a request that only asks a security key whether it holds a passkey. It is not the hash of any data."""
_ORIGIN: Final = "http://localhost:"

S = TypeVar("S", bound=Statement)
Why = Literal[
    "absent",
    "permission",
    "several",
    "busy",
    "verification",
    "pin",
    "blocked",
    "enrolled",
    "timeout",
    "answer",
]
"""Reasons why a security key did not sign."""
_CLASSES: Final[dict[Why, FailureClass]] = {
    "absent": FailureClass.NOT_FOUND,
    "permission": FailureClass.UNAUTHORIZED,
    "several": FailureClass.INVALID_REQUEST,
    "busy": FailureClass.BUSY,
    "verification": FailureClass.UNAUTHORIZED,
    "pin": FailureClass.UNAUTHORIZED,
    "blocked": FailureClass.UNAUTHORIZED,
    "enrolled": FailureClass.UNAUTHORIZED,
    "timeout": FailureClass.CANCELLED,
    "answer": FailureClass.EXTERNAL_API_ERROR,
}


class SecurityKeyError(AileronError):
    """Error: a security key did not sign. `why` and the message give the reason."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(_CLASSES[why], f"nothing is signed: {message}", boundary=Boundary.USER)
        self.why = why


class Person(Protocol):
    """The interface to the person at this terminal, who has the key."""

    def ask(self, question: str) -> Secret:
        """Prompt with `question`, without echo, and return the typed text, which is not empty. Raises AileronError or
        KeyboardInterrupt.
        """
        ...

    def touching(self) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        """Return a context manager for a block in which the person does not type. It yields a function that shows a
        line; input in the block is discarded. Raises AileronError.
        """
        ...


class AtTerminal:
    """The interface to the person at the terminal of this process."""

    def ask(self, question: str) -> Secret:
        """Prompt with isolation.ask_passphrase."""
        return isolation.ask_passphrase(question)

    def touching(self) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        """Hold the terminal with isolation.untyped."""
        return isolation.untyped()


class _PinError(Exception):
    """The PIN was wrong: `left` attempts remain, or None if the key does not report the number."""

    def __init__(self, left: int | None) -> None:
        super().__init__()
        self.left: Final = left


class _SensorError(Exception):
    """The sensor recognized no fingerprint, or is blocked; the key has a PIN."""


class _Facts(NamedTuple):
    """A security key's report about itself: its sensor and PIN, and the number of PIN attempts that are left."""

    has_sensor: bool
    has_pin: bool
    tries_left: int | None


class _Verified(NamedTuple):
    """The proof of user verification in a request to a key. It is a PIN/UV token, or nothing if the key's sensor verifies its
    owner during the request (CTAP 2.0).
    """

    protocol: PinProtocol | None
    token: bytes | None

    def options(self, *, touched: bool) -> dict[str, bool] | None:
        """Return the options of a getAssertion request: whether the key's sensor must verify (`uv`), and that no touch is needed
        (`up`). None if neither applies.
        """
        uv = {"uv": True} if touched and self.token is None else {}
        return {**uv, **({} if touched else {"up": False})} or None

    def proof(self, client_hash: bytes) -> tuple[bytes | None, int | None]:
        """Return the last two parameters of a getAssertion request: pinUvAuthParam and pinUvAuthProtocol. Both are None without a
        token.
        """
        if self.protocol is None or self.token is None:
            return None, None
        return self.protocol.authenticate(self.token, client_hash), self.protocol.VERSION


def enrolled(passkeys: Iterable[PasskeyEntry]) -> tuple[PasskeyKey, ...]:
    """Return the passkeys of this home's page that a security key can hold: those with USB as a transport, or with no transport
    listed.

    Omits a passkey whose id does not match its contents, because it would sign under another passkey's name.
    """
    return tuple(
        key
        for passkey in passkeys
        if passkey.usable
        and passkey.origin.startswith(_ORIGIN)
        and ("usb" in passkey.transports or not passkey.transports)
        for key in _own(passkey)
    )


def _own(passkey: PasskeyEntry) -> Iterator[PasskeyKey]:
    key = PasskeyKey(
        name=passkey.name,
        credential_id=passkey.credential_id,
        public_key=passkey.public_key,
        rp_id=RP_ID,
        origin=passkey.origin,
    )
    with contextlib.suppress(AileronError):
        if id_of(key) == passkey.id:
            yield key


@final
class SecurityKeys:
    """The plugged-in security keys of one person, for one or two decisions in one home. The typed PIN is stored until `wipe`."""

    def __init__(
        self, keys: Sequence[PasskeyKey], person: Person, *, plugged_in: Callable[[], Sequence[Port]] = ports
    ) -> None:
        self._keys: Final = keys
        self._person: Final = person
        self._plugged_in: Final = plugged_in
        self._pin: Secret | None = None

    def wipe(self) -> None:
        """Delete the typed PIN from memory, as far as Python can."""
        self._pin = None

    def sign(self, statement_of: Callable[[str], S]) -> tuple[S, str]:
        """Return the statement that `statement_of` makes for the id of a passkey, and its signature.

        Raises SecurityKeyError, KeyboardInterrupt, or AileronError as `Person.ask` does.
        """
        port = self._chosen()
        facts = _at(port, _facts)
        _check_verifies(port, facts)
        by_pin, said, tries = not facts.has_sensor, "", _TRIES
        while True:
            if by_pin and self._pin is None:
                self._pin = self._asked(port, facts, said)
            try:
                with self._person.touching() as tell:
                    return self._signed(port, facts, tell, statement_of)
            except _SensorError:  # at most once: the PIN is used from now on
                by_pin, said = True, "Finger not recognized. "
            except _PinError as wrong:
                self._pin, tries = None, tries - 1
                if not tries or wrong.left == 0:
                    raise _wrong_pin(port, wrong.left) from None
                said = f"Wrong PIN, {_tries(wrong.left)}. "

    def _chosen(self) -> Port:
        """Return the key to use: the only plugged-in key, or the only key that reports holding a passkey of this home."""
        found = list(self._plugged_in())
        usable = [port for port in found if port.may_open]
        if not found:
            raise SecurityKeyError("absent", "no security key is plugged in")
        if not usable:
            raise SecurityKeyError(
                "permission",
                f"this user may not open {found[0].path} ({found[0].name}). udev 244 or newer lets in whoever sits at this "
                "machine, and nobody over ssh: use the passphrase there",
            )
        if len(usable) == 1:
            return usable[0]
        holding = [port for port in usable if self._may_hold(port)]
        if len(holding) != 1:
            raise SecurityKeyError(
                "several", f"{len(usable)} security keys are plugged in: leave only the one that is enrolled here"
            )
        return holding[0]

    def _may_hold(self, port: Port) -> bool:
        """Return whether the key reports, without a PIN, that it holds one of the passkeys; False if it does not respond, or
        fails.
        """
        try:
            return _at(port, lambda ctap: _held(ctap, self._keys, _Verified(None, None))) is not None
        except SecurityKeyError:
            return False

    def _asked(self, port: Port, facts: _Facts, said: str) -> Secret:
        few = facts.tries_left is not None and facts.tries_left <= _FEW_TRIES and not said
        left = f" ({_tries(facts.tries_left)})" if few else ""
        question = f"{said}PIN of {port.name}{left}"
        for _ in range(_TRIES):
            pin = self._person.ask(question)
            if _is_pin(pin):
                return pin
            question = f"A PIN has {_MIN_PIN} characters or more. PIN of {port.name}{left}"
        raise SecurityKeyError("pin", f"what was typed is no PIN, which has {_MIN_PIN} characters or more")

    def _signed(
        self, port: Port, facts: _Facts, tell: Callable[[str], None], statement_of: Callable[[str], S]
    ) -> tuple[S, str]:
        def work(ctap: Ctap2, deadline: _Deadline) -> tuple[S, str]:
            verified = _verified(ctap, port, facts, self._pin, tell, deadline)
            key = _held(ctap, self._keys, verified)
            if key is None:
                raise SecurityKeyError(
                    "enrolled", f"{port.name} holds no passkey of this home: aileron approver passkeys"
                )
            statement = statement_of(id_of(key))
            return statement, _assertion(ctap, key, statement, verified, f"Touch {port.name}", tell, deadline)

        return _at_work(port, work)


# --- an opened key -----------------------------------------------------------------------------------------------

_T = TypeVar("_T")


class _Deadline(threading.Event):
    """An event that counts as set once `seconds` have passed. The library then tells the security key to stop."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._until: Final = time.monotonic() + seconds

    def is_set(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self._until


def _at(port: Port, work: Callable[[Ctap2], _T]) -> _T:
    """Return the result of `work`, run with the opened key for requests that need no person. Raises SecurityKeyError if the key
    fails.
    """
    with _opened(port, _LOOK_S) as ctap:
        return work(ctap)


def _at_work(port: Port, work: Callable[[Ctap2, _Deadline], _T]) -> _T:
    """Open the security key, and return the result of `work`, which waits until a person has entered the PIN or given a
    fingerprint, and has touched the key. Raises SecurityKeyError if the key fails.
    """
    with _opened(port, TOUCH_S + GRACE_S) as ctap:
        return work(ctap, _Deadline(TOUCH_S))


@contextlib.contextmanager
def _opened(port: Port, seconds: float) -> Iterator[Ctap2]:
    from fido2.ctap import CtapError
    from fido2.ctap2.base import Ctap2
    from fido2.hid import CAPABILITY

    from aileron.approver_key.ctap_channel import BusyElsewhereError, SilentError, opened

    try:
        with opened(port, time.monotonic() + seconds) as device:
            if not device.capabilities & CAPABILITY.CBOR:  # U2F alone
                raise _cannot_verify(port)
            yield Ctap2(device)
    except CtapError as error:
        raise _refused(port, error) from None
    except BusyElsewhereError:
        raise SecurityKeyError(
            "busy",
            f"another program is using {port.name} now. Do not touch it, since the touch would be that program's: wait, or "
            "pull it out and plug it in again",
        ) from None
    except SilentError:
        raise SecurityKeyError("answer", f"{port.name} does not answer: pull it out and plug it in again") from None
    except OSError as error:
        raise SecurityKeyError("answer", f"{port.name} can no longer be used ({error.strerror or error})") from None
    except _garbled():  # their messages may contain what the key has sent
        raise SecurityKeyError("answer", f"{port.name} sent an answer that cannot be read") from None


def _garbled() -> tuple[type[Exception], ...]:
    """Return the exception types that the library fido2 raises for malformed responses of a security key, because it
    does not validate them first.
    """
    from fido2.hid import ConnectionFailure

    return (
        ConnectionFailure,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        NotImplementedError,
        struct.error,
    )


def _refused(port: Port, error: CtapError) -> SecurityKeyError:
    """Return the error that explains a security key's error code to a person."""
    from fido2.ctap import CtapError

    codes = CtapError.ERR
    match error.code:
        case codes.PIN_AUTH_BLOCKED:
            return SecurityKeyError(
                "blocked", f"too many wrong PINs in a row: pull {port.name} out, and plug it in again"
            )
        case codes.PIN_BLOCKED | codes.UV_BLOCKED:
            return SecurityKeyError(
                "blocked", f"the PIN of {port.name} is blocked: only a reset of it, which erases it, helps"
            )
        case codes.KEEPALIVE_CANCEL | codes.USER_ACTION_TIMEOUT | codes.ACTION_TIMEOUT | codes.TIMEOUT:
            return SecurityKeyError("timeout", f"nobody touched {port.name} in time")
        case codes.OPERATION_DENIED | codes.NOT_ALLOWED:
            return SecurityKeyError("timeout", f"it was refused at {port.name}")
        case codes.NO_CREDENTIALS | codes.INVALID_CREDENTIAL:
            return SecurityKeyError("enrolled", f"{port.name} holds no passkey of this home: aileron approver passkeys")
        case codes.UV_INVALID:
            return SecurityKeyError("verification", f"{port.name} did not know whose finger it was")
        case codes.PIN_NOT_SET | codes.PUAT_REQUIRED:
            return _cannot_verify(port)
        case code:
            return SecurityKeyError("answer", f"{port.name} refused (CTAP error 0x{int(code):02x})")


# --- user verification -------------------------------------------------------------------------------------------


def _facts(ctap: Ctap2) -> _Facts:
    from fido2.ctap2.pin import ClientPin

    options = ctap.info.options
    has_pin = options.get("clientPin") is True
    left = _count(ClientPin(ctap).get_pin_retries()[0]) if has_pin else None
    return _Facts(options.get("uv") is True, has_pin, left)


def _check_verifies(port: Port, facts: _Facts) -> None:
    if not facts.has_sensor and not facts.has_pin:
        raise _cannot_verify(port)
    if not facts.has_sensor and facts.tries_left == 0:
        raise _wrong_pin(port, 0)


def _cannot_verify(port: Port) -> SecurityKeyError:
    return SecurityKeyError(
        "verification",
        f"{port.name} has no PIN and no fingerprint, so it cannot tell who touches it: give it a PIN, in the settings of a "
        "browser (Security keys) or with `fido2-token -S`",
    )


def _wrong_pin(port: Port, left: int | None) -> SecurityKeyError:
    if left == 0:
        return SecurityKeyError(
            "blocked", f"the PIN of {port.name} is blocked: only a reset of it, which erases it, helps"
        )
    return SecurityKeyError("pin", f"wrong PIN for {port.name}, {_tries(left)}")


def _is_pin(pin: Secret) -> bool:
    """Return whether `pin` can be a PIN. Any other text would cost an attempt."""
    raw = pin.reveal()
    with contextlib.suppress(UnicodeDecodeError):
        return len(raw.decode()) >= _MIN_PIN and len(raw) <= _MAX_PIN_BYTES
    return False


def _verified(
    ctap: Ctap2, port: Port, facts: _Facts, pin: Secret | None, tell: Callable[[str], None], deadline: _Deadline
) -> _Verified:
    """Return the proof that the key's sensor or the PIN verified the person. Raises _PinError, _SensorError or CtapError."""
    from fido2.ctap import CtapError
    from fido2.ctap2.pin import ClientPin

    permission = ClientPin.PERMISSION.GET_ASSERTION
    if pin is None and ctap.info.options.get("pinUvAuthToken") is not True:
        return _Verified(None, None)  # a sensor of CTAP 2.0 verifies during the assertion itself
    client = ClientPin(ctap)
    try:
        if pin is not None:
            return _Verified(client.protocol, client.get_pin_token(pin.reveal().decode(), permission, RP_ID))
        tell(f"Put your finger on {port.name}")
        return _Verified(client.protocol, client.get_uv_token(permission, RP_ID, deadline))
    except CtapError as error:
        if error.code == CtapError.ERR.PIN_INVALID:
            raise _PinError(_count(client.get_pin_retries()[0])) from None
        if error.code in (CtapError.ERR.UV_INVALID, CtapError.ERR.UV_BLOCKED) and facts.has_pin:
            raise _SensorError from None
        raise


def _count(said: Any) -> int | None:
    return said if isinstance(said, int) else None


def _tries(left: int | None) -> str:
    if left is None:
        return "try again"
    return f"{left} {'try' if left == 1 else 'tries'} left before it blocks"


# --- the assertion -----------------------------------------------------------------------------------------------


def _held(ctap: Ctap2, keys: Sequence[PasskeyKey], verified: _Verified) -> PasskeyKey | None:
    """Return the first of the passkeys `keys` that the security key reports holding; None if it holds none. No touch is
    needed. Raises CtapError.
    """
    from fido2.ctap import CtapError

    for key in keys:
        try:
            _asserted(ctap, key, _NO_DATA, verified, touched=False)
        except CtapError as error:
            if error.code not in (CtapError.ERR.NO_CREDENTIALS, CtapError.ERR.INVALID_CREDENTIAL):
                raise
        else:
            return key
    return None


def _assertion(
    ctap: Ctap2,
    key: PasskeyKey,
    statement: Statement,
    verified: _Verified,
    prompt: str,
    tell: Callable[[str], None],
    deadline: _Deadline,
) -> str:
    """Return the signature of the passkey `key` over a statement, as the text that is sent to the daemon.

    Raises CtapError, or SecurityKeyError for an invalid signature.
    """
    client = client_data(challenge_of(statement), key.origin)
    answer = _asserted(
        ctap, key, hashlib.sha256(client).digest(), verified, touched=True, deadline=deadline, tell=lambda: tell(prompt)
    )
    signature = Assertion(bytes(answer.signature), bytes(answer.auth_data), client).spelled()
    try:
        check_assertion(key, statement, signature)
    except AileronError as error:
        raise SecurityKeyError("answer", error.failure.message) from None
    return signature


def _asserted(
    ctap: Ctap2,
    key: PasskeyKey,
    client_hash: bytes,
    verified: _Verified,
    *,
    touched: bool,
    deadline: _Deadline | None = None,
    tell: Callable[[], None] = lambda: None,
) -> AssertionResponse:
    from fido2.ctap import STATUS

    def keep(status: int) -> None:
        if status == STATUS.UPNEEDED:  # the key reports that our request waits for a touch
            tell()

    proof, version = verified.proof(client_hash)
    return ctap.get_assertion(
        RP_ID,
        client_hash,
        [{"type": "public-key", "id": from_base64url(key.credential_id)}],
        None,
        verified.options(touched=touched),
        proof,
        version,
        event=deadline,
        on_keepalive=keep,
    )


def client_data(challenge: str, origin: str) -> bytes:
    """Return exactly the bytes of client data that a browser would sign: Web Authentication Level 3, section 5.8.1.1."""
    said = {"type": "webauthn.get", "challenge": challenge, "origin": origin, "crossOrigin": False}
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
