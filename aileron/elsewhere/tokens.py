"""The token that opens a store, as text of one line, which a header field and an environment variable can carry.

Runs in the daemon. Not here: which token is used, and where it is put (key_value.py, one_password.py).
"""

from __future__ import annotations

from aileron.elsewhere.problems import unfetched
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference

__all__ = ["token_text"]


def token_text(reference: SecretReference, token: Secret, name: str) -> str:
    """Return the token's value. Raise AileronError(binding_failed), which quotes nothing of it, if no store can have issued
    it.
    """
    try:
        text = token.reveal().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        what = f"the token {name} holds what no token can"
        raise unfetched(str(reference), "refused", what, f"store another with `aileron secret set {name}`")
    return text
