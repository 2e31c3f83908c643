"""A login as people read it before they consent: server, protocol, commands, and the details of the binding."""

from __future__ import annotations

import msgspec
import pytest

from aileron.cards.plan import accounts_of, step_facts
from aileron.cards.subject import binding_lines, consent_headline, subject_facts
from aileron.model.consent import BindingConsent, subject_digest
from aileron.model.login import BoundLogin, LoginDetails, LoginTarget, PasswordForm
from aileron.model.manifest import CredentialNeed, LimitsSpec
from aileron.model.names import BindingName
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Step

GIT, DATABASE = "github://acme/git", "github://acme/db"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
BINDING = BindingConsent(
    name="login/git/me",
    connector=GIT,
    secret="key",
    username="git",
    reaches=("git.example:22",),
    wire='login ssh+tls://git.example:22 ["git-upload-pack x.git"]',
    details=LoginDetails(host_key=HOST_KEY),
)


def facts(subject: BindingConsent) -> dict[str, object]:
    """Return the facts by name, without empty ones."""
    return {name: value for name, value in subject_facts(subject, None, str) if value is not None}


def test_a_binding_shows_where_it_logs_in_and_the_servers_key() -> None:
    """The person compares the key's fingerprint; the card mentions no HTTP header."""
    told = facts(BINDING)

    assert told["logs in at"] == [
        "git.example:22 by SSH",
        "the connector gets the stream behind the login, and never the password or key",
    ]
    assert told["executes"] == ["git-upload-pack x.git"]
    assert told["host key"] == [HOST_KEY, "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"]
    assert told["user name"] == "git"
    assert "sent as" not in told


def test_a_question_about_a_binding_says_which_user_logs_in_at_which_server() -> None:
    """A list of bindings says in words what each may do; a sign-in names its person."""
    headline = "".join(span.text for span in consent_headline(BINDING))
    signed_in = msgspec.structs.replace(
        BINDING,
        name="oauth2/mail/ada",
        username="team@mail.example",
        account="ada@mail.example",
        wire="oauth2 login imap+tls://mail.example:993",
        reaches=("mail.example:993",),
        client="c at https://a.example/token",
        details=msgspec.UNSET,
    )

    assert headline == "Let “github://acme/git” log in as “git” at “git.example:22 by SSH”"
    assert binding_lines(BINDING) == [
        "login/git/me: github://acme/git can use the secret key as git",
        "  goes to git.example:22; executes git-upload-pack x.git; logs in at git.example:22 by SSH; "
        f"host key {HOST_KEY}, SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    ]
    assert binding_lines(signed_in) == [
        "oauth2/mail/ada: github://acme/git can use the sign-in of team@mail.example",
        "  signed in as ada@mail.example; goes to mail.example:993; sent as Authorization: Bearer; "
        "logs in at mail.example:993 by IMAP over TLS; application c at https://a.example/token",
    ]


def test_the_details_of_a_login_are_part_of_the_digest_that_is_signed() -> None:
    """Another server key gives another digest; without details the subject is as before logins existed."""
    another = msgspec.structs.replace(BINDING, details=LoginDetails(host_key=HOST_KEY[:-1] + "m"))
    without = msgspec.structs.replace(BINDING, details=msgspec.UNSET)

    assert len({subject_digest(binding) for binding in (BINDING, another, without)}) == 3
    assert "details" not in msgspec.to_builtins(without)
    forged = facts(msgspec.structs.replace(BINDING, details=LoginDetails(host_key="x", read_only=True)))
    assert forged["host key"] == ["x", "NOT A KEY"]
    assert forged["role"] == "only reads, which is checked after each login"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            "md5",
            "the server may have it as an MD5 hash: as good as the password to the server, and to whoever holds its certificate",
        ),
        (
            "cleartext",
            "the server may have it as it is: the server, and whoever holds its certificate, sees the password",
        ),
    ],
    ids=["md5", "cleartext"],
)
def test_a_weaker_password_form_of_a_login_is_explained_and_signed(form: PasswordForm, words: str) -> None:
    """Consent to a login by SCRAM alone does not cover a weaker form, which is part of the signed subject."""
    before = msgspec.structs.replace(BINDING, wire="login postgres+tls://db.example:5432", details=msgspec.UNSET)
    weak = msgspec.structs.replace(before, details=LoginDetails(weak_password=form))

    assert facts(weak)["password"] == words
    assert "password" not in facts(before)
    assert subject_digest(weak) != subject_digest(before)


