"""The fix for a failing credential: one for each kind, with the name of its secret if that is known."""

from __future__ import annotations

from typing import get_args

import pytest

from aileron.model.fixes import Stored, fix_for, setup_options
from aileron.model.manifest import CredentialKind
from aileron.model.names import BindingName

KEPT = [kind for kind in get_args(CredentialKind) if kind != "oauth2"]
"""The kinds whose secret the user can replace."""


@pytest.mark.parametrize("kind", KEPT)
def test_the_fix_for_a_refused_secret_stores_another_secret_under_the_same_name(kind: str) -> None:
    """The user needs to do no more: the binding stays, so the fix does not mention it."""
    fix = fix_for(BindingName(kind, "files", "own"), Stored("files-key"))

    assert "`aileron secret set files-key" in fix
    assert "binding" not in fix


@pytest.mark.parametrize("kind", KEPT)
def test_the_fix_for_an_unknown_secret_name_includes_the_command_that_shows_it(kind: str) -> None:
    """The command that shows the name stands beside the command that needs it."""
    fix = fix_for(BindingName(kind, "files", "own"))

    assert "`aileron secret set NAME" in fix
    assert f"`aileron binding inspect {kind}/files/own`" in fix


@pytest.mark.parametrize("kind", KEPT)
def test_the_fix_for_a_secret_in_another_store_is_to_change_it_in_that_store(kind: str) -> None:
    """The user then approves the change, because the vault expects the old value."""
    fix = fix_for(BindingName(kind, "files", "own"), Stored("files-key", "pass:files/key"))

    assert fix == f"change it at pass:files/key, then approve it with `aileron binding rebind {kind}/files/own`"


def test_the_fix_for_refused_sign_in_tokens_is_to_sign_in_again() -> None:
    """Tokens are never stored by hand, so nothing else can help."""
    name = BindingName("oauth2", "files", "own")

    assert fix_for(name) == "sign in again: `aileron binding reauthorize oauth2/files/own`"
    assert fix_for(name, Stored("files-own"), or_username=True) == fix_for(name)


def test_the_fix_for_a_certificate_reads_it_from_a_file() -> None:
    """A certificate has several lines, so it cannot be typed at a prompt."""
    assert "secret set bank < client.pem`" in fix_for(BindingName("mtls", "bank", "own"), Stored("bank"))


@pytest.mark.parametrize("stored", [None, Stored("pw"), Stored("pw", "pass:pw")])
def test_the_fix_for_a_refused_login_also_offers_to_correct_the_user_name(stored: Stored | None) -> None:
    """A server's refusal alone does not say whether the user name or the secret is wrong."""
    name = BindingName("login", "mail", "own")

    assert fix_for(name, stored, or_username=True).endswith("`aileron binding rebind login/mail/own --username USER`")
    assert "USER" not in fix_for(name, stored)


def test_the_fix_for_each_credential_kind_has_the_options_that_binding_it_needs() -> None:
    """A sign-in needs no options, and only an ssh login has a host key."""
    names = {"api_key", "hmac", "mtls"}
    for kind in KEPT:
        user = "" if kind in names else " --username USER"
        assert setup_options(kind, f"{kind}/x/y") == f"--name {kind}/x/y{user} --secret NAME"
    assert setup_options("oauth2", "oauth2/x/y") == "--name oauth2/x/y"
    assert setup_options("login", "login/x/y", has_host_key=True).endswith(" --secret NAME --host-key KEY")
