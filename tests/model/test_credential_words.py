"""The words for how each kind of credential is sent: the text of a consent names the place, and no two kinds read the same."""

from __future__ import annotations

from typing import get_args

from aileron.model.credential import Reach, wire_facts, wire_words
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest, CredentialKind, CredentialNeed
from aileron.model.names import Fqn, HostPort
from aileron.model.request_signing import AwsScope, HmacTemplate, TokenGrant

NEEDS = {
    need.kind: need
    for need in (
        CredentialNeed(kind="api_key", scope="s"),
        CredentialNeed(kind="basic", scope="s"),
        CredentialNeed(kind="digest", scope="s"),
        CredentialNeed(kind="mtls", scope="s"),
        CredentialNeed(kind="oauth2", scope="s"),
        CredentialNeed(kind="aws_sigv4", scope="s", aws=AwsScope(region="eu-1", service="s3")),
        CredentialNeed(kind="hmac", scope="s", hmac=HmacTemplate(message="{body}", headers=(("X-S", "{signature}"),))),
        CredentialNeed(
            kind="oauth2_client",
            scope="s",
            token=TokenGrant(grant="client_credentials", token_url="https://id.example/t", client_auth="none"),
        ),
        CredentialNeed(kind="login", scope="s", logins=(LoginTarget.parse("imap://mail.example:993"),)),
    )
}


def words(kind: CredentialKind) -> str:
    """Return the words of a connector with this kind of credential."""
    hosts = (HostPort("mail.example", 993),)
    manifest = ConnectorManifest(
        name=Fqn.parse("github://a/connector-b"), version="1.0.0", hosts=hosts, credential=NEEDS[kind]
    )
    wire = Reach.of(manifest).wire
    assert wire_words(wire) != wire, "the words of what is kept, not what is kept"
    facts = dict(wire_facts(wire))
    assert facts["logs in at" if kind == "login" else "sent as"]
    return wire_words(wire)


def test_every_credential_kind_has_a_different_description() -> None:
    """A new kind must say how it is sent."""
    kinds: tuple[CredentialKind, ...] = get_args(CredentialKind)
    assert set(NEEDS) == set(kinds)
    assert len({words(kind) for kind in kinds}) == len(kinds)
