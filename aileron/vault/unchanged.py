"""Checks that a binding is still the binding with which a plan was made, so that a person's decision applies to the credential
that is lent.

Pure; runs in the daemon. The plan is read from a file, so it is not trusted. It may also be out of date: a binding created
in the meantime would change the account that a decision affects.

Rules
- A login is identified by its binding: user name, database, host key, role. These values are in the plan, and a binding with a
  different value is refused. A new password for the same account is accepted, since the service checks that it belongs to the
  account.
- A secret goes only where its binding allows. A plan of an older version may log in, as the same user, at a place that the
  binding no longer allows. Such a plan is refused, so that no service gets the password of another service.
- For all other credentials the secret determines the account: a token, a key in a header, a private key for ssh. So a
  binding that was created anew counts as a different binding. The same applies if the plan does not have the details of
  its login, like plans of older versions.
- A binding that was restored with a copy of the vault is older than the plan. If the plan names an account, a binding
  with another account is refused.

Source: docs/adr/0007-approval-bound-to-a-plan-digest.md, docs/reference/logins.md. Not here: the loan (lend.py).
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import CredentialUse
from aileron.vault.bindings import Binding

__all__ = ["check_login", "check_still_bound"]

_KEPT_S: Final = 0.001
"""Tolerance in seconds when the time of a binding is compared with that of a plan. Times of bindings have a precision
of a millisecond, so a binding made in the same millisecond as the plan must not count as later.
"""


def check_still_bound(found: Binding | None, use: CredentialUse, since: float) -> None:
    """Check that `found` is the binding that existed when a plan was resolved at `since` (s since the epoch). `found` has the
    name that the plan uses.

    Raises AileronError (binding_required) if `found` is None, (binding_failed) if it is a different binding.
    """
    if found is None:
        message = f"{use.binding} was revoked in the meantime: `aileron binding setup {use.connector}`, then ask again"
        raise AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER)
    if found.connector == use.connector:
        check_login(found, use)
        if _is_told_by_its_login(found, use) or found.created_at <= since + _KEPT_S:
            return
    raise _changed(use, f"{use.binding} is no longer the binding that was shown: ask again")


def check_login(binding: Binding, use: CredentialUse) -> None:
    """Raise AileronError(binding_failed) unless the binding's account and login are those with which the plan was made.
    The message names the differences.

    Quick, because this check runs at the moment of the loan.
    """
    _check_role(binding, use)
    if use.bound is UNSET or use.bound == binding.bound:
        _check_places(binding, use)
        _check_account(binding, use)
        return
    changed = ("login",) if binding.bound is None else use.bound.changed_to(binding.bound)
    what = " and another ".join(changed)
    raise _changed(
        use, f"{binding.name} was bound anew since the run was planned, with another {what}: request it again"
    )


def _check_role(binding: Binding, use: CredentialUse) -> None:
    """Check that the binding is read-only if and only if the plan was made for a read-only login.

    A plan that was not made for a login needs a binding that is not read-only.
    """
    is_read_only = binding.details is not None and binding.details.read_only
    if is_read_only == (use.login == "read_only"):
        return
    said = "without --read-only" if use.login == "read_only" else "with --read-only"
    raise _changed(
        use, f"{binding.name} is bound {said} by now, and the run was planned with the other: request it again"
    )


def _check_places(binding: Binding, use: CredentialUse) -> None:
    """Check that the binding still allows each login that the plan's connector needs."""
    agreed = binding.logins
    gone = " and ".join(str(target.destination) for target in use.need.logins if target not in agreed)
    if gone:
        raise _changed(
            use,
            f"{binding.name} was bound anew since the run was planned, and not for a login at {gone}: request it again",
        )


def _check_account(binding: Binding, use: CredentialUse) -> None:
    """Check that the binding's account, as the provider or the user named it, is the account with which the plan was made.

    A plan without an account fits every binding.
    """
    if use.account is not None and use.account != binding.account:
        raise _changed(use, f"{binding.name} has another account than when the run was planned: request it again")


def _is_told_by_its_login(binding: Binding, use: CredentialUse) -> bool:
    """Return whether the plan's login determines the account by itself. A changed secret then cannot mean another
    account.

    With ssh it does not: everybody logs in as a user such as `git`, and the key determines the account.
    """
    return (
        use.bound is not UNSET and binding.kind == "login" and all(login.protocol != "ssh" for login in binding.logins)
    )


def _changed(use: CredentialUse, message: str) -> AileronError:
    details = {"reason": "binding_changed", "binding": str(use.binding)}
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER, details=details)
