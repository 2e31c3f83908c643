"""The address a browser is sent to: whatever a manifest says, what ties the answer to us is ours."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.manifest import OAuth2Provider
from aileron.oauth.problems import ProviderError
from aileron.oauth.request import OURS, AuthorizationRequest, authorization_request, challenge, endpoint_url, origin
from tests.oauth.conftest import asked_for

PROVIDER: Final = OAuth2Provider(
    authorize_url="https://id.example/authorize",
    token_url="https://id.example/token",
    client_id="client-of-the-publisher",
    scopes=("mail.read", "mail.send"),
)


def changed(**changes: Any) -> OAuth2Provider:
    """The provider with something else in its manifest."""
    return OAuth2Provider(**{**{field: getattr(PROVIDER, field) for field in PROVIDER.__struct_fields__}, **changes})


def request_of(provider: OAuth2Provider, **options: Any) -> AuthorizationRequest:
    """The request of the publisher's application, at one port."""
    assert provider.client_id is not None
    return authorization_request(provider, provider.client_id, 4242, **options)


def test_the_challenge_is_the_one_of_the_rfc() -> None:
    """RFC 7636, appendix B."""
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_request_has_what_the_rfcs_ask_for_and_its_secrets_stay_here() -> None:
    """The verifier is in none of it, only its hash."""
    numbers = iter([b"\x01" * 32, b"\x02" * 32])
    asked = request_of(PROVIDER, random=lambda count: next(numbers))
    verifier = asked.verifier.reveal().decode()
    found = asked_for(asked.url)

    assert found == {
        "response_type": "code",
        "client_id": "client-of-the-publisher",
        "redirect_uri": "http://localhost:4242/callback",
        "scope": "mail.read mail.send",
        "state": asked.state.reveal().decode(),
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
    }
    assert verifier not in asked.url
    assert asked.nonce is None
    assert repr(asked).startswith("<aileron.oauth.request.AuthorizationRequest object")
    assert dataclasses.is_dataclass(AuthorizationRequest)


def test_what_the_tokens_are_for_is_said_and_no_scope_where_there_is_none() -> None:
    """RFC 8707 section 2, RFC 6749 section 3.3: an empty `scope` is no scope. The client is the one that asks."""
    resource = "https://mail.example/mcp?team=a&b"
    found = asked_for(authorization_request(changed(scopes=(), resource=resource), "another-client", 4242).url)

    assert found["resource"] == resource
    assert found["client_id"] == "another-client"
    assert "scope" not in found


@pytest.mark.parametrize(
    "client_id",
    ["https://your-mail.example/client.json", "https://id.example/changeme/xxxxx", "https://placeholder.example/"],
)
def test_the_address_of_a_metadata_document_is_a_client_id_to_the_letter(client_id: str) -> None:
    """Whatever its owner calls it; the same words anywhere else are a publisher's who has not put in theirs."""
    assert asked_for(request_of(changed(client_id=client_id)).url)["client_id"] == client_id

    for bad in (client_id.removeprefix("https://"), client_id.replace("https", "http"), client_id + "<path>"):
        with pytest.raises(ProviderError, match="placeholder"):
            request_of(changed(client_id=bad))


def test_a_query_of_the_providers_own_stays() -> None:
    """Some have a tenant there."""
    asked = request_of(changed(authorize_url="https://id.example/a?tenant=x%20y"))

    assert asked.url.startswith("https://id.example/a?tenant=x%20y&response_type=code&")


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_is_ours_is_never_the_manifests(name: str) -> None:
    """Neither as a parameter nor in the address; another name passes."""
    for bad in (
        changed(authorize_params=((name, "x"),)),
        changed(authorize_url=f"https://id.example/a?{name}=x"),
        changed(authorize_url=f"https://id.example/a?{name}"),
        changed(authorize_url=f"https://id.example/a?%{ord(name[0]):02x}{name[1:]}=x"),
    ):
        with pytest.raises(ProviderError, match=name) as caught:
            request_of(bad)
        assert caught.value.code == "bad_provider"

    assert asked_for(request_of(changed(authorize_params=(("prompt", "consent"),))).url)["prompt"] == "consent"


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/authorize",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://user@id.example/",
        "https://id.example/#x",
        "https://id.example/a b",
        "https://id.example/\u202e",
        "https://[::1]/",
        "",
    ],
)
def test_an_address_that_two_could_read_differently_is_not_asked(url: str) -> None:
    """Neither for the browser nor as an endpoint. On this machine http is enough, for tests."""
    with pytest.raises(ProviderError) as caught:
        request_of(changed(authorize_url=url))

    assert caught.value.code == "bad_provider"
    assert origin(endpoint_url("http://localhost:8080/a")) == "http://localhost:8080"
    assert origin(endpoint_url("https://ID.example:443/a")) == "https://id.example"


@given(
    scopes=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5),
    client_id=st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
        lambda text: text.strip() != "" and not set(text) & set("<>xX-_ ")
    ),
    values=st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20), max_size=3),
)
def test_whatever_a_manifest_says_comes_out_as_it_was_said(
    scopes: list[str], client_id: str, values: list[str]
) -> None:
    """Every value is one parameter again, and the address is visible ASCII: nothing in it becomes another parameter."""
    scopes = [scope for scope in scopes if scope.isprintable()] or ["x"]
    params = tuple((f"p{number}", value) for number, value in enumerate(values))
    asked = request_of(changed(scopes=tuple(scopes), client_id=client_id, authorize_params=params))
    found = asked_for(asked.url)

    assert asked.url.isascii()
    assert asked.url.isprintable()
    assert found["scope"] == " ".join(scopes)
    assert found["client_id"] == client_id
    assert [found[name] for name, _ in params] == list(values)
    assert found["redirect_uri"] == "http://localhost:4242/callback"
