"""A credential for logging in. It is never sent in an HTTP request; egress/login.py uses it.

Pure; runs in the daemon.
"""

from __future__ import annotations

from typing import Final

from aileron.egress.credentials.kind import Kind, authorization_field
from aileron.egress.credentials.lent import LentCredential, unusable
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["LOGIN"]


def _check_used(_need: CredentialNeed, _is_websocket: bool) -> None:
    raise RefusedError(
        Reason.CREDENTIAL_NOT_GRANTED,
        "the credential of this step logs in (logins of the manifest), and is sent in no HTTP request: open a stream (tcp)",
    )


def _put(use: CredentialUse, lent: LentCredential, _request: Outgoing) -> Injection:
    raise unusable(use, lent, "is of kind login, which is no credential of an HTTP request")


LOGIN: Final = Kind(put=_put, reserved=authorization_field, check_used=_check_used)
