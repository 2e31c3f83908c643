"""What mends a credential: for each kind one way, by the name of its secret where that is known."""

from __future__ import annotations

from typing import get_args

import pytest

from aileron.model.cure import Stored, cure_for, setup_options
from aileron.model.manifest import CredentialKind
from aileron.model.names import BindingName

KEPT = [kind for kind in get_args(CredentialKind) if kind != "oauth2"]
"""The kinds whose secret is the user's to replace."""


@pytest.mark.parametrize("kind", KEPT)
def test_another_secret_is_stored_under_the_same_name(kind: str) -> None:
    """Which is all that it takes: the binding stays, and nothing is said of it."""
    cure = cure_for(BindingName(kind, "files", "own"), Stored("files-key"))

    assert "`aileron secret set files-key" in cure
    assert "binding" not in cure


@pytest.mark.parametrize("kind", KEPT)
def test_a_name_that_is_not_known_can_be_found(kind: str) -> None:
    """The command that shows it is said beside the one that needs it."""
    cure = cure_for(BindingName(kind, "files", "own"))

    assert "`aileron secret set NAME" in cure
    assert f"`aileron binding inspect {kind}/files/own`" in cure


@pytest.mark.parametrize("kind", KEPT)
def test_a_secret_that_is_kept_elsewhere_is_changed_there(kind: str) -> None:
    """And then approved: the vault holds it to what it was."""
    cure = cure_for(BindingName(kind, "files", "own"), Stored("files-key", "pass:files/key"))

    assert cure == f"change it at pass:files/key, then approve it with `aileron binding rebind {kind}/files/own`"


def test_tokens_are_had_by_signing_in_again() -> None:
    """Whatever else is known of them: a person stores none."""
    name = BindingName("oauth2", "files", "own")

    assert cure_for(name) == "sign in again: `aileron binding reauthorize oauth2/files/own`"
    assert cure_for(name, Stored("files-own"), or_username=True) == cure_for(name)


def test_a_certificate_is_read_from_its_file() -> None:
    """It has several lines."""
    assert "secret set bank < client.pem`" in cure_for(BindingName("mtls", "bank", "own"), Stored("bank"))


@pytest.mark.parametrize("stored", [None, Stored("pw"), Stored("pw", "pass:pw")])
def test_a_user_name_can_be_the_wrong_one_of_the_two(stored: Stored | None) -> None:
    """Where only a server's no is known."""
    name = BindingName("login", "mail", "own")

    assert cure_for(name, stored, or_username=True).endswith("`aileron binding rebind login/mail/own --username USER`")
    assert "USER" not in cure_for(name, stored)


def test_a_binding_is_made_anew_with_what_its_kind_needs() -> None:
    """One line for each kind: a sign-in brings everything, and only an ssh login has a host key."""
    names = {"api_key", "hmac", "mtls"}
    for kind in KEPT:
        user = "" if kind in names else " --username USER"
        assert setup_options(kind, f"{kind}/x/y") == f"--name {kind}/x/y{user} --secret NAME"
    assert setup_options("oauth2", "oauth2/x/y") == "--name oauth2/x/y"
    assert setup_options("login", "login/x/y", has_host_key=True).endswith(" --secret NAME --host-key KEY")
