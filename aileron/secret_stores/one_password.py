"""Reads secrets from 1Password with its program `op`. It runs `op read` with a reference in 1Password's own form.

Access comes either from the user's 1Password app, which `op` asks by itself, or from a service account whose token is a secret
of the vault. That token is in the program's environment while the program runs, about a second, because `op` accepts a token
in no other way.

Source: 1Password, "op read", "Use service accounts with 1Password CLI". Not here: running a program (programs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference
from aileron.secret_stores.problems import unfetched
from aileron.secret_stores.programs import Ended, Programs, chosen
from aileron.secret_stores.tokens import token_text

__all__ = ["from_op"]

_PASSED_ON: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "USER", "LOGNAME")
"""Environment variables with which `op` finds its settings and the 1Password app."""
_VARIABLE: Final = "OP_SERVICE_ACCOUNT_TOKEN"


async def from_op(
    programs: Programs,
    program: str,
    reference: SecretReference,
    token: Secret | None,
    token_name: str,
    environment: Mapping[str, str],
    deadline: float,
) -> Secret:
    """Return the value of the 1Password field that `reference` names.

    Raises AileronError(binding_failed) if `op` does not print it.
    """
    given = {**chosen(environment, *_PASSED_ON), "PATH": programs.search_path(program), "LC_ALL": "C.UTF-8"}
    if token is not None:
        given[_VARIABLE] = token_text(reference, token, token_name)
    ended = await programs.run((program, "read", "--no-newline", str(reference)), given, str(reference), deadline)
    if ended.status != 0:
        raise _why(reference, ended)
    return Secret(ended.out)


def _why(reference: SecretReference, ended: Ended) -> AileronError:
    """Return the error for a run of `op` that failed, according to its output. The output is searched but not quoted."""
    if ended.says(b"isn't a", b"isn't an", b"does not have a field", b"could not find", b"no item"):
        fault = "1Password has no such vault, item or field, or does not show it to this account"
        return unfetched(
            str(reference), "missing", fault, f"see that `op read '{reference}'` works in a terminal of yours"
        )
    if ended.says(
        b"sign in", b"signed in", b"no accounts configured", b"authorization", b"session expired", b"service account"
    ):
        fault = "1Password is locked, or its token does not count"
        fix = "unlock the 1Password app, or store another service account's token, then try again"
        return unfetched(str(reference), "locked", fault, fix, retriable=True)
    fault = f"op ended with status {ended.status}"
    return unfetched(str(reference), "refused", fault, f"see that `op read '{reference}'` works in a terminal of yours")
