"""The approver of this home and their consents, as the vault's file stores them: with limits, a fixed order and one spelling.

Pure. The types are those of model/consent.py; this module says which values a file may hold. The same checks serve values that
were read, which anybody may have written, and values that are about to be written, so that everything written can be read
back.

Rules
- Each entry is stored once: consents in order of kind and name, grants in order of their id, used decisions in order of their
  approval, passkeys in order of their id. Without a passkey the file has no JSON key for passkeys, so such a file is the same
  as before passkeys existed.
- The spelling is canonical JSON (RFC 8785), also for a grant's values, which can be any JSON that its action accepts.
- This module verifies nothing; the seal does (opened.py).

Source: docs/reference/vault-format.md (Consents). Not here: when a consent is needed (daemon/), signing (approver_key/).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from aileron.model.canonical import canonical_json
from aileron.model.consent import MAX_PASSKEYS, Consent, Consents, Passkey, StandingGrant
from aileron.model.decision import key_id_of
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.model.passkey import ALGORITHMS, MAX_CREDENTIAL_ID_BYTES, RP_ID, from_base64url, passkey_id
from aileron.model.text import hidden_at
from aileron.vault.bindings import LATEST_S

__all__ = ["MAX_CONSENTS", "MAX_GRANTS", "MAX_USED", "check_consents", "check_kept", "spelled_consents"]

MAX_CONSENTS: Final = 4096  # each list of a vault has at most 1000 entries, and there are a few kinds
MAX_GRANTS: Final = 256  # a person reads them, and must know which runs need no approval
MAX_GRANT_BYTES: Final = 64 << 10  # 64 KiB as canonical JSON: a list of a thousand recipients
MAX_USES: Final = 1_000_000  # a higher number would be no limit
MAX_USED: Final = 4096  # decisions of a day at most, each by a person
MAX_REASON: Final = 4000  # characters, as for the reason of every decision (audit/moves.py)
_MAX_TEXT: Final = 1024  # characters: a full name of the greatest length
_MAX_KEY_BYTES: Final = 600  # RSA of 4096 bits, in COSE
_MAX_TRANSPORTS: Final = 8  # Web Authentication, section 5.8.4, knows six
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_COSE: Final = re.compile(rf"(?:[0-9a-f]{{2}}){{1,{_MAX_KEY_BYTES}}}")
_ORIGIN: Final = re.compile(rf"http://{RP_ID}:[1-9][0-9]{{0,4}}")


def spelled_consents(consents: Consents) -> bytes:
    """Return the consents as canonical JSON. Raises ValueError for a value without canonical JSON, such as a number of 2**53
    and up in a grant.
    """
    values: JSONObject = msgspec.to_builtins(consents)
    if not consents.passkeys:
        del values["passkeys"]
    return canonical_json(values)


def check_consents(consents: Consents) -> None:
    """Check that a file may contain these consents. Raise ValueError if it may not, with the reason and without quoting
    anything but numbers.
    """
    _expect(_KEY.fullmatch(consents.public_key) is not None, "the approver's key is not 64 hex digits")
    _expect(consents.key_id == key_id_of(bytes.fromhex(consents.public_key)), "the approver's key has another id")
    _expect(0 <= consents.created_ms <= LATEST_S * 1000, "the date of the approver's key is no date")
    if consents.appointed is not None:
        for text in msgspec.to_builtins(consents.appointed).values():
            _check_text(text or "none", "what the approver was named with")
    _expect(len(consents.agreed) <= MAX_CONSENTS, f"{len(consents.agreed)} consents, more than {MAX_CONSENTS}")
    _expect(len(consents.grants) <= MAX_GRANTS, f"{len(consents.grants)} grants, more than {MAX_GRANTS}")
    for consent in consents.agreed:
        _check_consent(consent)
    _check_ascending(
        [(consent.kind.value, consent.name) for consent in consents.agreed],
        "consents are not in order of kind and name",
    )
    for grant in consents.grants:
        _check_grant(grant)
    _check_ascending([grant.id for grant in consents.grants], "grants are not in order of their ids")
    _expect(len(consents.used) <= MAX_USED, f"{len(consents.used)} used decisions, more than {MAX_USED}")
    for decision in consents.used:
        _check_text(decision.approval, "what a used decision was about")
        _expect(0 <= decision.until <= LATEST_S, "the end of a used decision is no date")
    _check_ascending(
        [decision.approval for decision in consents.used], "used decisions are not in order of their approvals"
    )
    _expect(len(consents.passkeys) <= MAX_PASSKEYS, f"{len(consents.passkeys)} passkeys, more than {MAX_PASSKEYS}")
    for passkey in consents.passkeys:
        _check_passkey(passkey)
    _check_ascending([passkey.id for passkey in consents.passkeys], "passkeys are not in order of their ids")


def check_kept(consents: Consents) -> None:
    """Raise ValueError unless `check_consents` accepts the consents and their values are the same after they were
    written and read back.
    """
    check_consents(consents)
    spelled = spelled_consents(consents)
    try:
        again = msgspec.json.decode(spelled, type=Consents)
        is_same = spelled_consents(again) == spelled
    except (ValueError, RecursionError):  # a number whose spelling is read back as a number without one
        is_same = False
    _expect(is_same, "a value of a grant cannot be kept as it is")


def _check_consent(consent: Consent) -> None:
    _check_text(consent.name, "the name of a consent")
    _expect(_DIGEST.fullmatch(consent.digest) is not None, "the digest of a consent is not sha256: and 64 hex digits")
    _check_text(consent.approval, "what a consent was given with")


def _check_grant(grant: StandingGrant) -> None:
    _check_text(grant.id, "the id of a grant")
    _check_text(grant.action, "the action of a grant")
    _expect(
        _DIGEST.fullmatch(grant.action_digest) is not None, "the digest of a grant is not sha256: and 64 hex digits"
    )
    for credential in grant.credentials:
        _check_text(credential, "a credential of a grant")
    for constraint in grant.constraints:
        _check_text(constraint.argument, "an argument of a grant")
    _expect(1 <= grant.uses <= MAX_USES, f"a grant has {grant.uses} uses, not 1 to {MAX_USES}")
    _expect(0 <= grant.until <= LATEST_S, "the end of a grant is no date")
    _expect(0 <= grant.used <= grant.uses, f"a grant of {grant.uses} uses was used {grant.used} times")
    size = len(canonical_json(msgspec.to_builtins(grant)))
    _expect(size <= MAX_GRANT_BYTES, f"a grant has {size} bytes, more than {MAX_GRANT_BYTES}")


def _check_passkey(passkey: Passkey) -> None:
    """Raise ValueError if a passkey is invalid. Its public key is checked only when the passkey is used, so that
    opening a vault needs no library.
    """
    subject = passkey.subject
    try:
        credential = from_base64url(subject.credential_id)
    except AileronError:
        credential = b""
    is_key = _COSE.fullmatch(subject.public_key) is not None
    _expect(is_key, "the key of a passkey is not hex digits, or too long")
    _expect(1 <= len(credential) <= MAX_CREDENTIAL_ID_BYTES, "what a passkey is called by its device is no such name")
    is_named = passkey.id == subject.key_id == passkey_id(credential, bytes.fromhex(subject.public_key))
    _expect(is_named, "a passkey has another id")
    is_here = subject.rp_id == RP_ID and _ORIGIN.fullmatch(subject.origin) is not None
    _expect(is_here, "the page of a passkey is none of this machine")
    _expect(subject.algorithm in ALGORITHMS.values(), "the algorithm of a passkey is none of those there are")
    _expect(len(subject.transports) <= _MAX_TRANSPORTS, "a passkey is reached in more ways than there are")
    for text in (
        subject.name,
        passkey.approval,
        passkey.at,
        passkey.signature,
        subject.aaguid or "none",
        *subject.transports,
    ):
        _check_text(text, "what is known of a passkey")
    _expect(len(passkey.reason or "") <= MAX_REASON, "the reason of a passkey's enrolment is too long")


def _check_text(text: str, what: str) -> None:
    _expect(1 <= len(text) <= _MAX_TEXT, f"{what} has {len(text)} characters, not 1 to {_MAX_TEXT}")
    _expect(hidden_at(text) is None, f"{what} has a character that cannot be seen")


def _check_ascending(names: Sequence[Any], otherwise: str) -> None:
    _expect(all(first < second for first, second in itertools.pairwise(names)), f"the {otherwise}, each once")


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)
