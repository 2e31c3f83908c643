"""The token that authenticates to a store: text of one line, so that it fits a header field and an environment variable.

Runs in the daemon. Not here: the choice of the token, and sending it (key_value.py, one_password.py).
"""

from __future__ import annotations

from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference
from aileron.secret_stores.problems import unfetched

__all__ = ["token_text"]


def token_text(reference: SecretReference, token: Secret, name: str) -> str:
    """Return the value of the token `name` as text. Raises AileronError(binding_failed), which quotes no part of the
    value, if no store can have issued such a token.
    """
    try:
        text = token.reveal().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        fault = f"the token {name} holds what no token can"
        raise unfetched(str(reference), "refused", fault, f"store another with `aileron secret set {name}`")
    return text
