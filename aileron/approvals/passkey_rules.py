"""Rules for the enrollment of a passkey, given the passkeys that are already enrolled. Pure.

Runs in the daemon, twice: when a passkey was made, and when the approver's key has signed its enrollment, perhaps a quarter
of an hour later. Trusts neither the passkey's maker nor the stored question.

1. the passkey was made on the page that this home's daemon serves, at its current port
2. its key is valid, and its id matches its contents
3. it has a name of its own that a person can read, and is not enrolled yet
4. the maximum number of passkeys is not reached

Source: docs/reference/consents.md. Not here: what a browser sent (model/passkey.py), what a passkey decides (model/consent.py).
"""

from __future__ import annotations

from typing import Final

from aileron.model.consent import MAX_PASSKEYS, Consents, PasskeyConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.passkey import RP_ID, check_key, id_of
from aileron.model.text import hidden_at

__all__ = ["MAX_NAME_CHARACTERS", "check_enrollable", "check_name"]

MAX_NAME_CHARACTERS: Final = 64
"""Maximum number of characters in a passkey's name; enough for `Mira's old phone`."""


def check_name(consents: Consents, name: str) -> None:
    """Check that one more passkey can be enrolled, and that it can have this name. Raises
    AileronError(invalid_request).
    """
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or name.strip() != name or hidden_at(name) is not None:
        raise _refused(f"a passkey's name is 1 to {MAX_NAME_CHARACTERS} characters that can be seen")
    if any(passkey.subject.name == name for passkey in consents.passkeys):  # 3
        raise _refused(f"there is a passkey {name!r} already: give this one another name, or revoke that one")
    if len(consents.passkeys) >= MAX_PASSKEYS:  # 4
        raise _refused(f"there are {MAX_PASSKEYS} passkeys already: revoke one (`aileron approver passkeys`)")


def check_enrollable(consents: Consents, passkey: PasskeyConsent, origin: str) -> None:
    """Check that this passkey can be enrolled. Raises AileronError(invalid_request), or PasskeyError for an invalid key."""
    if (passkey.rp_id, passkey.origin) != (RP_ID, origin):  # 1
        raise _refused(f"it was made on {passkey.origin!r:.80}, and this home's page is {origin}: make it there")
    check_key(passkey.public_key, passkey.algorithm)  # 2
    if passkey.key_id != id_of(passkey):
        raise _refused("its id is not its own")
    if any(enrolled.subject.credential_id == passkey.credential_id for enrolled in consents.passkeys):  # 3
        raise _refused("this passkey decides already")
    check_name(consents, passkey.name)


def _refused(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
