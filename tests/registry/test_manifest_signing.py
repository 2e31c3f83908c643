"""Credentials that sign, are a certificate, or get tokens: their tables in a manifest, and their words for people."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from aileron.model.credential import Reach, wire_words
from aileron.model.manifest import ConnectorManifest, CredentialNeed
from aileron.model.names import Fqn
from aileron.model.request_signing import AwsScope, Digest, HmacTemplate, KeyForm, SignatureEncoding, TokenGrant
from aileron.registry.consent import capability_changes
from aileron.registry.manifest import parse_connector_manifest
from tests.registry.conftest import refusal as failure_of

Text = Callable[..., str]
AWS = '\n[capabilities.credential.aws]\nregion = "eu-central-1"\nservice = "s3"\n'
HMAC = """
[capabilities.credential.hmac]
algorithm = "sha256"
message = "v0:{time}:{body}"
headers = { X-Time = "{time}", X-Signature = "v0={signature}" }
"""
TOKEN = """
[capabilities.credential.oauth2_client]
grant = "client_credentials"
token_url = "https://auth.example.com/token"
client_auth = "client_secret_basic"
scopes = ["invoices.read"]
"""
TABLES = {"aws_sigv4": AWS, "hmac": HMAC, "oauth2_client": TOKEN, "mtls": "", "digest": ""}


def parse(text: str) -> ConnectorManifest:
    """Parse the manifest as an installed one."""
    return parse_connector_manifest(text.encode(), file="manifest.toml")


def of_kind(manifest_text: Text, kind: str, *replacements: tuple[str, str]) -> str:
    """Return the valid manifest with a credential of that kind, and with replacements in its table."""
    table = TABLES[kind]
    for old, new in replacements:
        assert old in table, old
        table = table.replace(old, new)
    return manifest_text(('"api_key"', f'"{kind}"')) + table


def placed(manifest_text: Text, line: str, imports: str = '["http", "log"]') -> str:
    """Return the valid manifest with an api_key that is sent elsewhere."""
    return manifest_text(('scope = "Send mail"', f'scope = "Send mail"\n{line}'), ('["http", "log"]', imports))


def need_of(text: str) -> CredentialNeed:
    """Return the credential of the manifest."""
    need = parse(text).credential
    assert need is not None
    return need


def words_of(text: str) -> str:
    """Return how the credential is sent, in words."""
    return wire_words(Reach.of(parse(text)).wire)


def refusal(text: str) -> str:
    """Return the message with which the manifest is refused."""
    return failure_of(parse, text).message


def test_the_table_of_each_credential_kind_is_read(manifest_text: Text) -> None:
    """Keys that a table leaves out have defaults."""
    assert need_of(of_kind(manifest_text, "aws_sigv4")).aws == AwsScope(region="eu-central-1", service="s3")
    assert need_of(of_kind(manifest_text, "hmac")).hmac == HmacTemplate(
        message="v0:{time}:{body}", headers=(("X-Time", "{time}"), ("X-Signature", "v0={signature}"))
    )
    assert need_of(of_kind(manifest_text, "oauth2_client")).token == TokenGrant(
        grant="client_credentials",
        token_url="https://auth.example.com/token",
        client_auth="client_secret_basic",
        scopes=("invoices.read",),
    )
    for kind in ("mtls", "digest"):
        need = need_of(of_kind(manifest_text, kind))
        assert (need.kind, need.aws, need.hmac, need.token) == (kind, UNSET, UNSET, UNSET)


def test_credential_fields_added_later_are_left_out_of_plans_that_do_not_use_them(manifest_text: Text) -> None:
    """The digests of waiting and recorded plans must stay the same."""
    assert msgspec.to_builtins(need_of(manifest_text())).keys() == {
        "kind", "scope", "header", "format", "query", "logins", "commands"
    }  # fmt: skip


@pytest.mark.parametrize("auth", ["none", "client_secret_basic", "client_secret_post"])
def test_a_token_exchange_may_authenticate_its_client_by_a_secret(manifest_text: Text, auth: str) -> None:
    """The secret stands beside the token; a private key would be a third proof, and is refused."""
    grant, before = ('"client_credentials"', '"token_exchange"'), '"client_secret_basic"'
    token = need_of(of_kind(manifest_text, "oauth2_client", grant, (before, f'"{auth}"'))).token

    assert isinstance(token, TokenGrant)
    assert (token.grant, token.client_auth) == ("token_exchange", auth)
    refused = refusal(of_kind(manifest_text, "oauth2_client", grant, (before, '"private_key_jwt"')))
    assert "token_exchange has no private key beside the token" in refused


@pytest.mark.parametrize("kind", ["aws_sigv4", "hmac", "oauth2_client"])
def test_a_credential_kind_and_its_table_are_refused_without_each_other(manifest_text: Text, kind: str) -> None:
    """Neither is accepted without the other."""
    both = of_kind(manifest_text, kind)
    table = TABLES[kind]
    name = "aws" if kind == "aws_sigv4" else kind

    expected = f'kind = "{kind}" and [capabilities.credential.{name}] must be used together'
    assert expected in refusal(both.replace(table, ""))
    assert expected in refusal(both.replace(f'kind = "{kind}"', 'kind = "api_key"'))
    assert parse(both)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('path = "/bot{key}"', "a part of the path of each request: /botKEY/…"),
        ('path = "/services/{key}"', "a part of the path of each request: /services/KEY/…"),
        ('body = "json:/auth/token"', "the body of each request, which is JSON, in the member /auth/token"),
        ('body = "form:token"', "the body of each request, which is a form, in the field token"),
        ('query = "token"', "the query parameter token"),
    ],
)
def test_a_credentials_key_can_be_sent_in_the_path_the_body_or_the_query(
    manifest_text: Text, line: str, words: str
) -> None:
    """The description that a person approves names the place."""
    assert words_of(placed(manifest_text, line)) == words


def test_a_key_in_the_first_websocket_message_needs_the_websocket_host_function(manifest_text: Text) -> None:
    """The other host functions send no first message."""
    line = """first_message = '{"auth": "{key}"}'"""
    text = placed(manifest_text, line, '["websocket"]')

    assert words_of(text) == 'the first message of a WebSocket: {"auth": "KEY"}'
    assert 'first_message without "websocket"' in refusal(placed(manifest_text, line))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('path = "bot{key}"', "path 'bot{key}' is not the beginning of a path"),
        ('path = "/bot"', "path '/bot' is not the beginning of a path"),
        ('path = "/../{key}"', "is not the beginning of a path with {key} once, without dot segments"),
        ('path = "/%2e/{key}"', "is not the beginning of a path"),
        ('path = "/a?b={key}"', "is not the beginning of a path"),
        ('path = "/{key}/{key}"', "is not the beginning of a path"),
        ('body = "token"', "body 'token' is not 'json:/POINTER' or 'form:NAME'"),
        ('body = "json:token"', "is not 'json:/POINTER'"),
        ('body = "json:/a~2b"', "is not 'json:/POINTER'"),
        ('body = "form:a&b"', "is not 'json:/POINTER' or 'form:NAME'"),
        ('path = "/bot{key}"\nquery = "token"', "query and path together: a key is sent in one place only"),
        ('body = "form:token"\nheader = "X-Key"', "body and header together: a key is sent in one place only"),
    ],
)
def test_an_invalid_place_for_a_key_in_the_request_is_refused(manifest_text: Text, line: str, problem: str) -> None:
    """The refusal states the rule."""
    assert problem in refusal(placed(manifest_text, line))


@pytest.mark.abuse_case("E48")
@pytest.mark.parametrize(
    ("kind", "old", "new", "problem"),
    [
        ("aws_sigv4", "eu-central-1", "EU Central", "region 'EU Central' is not a name"),
        ("aws_sigv4", '"s3"', '"s3/x"', "service 's3/x' is not a name"),
        ("aws_sigv4", '"s3"', '"sts"', 'service "sts" issues new keys'),
        ("hmac", "v0:{time}:{body}", "constant", "message has no placeholder"),
        ("hmac", "v0:{time}:{body}", "{tme}", "unknown placeholder {tme}"),
        ("hmac", "v0:{time}:{body}", "{signature}", "unknown placeholder {signature}"),
        ("hmac", "v0:{time}:{body}", "{time}}", "a brace outside a placeholder"),
        ("hmac", "v0={signature}", "v0={time}", "one of them has {signature}"),
        ("hmac", "v0={signature}", "{body}{signature}", "unknown placeholder {body}"),
        ("hmac", '"{time}",', '"{signature}",', "one of them has {signature}, and no other"),
        ("hmac", "X-Time", "Host", "'Host' is not a header field that a credential may use"),
        ("hmac", "X-Time", '"a b"', "'a b' is not a header field that a credential may use"),
        ("hmac", "X-Time", "X_Signature", "headers has one field twice"),
        ("hmac", '"{time}",', "7,", "X-Time is not a string"),
        ("oauth2_client", "https://", "http://", "is not https"),
        ("oauth2_client", "client_secret_basic", "none", 'client_credentials needs a client_auth other than "none"'),
        ("oauth2_client", '"client_credentials"', '"password"', "grant 'password' is not one of"),
        ("oauth2_client", "scopes", 'subject_token_type = "x"\nscopes', 'subject_token_type is for grant = "token_ex'),
        ("oauth2_client", '"client_credentials"', '"jwt_bearer"', 'jwt_bearer has client_auth = "none"'),
        ("oauth2_client", '["invoices.read"]', '["a b"]', "scopes is not a list of the provider's scopes"),
    ],
)  # fmt: skip
def test_an_invalid_signing_table_is_refused(manifest_text: Text, kind: str, old: str, new: str, problem: str) -> None:
    """The refusal states the rule; the unchanged table is accepted."""
    assert parse(of_kind(manifest_text, kind))
    assert problem in refusal(of_kind(manifest_text, kind, (old, new)))


WORDS = {
    "aws_sigv4": "an AWS signature for s3 in eu-central-1, without the secret access key",
    "hmac": "an HMAC-SHA256 of v0:{time}:{body} in X-Time: {time}, X-Signature: v0={signature}, as hex, without the key, "
    "which is text",
    "oauth2_client": "Authorization: Bearer, with a token that Aileron gets by client credentials (client_secret_basic) from "
    "https://auth.example.com/token",
    "mtls": "a client certificate of TLS, without its private key",
    "digest": "Authorization: Digest, without the password",
}


@pytest.mark.parametrize("kind", WORDS)
def test_each_credential_kind_has_a_description_of_how_it_is_sent(manifest_text: Text, kind: str) -> None:
    """The description says so if the secret itself is never sent."""
    assert words_of(of_kind(manifest_text, kind)) == WORDS[kind]


def test_the_token_grant_and_its_scopes_are_part_of_the_reach(manifest_text: Text) -> None:
    """A person approves where the client gets tokens, by which grant, and for which scopes."""
    reach = Reach.of(parse(of_kind(manifest_text, "oauth2_client")))

    assert (reach.client, reach.scopes) == (
        "client_credentials at https://auth.example.com/token",
        ("invoices.read",),
    )
    assert reach.token_url == "https://auth.example.com/token"


CHANGED = [
    ("aws_sigv4", '"s3"', '"sqs"'),
    ("aws_sigv4", "eu-central-1", "us-east-1"),
    ("hmac", "v0:{time}:{body}", "{body}"),
    ("hmac", "X-Time", "X-Other"),
    ("hmac", '"sha256"', '"sha1"'),
    ("oauth2_client", "auth.example.com", "evil.example.com"),
    ("oauth2_client", '"client_secret_basic"', '"client_secret_post"'),
    ("oauth2_client", "scopes", 'audience = "x"\nscopes'),
]


@pytest.mark.parametrize(("kind", "old", "new"), CHANGED)
def test_a_version_with_another_signing_method_widens_the_reach(
    manifest_text: Text, kind: str, old: str, new: str
) -> None:
    """A wider version suspends the binding, and lists the change."""
    before, after = parse(of_kind(manifest_text, kind)), parse(of_kind(manifest_text, kind, (old, new)))

    assert words_of(of_kind(manifest_text, kind)) != words_of(of_kind(manifest_text, kind, (old, new)))
    assert Reach.of(before).widened_to(Reach.of(after))
    assert Reach.of(before).widened_to(Reach.of(before)) == ()
    assert [change.widens for change in capability_changes(before, after)] == [True]


def test_fewer_scopes_narrow_the_reach_and_other_scopes_widen_it(manifest_text: Text) -> None:
    """Scopes are compared by name. Without any, the server decides, so an update lists that as a widening."""
    both, only_read, none = (
        parse(of_kind(manifest_text, "oauth2_client", ('["invoices.read"]', scopes)))
        for scopes in ('["invoices.read", "invoices.write"]', '["invoices.read"]', "[]")
    )

    assert Reach.of(both).widened_to(Reach.of(only_read)) == Reach.of(both).widened_to(Reach.of(none)) == ()
    assert Reach.of(only_read).widened_to(Reach.of(both)) == Reach.of(none).widened_to(Reach.of(both))[1:]
    assert Reach.of(only_read).widened_to(Reach.of(both)) == ("scope invoices.write",)
    for before, after, widens in ((both, only_read, False), (only_read, both, True), (only_read, none, True)):
        assert [change.widens for change in capability_changes(before, after)] == [widens]


def test_an_approved_token_grant_serves_only_its_scopes(manifest_text: Text) -> None:
    """The grant serves a version with fewer scopes, but none with another scope or another kind of token."""
    agreed = Reach.of(parse(of_kind(manifest_text, "oauth2_client"))).token_grant
    assert agreed is not None
    replace = msgspec.structs.replace

    assert agreed.scopes == ("invoices.read",)
    assert agreed.serves(agreed)
    assert agreed.serves(replace(agreed, scopes=()))
    assert not agreed.serves(replace(agreed, scopes=("invoices.write",)))
    assert not agreed.serves(replace(agreed, scopes=(), audience="https://api.example.com"))


VALUES: dict[str, tuple[str, ...]] = {
    "algorithm": ("RS256", "PS256", "ES256", "EdDSA"),
    "audience": ("", "https://a.example.com", "https://b.example.com"),
    "resource": ("", "https://a.example.com", "https://b.example.com"),
    "subject_token_type": ("urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt"),
    "token_url": ("https://a.example.com/token", "https://b.example.com/token"),
}
GRANTS = st.builds(
    lambda way, **said: TokenGrant(
        grant=way[0], client_auth=way[1], **{key: value for key, value in said.items() if value}
    ),
    st.sampled_from(
        (
            ("client_credentials", "client_secret_basic"),
            ("client_credentials", "client_secret_post"),
            ("client_credentials", "private_key_jwt"),
            ("jwt_bearer", "none"),
            ("token_exchange", "client_secret_basic"),
            ("token_exchange", "client_secret_post"),
            ("token_exchange", "none"),
        )
    ),
    **{key: st.sampled_from(values) for key, values in VALUES.items()},
)
TEMPLATES = st.builds(
    HmacTemplate,
    algorithm=st.sampled_from(get_args(Digest)),
    key=st.sampled_from(get_args(KeyForm)),
    encoding=st.sampled_from(get_args(SignatureEncoding)),
    message=st.sampled_from(("{body}", "{time}.{body}")),
    headers=st.sampled_from(((("X-A", "{signature}"),), (("X-A", "v={signature}"),), (("X-B", "{signature}"),))),
)


@given(st.tuples(GRANTS, GRANTS) | st.tuples(TEMPLATES, TEMPLATES))
def test_different_grants_and_templates_have_different_descriptions(drawn: tuple[Any, Any]) -> None:
    """The words have every field of a grant and of a template, so a question about a new version never shows two equal
    sentences.

    The exception is `subject_token_type`, which a manifest has for a token exchange alone.
    """
    two = tuple(
        msgspec.structs.replace(spec, subject_token_type=VALUES["subject_token_type"][0])
        if isinstance(spec, TokenGrant) and spec.grant != "token_exchange"
        else spec
        for spec in drawn
    )
    key, kind = ("hmac", "hmac") if isinstance(two[0], HmacTemplate) else ("token", "oauth2_client")
    needs: list[dict[str, Any]] = [{"kind": kind, "scope": "all", key: spec} for spec in two]
    reaches = [
        Reach.of(
            ConnectorManifest(
                name=Fqn.parse("github://o/r"),
                version="1.0.0",
                credential=CredentialNeed(**need),
            )
        )
        for need in needs
    ]

    assert (two[0] == two[1]) == (len({wire_words(reach.wire) for reach in reaches}) == 1)


def test_moving_a_key_to_another_place_in_the_request_widens_the_reach(manifest_text: Text) -> None:
    """The places are path, JSON body, form, query and header; each move in either direction widens."""
    lines = ['path = "/bot{key}"', 'body = "json:/t"', 'body = "form:t"', 'query = "t"', 'header = "X-Key"']
    reaches = [Reach.of(parse(placed(manifest_text, line))) for line in lines]

    assert all(reach.widened_to(other) for reach, other in itertools.permutations(reaches, 2))
