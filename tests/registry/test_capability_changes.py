"""The differences that a person sees in another version of a connector: addresses, scopes, logins and commands."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from aileron.model.consent import Change
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest, CredentialNeed, OAuth2Provider, Operation
from aileron.model.names import Fqn, HostPort
from aileron.registry.consent import capability_changes

PROVIDER: Final = OAuth2Provider(
    authorize_url="https://id.example/authorize",
    token_url="https://id.example/token",
    client_id="acme",
    registration_url="https://id.example/register",
    resource="https://mcp.example/mcp",
    scopes=("mail.read",),
    issuer="https://id.example",
)


def asking(**changes: Any) -> ConnectorManifest:
    """Return a connector that signs in at that provider."""
    return ConnectorManifest(
        name=Fqn.parse("github://acme/mail"),
        version="1.0.0",
        hosts=(HostPort("mcp.example", 443),),
        credential=CredentialNeed(kind="oauth2", scope="Read your mail"),
        oauth2=msgspec.structs.replace(PROVIDER, **changes),
    )


SMTP: Final = "c.d:587 by SMTP over TLS (STARTTLS)"


def logging_in(logins: tuple[str, ...], commands: tuple[str, ...] = ()) -> ConnectorManifest:
    """Return a connector with these logins."""
    targets = tuple(map(LoginTarget.parse, logins))
    return ConnectorManifest(
        name=Fqn.parse("github://acme/mail"),
        version="1.0.0",
        credential=CredentialNeed(kind="login", scope="Read your mail", logins=targets, commands=commands),
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"registration_url": "https://evil.example/r"},
         [("registration_url", "https://id.example/register", "https://evil.example/r", True)]),
        ({"registration_url": None}, [("registration_url", "https://id.example/register", None, False)]),
        ({"client_id": None}, [("client_id", "acme", None, True)]),
        ({"resource": "https://other.example"},
         [("resource", "https://mcp.example/mcp", "https://other.example", True)]),
        ({"resource": None}, [("resource", "https://mcp.example/mcp", None, True)]),
        ({"issuer": None}, [("issuer", "https://id.example", None, True)]),
        ({"issuer_in_answer": False}, [("issuer_in_answer", "yes", "no", True)]),
        ({}, []),
    ],
)  # fmt: skip
def test_each_changed_sign_in_address_is_listed_and_removing_a_limit_widens_the_reach(
    changes: dict[str, Any], found: list[tuple[str, str | None, str | None, bool]]
) -> None:
    """The tokens' resource and issuer are limits, as is `issuer_in_answer`: a version without them is allowed more."""
    expected = [
        Change(where=f"sign-in, {key}", before=before, after=after, widens=widens)
        for key, before, after, widens in found
    ]

    assert list(capability_changes(asking(), asking(**changes))) == expected
    if "issuer_in_answer" in changes:
        (back,) = capability_changes(asking(**changes), asking())
        assert not back.widens


def test_removing_all_scopes_widens_the_reach() -> None:
    """The provider then decides which scopes it grants. Removing one of two scopes narrows the reach."""
    two = asking(scopes=("mail.send", "mail.read"))
    (none,) = capability_changes(two, asking(scopes=()))
    (narrowing,) = capability_changes(two, asking())

    assert none == Change(
        where="scopes", before="mail.read, mail.send", after="none: the provider decides", widens=True
    )
    assert (narrowing.before, narrowing.after, narrowing.widens) == ("mail.send", None, False)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (("imap://a.b:993",), ("imap://a.b:993", "smtp://c.d:587"), [("logs in at", None, SMTP, True)]),
        (("smtp://c.d:587",), ("smtp+plain://c.d:587",), [
            ("logs in at", None, "c.d:587 by SMTP WITHOUT ENCRYPTION", True), ("logs in at", SMTP, None, False)]),
        (("imap://a.b:993", "smtp://c.d:587"), ("imap://a.b:993",), [("logs in at", SMTP, None, False)]),
    ],
)  # fmt: skip
def test_each_changed_login_is_listed_and_a_new_login_widens_the_reach(
    before: tuple[str, ...], after: tuple[str, ...], found: list[tuple[str, str | None, str | None, bool]]
) -> None:
    """The change names the place, the protocol and the encryption."""
    changes = capability_changes(*map(logging_in, (before, after)))

    assert [(change.where, change.before, change.after, change.widens) for change in changes] == found


def test_a_new_command_or_a_role_that_can_write_widens_the_reach() -> None:
    """The changes name the commands that ssh may execute, and the role of each operation."""
    less, more = (logging_in(("ssh://a.b:22",), commands=commands) for commands in (("ls",), ("ls", "rm *")))
    reading, seen, writing = (
        msgspec.structs.replace(logging_in(("postgres://a.b:1",)), operations=(Operation(name="query", login=login),))
        for login in ("read_only", "previewed", msgspec.UNSET)
    )

    assert capability_changes(less, more) == (Change(where="executes", before=None, after="rm *", widens=True),)
    assert capability_changes(more, less) == (Change(where="executes", before="rm *", after=None, widens=False),)
    assert capability_changes(reading, writing) == (
        Change(where="role of query", before="only reads", after=None, widens=True),
    )
    assert capability_changes(writing, reading) == (
        Change(where="role of query", before=None, after="only reads", widens=False),
    )
    shown = "changes what a person saw"
    for before, after, was, would_be, widens in (
        (reading, seen, "only reads", shown, True),
        (seen, reading, shown, "only reads", False),
        (seen, writing, shown, None, True),
        (writing, seen, None, shown, False),
    ):
        assert capability_changes(before, after) == (
            Change(where="role of query", before=was, after=would_be, widens=widens),
        )
