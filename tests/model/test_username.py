"""User names beside secrets, by kind of credential."""

from __future__ import annotations

from typing import get_args

import pytest

from aileron.model.manifest import CredentialKind
from aileron.model.username import check_username

PAIRS: tuple[CredentialKind, ...] = ("basic", "digest")
KEYS: tuple[CredentialKind, ...] = ("aws_sigv4", "oauth2_client")
NONE: tuple[CredentialKind, ...] = ("api_key", "hmac", "mtls", "oauth2")


def test_every_credential_kind_says_whether_it_has_a_user_name() -> None:
    """A new kind must be added to one of the groups."""
    assert {*PAIRS, *KEYS, *NONE, "login"} == set(get_args(CredentialKind))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("username", [None, "", "a:b", "a\r\nb", "a\0", "a\u202e", "é" * 161])
def test_a_user_name_beside_a_password_may_contain_neither_a_colon_nor_an_invisible_character(
    kind: CredentialKind, username: str | None
) -> None:
    """The first colon ends the user name (RFC 7617, section 2), and a person must be able to see all of it."""
    check_username(kind, "Ann Bö")
    with pytest.raises(ValueError, match="user name"):
        check_username(kind, username)


@pytest.mark.parametrize("kind", KEYS)
def test_a_client_id_for_a_signing_key_is_optional_and_can_be_a_url(kind: CredentialKind) -> None:
    """A client ID can be a URL, or be part of the key's own document."""
    check_username(kind, None)
    check_username(kind, "https://client.example.com/id")
    with pytest.raises(ValueError, match="empty"):
        check_username(kind, "")


@pytest.mark.parametrize("kind", NONE)
def test_a_credential_kind_without_a_user_name_refuses_a_user_name(kind: CredentialKind) -> None:
    """A user name would not be sent anywhere."""
    check_username(kind, None)
    with pytest.raises(ValueError, match=f"a user name is for kinds basic, .* and login, not for {kind}; leave it out"):
        check_username(kind, "ann")
