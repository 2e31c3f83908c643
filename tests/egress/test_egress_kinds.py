"""Each kind of credential from the loan to the wire; a connector's own credential beside it is refused in any spelling."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import pytest

from aileron.egress.scrub import ENCODINGS
from aileron.model.credential_kind import CREDENTIAL_KINDS
from aileron.model.plan import CredentialUse
from tests.egress.conftest import World, reason_of, use
from tests.support.upstream import Script, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

SECRET = b"s3same-open/+0123456789"
BASIC = "Basic " + base64.b64encode(b"ann:" + SECRET).decode()

KINDS = {
    "oauth2": (use("oauth2"), ("Authorization", f"Bearer {SECRET.decode()}")),
    "oauth2_client": (use("oauth2_client"), ("Authorization", f"Bearer {SECRET.decode()}")),
    "api_key": (use(), ("Authorization", f"Bearer {SECRET.decode()}")),
    "api_key in a header": (use(header="X-Api-Key", format="{key}"), ("X-Api-Key", SECRET.decode())),
    "api_key in a format": (use(format="Token token={key}"), ("Authorization", f"Token token={SECRET.decode()}")),
    "api_key in the query": (use(query="key"), None),
    "basic": (use("basic"), ("Authorization", BASIC)),
}
ELSEWHERE: Final = {
    "aws_sigv4": "its secret is not sent: test_egress_aws_wire.py",
    "hmac": "its secret is not sent: test_egress_hmac.py",
    "digest": "its secret is not sent, and it answers a challenge: test_egress_digest.py",
    "mtls": "it is not in the request: test_egress_certificates.py",
    "login": "no request can carry it: test_egress_logins.py",
}
"""Kinds that are left out here, with the reason and the file that tests them."""

Kind = tuple[CredentialUse, tuple[str, str] | None]


@pytest.fixture(params=KINDS, ids=[kind.replace(" ", "-") for kind in KINDS])
def kind(request: pytest.FixtureRequest, world: World) -> Kind:
    """Return each kind, with its secret in the vault."""
    world.vault.secret, world.vault.username = SECRET, "ann"
    return KINDS[request.param]


def test_every_kind_of_credential_is_tested_here_or_listed_as_tested_elsewhere() -> None:
    """A new kind is added to one of the tables above."""
    here = [credential.need.kind for credential, _field in KINDS.values()]
    assert sorted({*here, *ELSEWHERE}) == sorted(CREDENTIAL_KINDS)
    assert set(here) & set(ELSEWHERE) == set()


async def test_each_kind_of_credential_is_sent_exactly_once(
    world: World, tls_upstream: MakeUpstream, kind: Kind
) -> None:
    """The credential is in its one place, after the connector's own fields and parameters."""
    credential, field = kind
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        await world.ask(upstream, "/v1?x=1", credential=credential.need.kind, headers=(("X-Own", "1"),), grant=grant)

    (seen,) = upstream.requests
    if field is None:
        assert seen.target == "/v1?x=1&key=s3same-open%2F%2B0123456789"
        assert seen.values("authorization") == []
    else:
        assert seen.fields[-1] == field
        assert seen.target == "/v1?x=1"
    assert upstream.received.count(b"s3same") == (field != ("Authorization", BASIC))


@pytest.mark.parametrize(
    "name",
    ["Authorization", "authorization", "AUTHORIZATION", "aUTHORIZATION", " Authorization", "Authorization ", "Authorization\t",
     "Author\u0131zation", "Authorization:", "\nAuthorization", "Authorization\0", "X-A\r\nAuthorization"],
)  # fmt: skip
async def test_a_connector_s_own_authorization_is_refused_beside_each_kind_of_credential(
    world: World, tls_upstream: MakeUpstream, kind: Kind, name: str
) -> None:
    """The reason is the credential's field or an invalid name; without a credential the field is the connector's business."""
    credential, _field = kind
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        headers = ((name, "Bearer mine"),)
        error = await world.refusal(upstream, credential=credential.need.kind, headers=headers, grant=grant)
        assert (upstream.requests, world.vault.lent) == ([], 0)
        await world.ask(upstream, headers=(("Authorization", "Bearer mine"),), grant=grant)

    assert reason_of(error) in {"header_credential", "header_name"}
    assert upstream.requests[0].values("authorization") == ["Bearer mine"]


@pytest.mark.parametrize("name", ["X-Api-Key", "x-api-key", "X_Api_Key", "X-API_KEY"])
async def test_a_connector_cannot_set_the_header_field_in_which_its_key_is_sent(
    world: World, tls_upstream: MakeUpstream, name: str
) -> None:
    """CGI reads `-` and `_` as one. If the credential goes elsewhere, the field is an ordinary one."""
    world.vault.secret = SECRET
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(header="X-Api-Key", format="{key}"))
        error = await world.refusal(upstream, credential="api_key", headers=((name, "mine"),), grant=grant)
        elsewhere = world.grant_for(upstream, credential=use())
        await world.ask(upstream, credential="api_key", headers=((name, "mine"),), grant=elsewhere)

    assert reason_of(error) == "header_credential"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("credential", "query"),
    [(use(query="key"), query) for query in ("key=mine", "x=1&KEY=mine", "%6bey=mine", "%256Bey", "key[]=mine", "x;key=mine")]
    + [(use(kind), query) for kind in ("oauth2", "oauth2_client")
       for query in ("access_token=mine", "x=1&ACCESS_TOKEN=mine", "access%255ftoken=mine")],
)  # fmt: skip
async def test_a_connector_cannot_set_the_query_parameter_in_which_its_key_is_sent(
    world: World, tls_upstream: MakeUpstream, credential: CredentialUse, query: str
) -> None:
    """Servers differ in which of two they use. Without a credential the connector may set the parameter."""
    world.vault.secret = SECRET
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        error = await world.refusal(upstream, f"/?{query}", credential=credential.need.kind, grant=grant)
        assert (upstream.requests, world.vault.lent) == ([], 0)
        await world.ask(upstream, f"/?{query}", grant=grant)

    assert reason_of(error) == "header_credential"
    assert upstream.requests[0].target == f"/?{query}"


async def test_a_secret_of_each_kind_of_credential_is_scrubbed_in_every_encoding(
    world: World, tls_upstream: MakeUpstream, kind: Kind
) -> None:
    """The secret does not come back in any encoding of the list, in whichever form it was sent."""
    credential, _field = kind
    roots = [SECRET, b"ann:" + SECRET, BASIC.removeprefix("Basic ").encode()]
    roots = roots if credential.need.kind == "basic" else roots[:1]
    forms = sorted({form for root in roots for _name, encode in ENCODINGS for form in encode(root)})
    with tls_upstream(lambda _seen: answer(b"\t".join(forms))) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        got = await world.ask(upstream, credential=credential.need.kind, grant=grant)

    assert [line.strip(b"*") for line in got.body.split(b"\t")] == [b""] * len(forms)
    assert got.scrubbed >= len(forms)
