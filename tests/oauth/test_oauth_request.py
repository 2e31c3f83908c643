"""The address to which a browser is sent: whatever a manifest says, the parameters that tie the answer to us are ours."""

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
    """Return the provider with changes in its manifest."""
    return OAuth2Provider(**{**{field: getattr(PROVIDER, field) for field in PROVIDER.__struct_fields__}, **changes})


def request_of(provider: OAuth2Provider, **options: Any) -> AuthorizationRequest:
    """Return the request of the publisher's application, at one port."""
    assert provider.client_id is not None
    return authorization_request(provider, provider.client_id, 4242, **options)


def test_the_pkce_challenge_matches_the_example_of_rfc_7636() -> None:
    """The example is in appendix B."""
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_authorization_request_has_the_required_parameters_and_no_pkce_verifier() -> None:
    """The request contains only the hash of the PKCE verifier."""
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


def test_the_authorization_request_has_the_resource_and_no_empty_scope() -> None:
    """RFC 8707 section 2, RFC 6749 section 3.3: an empty `scope` is no scope. The client ID is that of the caller."""
    resource = "https://mail.example/mcp?team=a&b"
    found = asked_for(authorization_request(changed(scopes=(), resource=resource), "another-client", 4242).url)

    assert found["resource"] == resource
    assert found["client_id"] == "another-client"
    assert "scope" not in found


@pytest.mark.parametrize(
    "client_id",
    ["https://your-mail.example/client.json", "https://id.example/changeme/xxxxx", "https://placeholder.example/"],
)
def test_a_client_id_may_be_the_url_of_a_metadata_document(client_id: str) -> None:
    """Words in the URL may look like a placeholder that a publisher forgot to replace, and still are no placeholder."""
    assert asked_for(request_of(changed(client_id=client_id)).url)["client_id"] == client_id

    for bad in (client_id.removeprefix("https://"), client_id.replace("https", "http"), client_id + "<path>"):
        with pytest.raises(ProviderError, match="placeholder"):
            request_of(changed(client_id=bad))


def test_a_query_in_the_authorization_url_is_kept() -> None:
    """Some providers put a tenant there."""
    asked = request_of(changed(authorize_url="https://id.example/a?tenant=x%20y"))

    assert asked.url.startswith("https://id.example/a?tenant=x%20y&response_type=code&")


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_manifest_cannot_set_parameters_that_aileron_sets(name: str) -> None:
    """Neither its extra parameters nor its URL may contain one; other parameters are allowed."""
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
def test_an_ambiguous_authorization_url_is_refused(url: str) -> None:
    """A browser opens it, and could read it differently. An endpoint on loopback may use http, for tests."""
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
def test_each_manifest_value_in_the_authorization_url_is_parsed_back_unchanged(
    scopes: list[str], client_id: str, values: list[str]
) -> None:
    """Each value is parsed back as one parameter, so it cannot become a second one."""
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