@pytest.mark.parametrize(
    ("logins", "bound", "account", "words"),
    [
        (
            ["postgres://db.example.com:5432"],
            BoundLogin(username="ada", details=LoginDetails(database="shop")),
            "ada",
            "ada on shop at db.example.com:5432 (login/db/me): Query",
        ),
        (
            ["postgres://db.example.com:5432"],
            BoundLogin(username="ada", details=LoginDetails(weak_password="md5")),
            "ada",
            "ada at db.example.com:5432, md5 password allowed (login/db/me): Query",
        ),
        (
            ["redis://cache.example:6379"],
            BoundLogin(username="ada", details=LoginDetails(database="3")),
            "ada",
            "ada on database 3 at cache.example:6379 (login/db/me): Query",
        ),
        (
            ["ssh://git.example:22"],
            BoundLogin(username="git", details=LoginDetails(host_key=HOST_KEY)),
            "git",
            "git at git.example:22, host key SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU (login/db/me): Query",
        ),
        (
            ["imap://mail.example:993", "smtp://mail.example:465"],
            BoundLogin(username="team@example.com"),
            "ada@example.com",
            "team@example.com at mail.example:993 and mail.example:465, signed in as ada@example.com (login/db/me): Query",
        ),
    ],
    ids=["database", "password form", "number", "host key", "sign-in"],
)
def test_the_account_of_a_login_names_the_user_the_database_and_the_server(
    logins: list[str], bound: BoundLogin, account: str, words: str
) -> None:
    """A user name with two databases is two accounts, and so is one with two servers."""
    need = CredentialNeed(kind="login", scope="Query", logins=tuple(map(LoginTarget.parse, logins)))
    name = BindingName("login", "db", "me")
    use = CredentialUse(connector=DATABASE, binding=name, need=need, account=account, bound=bound)

    assert accounts_of([querying(use)]) == [words]


def test_a_hostile_name_in_a_login_is_quoted_and_adds_no_fact_to_the_sentence() -> None:
    """A user name, database or account that contains a server's name is in quotes, and adds no further fact."""
    bound = BoundLogin(username="ada on shop at db.safe:5432", details=LoginDetails(database="x at db.safe:5432"))
    need = CredentialNeed(kind="login", scope="Query", logins=(LoginTarget.parse("postgres://db.evil:5432"),))
    name = BindingName("login", "db", "me")
    use = CredentialUse(connector=DATABASE, binding=name, need=need, account='eve", or "ada', bound=bound)
    listed = msgspec.structs.replace(BINDING, username="a as b", details=LoginDetails(database="shop; role only reads"))

    assert accounts_of([querying(use)]) == [
        '"ada on shop at db.safe:5432" on "x at db.safe:5432" at db.evil:5432, '
        'signed in as "eve\\", or \\"ada" (login/db/me): Query'
    ]
    assert binding_lines(listed)[0] == 'login/git/me: github://acme/git can use the secret key as "a as b"'
    assert '; database "shop; role only reads"' in binding_lines(listed)[1]


def querying(use: CredentialUse) -> Step:
    """Return a step with that credential."""
    return Step(
        id="one",
        connector=ConnectorPin(DATABASE, "1.0.0", "sha256:" + "ab" * 32),
        op="query",
        args={},
        idempotent=False,
        grant=Grant(credential=use),
        limits=LimitsSpec(),
    )


def test_a_plan_shows_where_it_logs_in_and_its_role() -> None:
    """The card has the account with its role; the full view has the login's details."""
    need = CredentialNeed(kind="login", scope="Query", logins=(LoginTarget.parse("postgres+plain://localhost:5432"),))
    use = CredentialUse(
        connector=DATABASE, binding=BindingName("login", "db", "me"), need=need, account="reader", login="read_only"
    )
    step = querying(use)

    assert accounts_of([step]) == ["reader (login/db/me), which only reads: Query"]
    assert ("logs in at", ["localhost:5432 by PostgreSQL WITHOUT ENCRYPTION"]) in step_facts(
        1, step, None, is_whole=True
    )
    assert "logs in at" not in dict(step_facts(1, step, None, is_whole=False))
