"""User names beside secrets: what each kind of credential takes."""

from __future__ import annotations

from typing import get_args

import pytest

from aileron.model.manifest import CredentialKind
from aileron.model.username import check_username

PAIRS: tuple[CredentialKind, ...] = ("basic", "digest")
KEYS: tuple[CredentialKind, ...] = ("aws_sigv4", "oauth2_client")
NONE: tuple[CredentialKind, ...] = ("api_key", "hmac", "mtls", "oauth2")


def test_every_kind_is_one_of_these() -> None:
    """A new one has to say whether it has a user name."""
    assert {*PAIRS, *KEYS, *NONE, "login"} == set(get_args(CredentialKind))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("username", [None, "", "a:b", "a\r\nb", "a\0", "a\u202e", "é" * 161])
def test_a_pair_needs_a_name_that_ends_at_no_colon(kind: CredentialKind, username: str | None) -> None:
    """RFC 7617 section 2: the first colon ends it; and a person has to be able to see all of it."""
    check_username(kind, "Ann Bö")
    with pytest.raises(ValueError, match="user name"):
        check_username(kind, username)


@pytest.mark.parametrize("kind", KEYS)
def test_an_id_beside_a_key_may_be_in_its_document(kind: CredentialKind) -> None:
    """A client ID can be a URL."""
    check_username(kind, None)
    check_username(kind, "https://client.example.com/id")
    with pytest.raises(ValueError, match="empty"):
        check_username(kind, "")


@pytest.mark.parametrize("kind", NONE)
def test_what_has_none_takes_none(kind: CredentialKind) -> None:
    """It would be sent nowhere."""
    check_username(kind, None)
    with pytest.raises(ValueError, match=f"a user name is for kinds basic, .* and login, not for {kind}; leave it out"):
        check_username(kind, "ann")
