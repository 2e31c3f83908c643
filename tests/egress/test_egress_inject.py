"""Injection: each kind's wire form, and the secrets that cannot be sent."""

from __future__ import annotations

import base64

import pytest

from aileron.egress.inject import LentCredential, check_query, inject, reserved_fields
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import Url, parse_url
from aileron.model.failure import AileronError, FailureClass
from aileron.model.fixes import Stored
from aileron.model.manifest import CredentialKind
from aileron.model.plan import CredentialUse
from aileron.model.request_signing import AwsScope, HmacTemplate
from aileron.model.secret import Secret
from tests.egress.conftest import need, use

URL = parse_url("https://api.example.com/v1")


def injected(credential: CredentialUse, secret: bytes, username: str | None = None, url: Url = URL) -> Injection:
    """Inject a credential into a request without fields."""
    lent = LentCredential(credential.need.kind, Secret(secret), username)
    return inject(credential, lent, Outgoing("GET", url))


@pytest.mark.parametrize(
    ("credential", "expected"),
    [
        (use("oauth2"), ("Authorization", "Bearer sesame-12345")),
        (use("oauth2_client"), ("Authorization", "Bearer sesame-12345")),
        (use("oauth2", header="X-Other", format="{key}"), ("Authorization", "Bearer sesame-12345")),
        (use("api_key"), ("Authorization", "Bearer sesame-12345")),
        (use("api_key", header="X-Api-Key", format="{key}"), ("X-Api-Key", "sesame-12345")),
        (use("api_key", format="Token token={key}, {x}"), ("Authorization", "Token token=sesame-12345, {x}")),
    ],
)
def test_a_key_is_sent_in_the_header_field_that_the_manifest_declares(
    credential: CredentialUse, expected: tuple[str, str]
) -> None:
    """Bearer is the default form; oauth2 is always Bearer."""
    made = injected(credential, b"sesame-12345")

    assert made.request.fields == (expected,)
    assert made.request.url.target == "/v1"
    assert made.roots == {b"sesame-12345"}


def test_a_user_name_and_password_are_sent_as_basic_authentication_in_utf_8() -> None:
    """The form is that of RFC 7617; the pair and its base64 are scrubbed like the password itself."""
    made = injected(use("basic"), "pässword".encode(), "ann")

    wire = base64.b64encode("ann:pässword".encode())
    assert made.request.fields == (("Authorization", f"Basic {wire.decode()}"),)
    assert made.roots == {"pässword".encode(), "ann:pässword".encode(), wire}


def test_a_key_in_the_query_is_encoded_and_comes_last() -> None:
    """The key stands alone or after the connector's own parameters."""
    made = injected(use("api_key", query="api key"), b"sesame&=1#")

    assert made.request.fields == ()
    assert made.request.url.target == "/v1?api%20key=sesame%26%3D1%23"
    made = injected(use("api_key", query="api key"), b"sesame&=1#", url=parse_url("https://h/v1?x=1"))
    assert made.request.url.target == "/v1?x=1&api%20key=sesame%26%3D1%23"


@pytest.mark.abuse_case("E10")
@pytest.mark.parametrize(
    "query",
    ["key=1", "x=1&key=2", "%6bey=1", "k%65y", "x=1;key=2", "KEY=1", "%256bey=1", "key[]=1", "key[0]=1", "key%5B%5D=1", "+key=1",
     "%20key=1", "%09key", "key%00=1", "key%00x=1", "key+=1", "&&key", "key=&key=", "key%ff[]=1&Key=2"],
)  # fmt: skip
def test_a_connector_cannot_set_the_query_parameter_of_the_credential(query: str) -> None:
    """Servers differ in which of two parameters with the same name they use."""
    with pytest.raises(RefusedError) as caught:
        check_query(need(query="key"), parse_url(f"https://h/?{query}"))

    assert caught.value.reason is Reason.HEADER_CREDENTIAL
    check_query(need(query="key"), parse_url("https://h/?keys=1&x=key&a[key]=1&_key=1&x=%26key=1&ke=y"))
    check_query(need(), parse_url(f"https://h/?{query}"))
    check_query(need(query="key"), parse_url("https://h/?"))


@pytest.mark.parametrize("query", ["api.key=1", "api_key=1", "API%20key=1", "api+key=1", "api.key[]=1"])
def test_a_query_parameter_whose_name_php_reads_as_that_of_the_credential_is_refused(query: str) -> None:
    """PHP reads a dot or a blank in a name as an underscore."""
    with pytest.raises(RefusedError):
        check_query(need(query="api.key"), parse_url(f"https://h/?{query}"))
    check_query(need(query="api.key"), parse_url("https://h/?api-key=1&apikey=1"))


@pytest.mark.parametrize("kind", ["oauth2", "oauth2_client"])
@pytest.mark.parametrize("query", ["access_token=1", "x=1&Access_Token=2", "access.token=1", "access%5ftoken"])
def test_a_connector_cannot_send_a_second_token_in_the_query(kind: CredentialKind, query: str) -> None:
    """RFC 6750 also allows an access token in the query. Beside other kinds of credentials it is allowed."""
    with pytest.raises(RefusedError) as caught:
        check_query(need(kind), parse_url(f"https://h/?{query}"))
    assert caught.value.reason is Reason.HEADER_CREDENTIAL

    check_query(need(kind), parse_url("https://h/?access_tokens=1&token=access_token"))
    check_query(need("api_key"), parse_url(f"https://h/?{query}"))
    check_query(need("basic"), parse_url(f"https://h/?{query}"))


@pytest.mark.abuse_case("E22")
@pytest.mark.parametrize("kind", ["api_key", "oauth2", "basic"])
@pytest.mark.parametrize(
    "secret", [b"sesame\r\nX: y", b"sesame-\n1", b"sesame-\0-", b"short12", b"x" * 8193, b"sesame-\x7f"]
)
def test_a_secret_that_could_end_a_header_field_is_refused(kind: str, secret: bytes) -> None:
    """This holds for every kind, and the message quotes none of the secret."""
    with pytest.raises(AileronError) as caught:
        injected(use(kind), secret, "ann")

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert secret.decode("latin-1") not in repr(caught.value)
    assert "sesame" not in str(caught.value.failure)
    fix = "aileron binding reauthorize" if kind == "oauth2" else "aileron secret set"
    assert fix in caught.value.failure.message


@pytest.mark.parametrize("kind", ["api_key", "basic", "hmac", "aws_sigv4", "mtls"])
def test_the_error_for_a_secret_that_cannot_be_sent_contains_the_name_of_the_secret(kind: str) -> None:
    """The name in the vault comes from the loan: the user does not have to look it up."""
    template = HmacTemplate(key="hex", message="{body}", headers=(("X-S", "{signature}"),))
    forms: dict[str, dict[str, object]] = {
        "hmac": {"hmac": template},
        "aws_sigv4": {"aws": AwsScope(region="r", service="s3")},
    }
    lent = LentCredential(kind, Secret(b"no\nkey-"), "ann", stored=Stored("files-key"))
    with pytest.raises(AileronError, match="store another with `aileron secret set files-key"):
        inject(use(kind, **forms.get(kind, {})), lent, Outgoing("GET", URL))


@pytest.mark.parametrize("secret", [b"sesame-\xe9\xe9", "sesame-ü".encode(), b" sesame-123", b"sesame-123 "])
def test_a_secret_that_no_header_can_carry_is_refused_only_in_headers(secret: bytes) -> None:
    """Basic and the query encode such a secret; a field would change it."""
    with pytest.raises(AileronError, match="cannot carry"):
        injected(use("api_key"), secret)

    assert injected(use("basic"), secret, "ann").request.fields
    assert injected(use("api_key", query="k"), secret).request.url.query


@pytest.mark.parametrize("username", [None, "", "a:b", "a\r\nb", "a\0"])
def test_a_user_name_with_a_colon_or_control_character_is_refused(username: str | None) -> None:
    """The first colon ends the user name in Basic authentication (RFC 7617, section 2)."""
    with pytest.raises(AileronError, match="user name"):
        injected(use("basic"), b"sesame-123", username)


@pytest.mark.parametrize(
    "credential",
    [use(header="Host"), use(header="a b"), use(header="X\r\nY"), use(format="Bearer"), use(format="{key}{key}"),
     use(format="{key}\r\nX: y"), use(header="Transfer_Encoding")],
)  # fmt: skip
def test_a_declared_header_name_or_format_that_cannot_carry_a_secret_is_refused(credential: CredentialUse) -> None:
    """The manifest's parser refuses such a form first; this check does not rely on it."""
    with pytest.raises(AileronError) as caught:
        injected(credential, b"sesame-123")
    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED


def test_a_loan_whose_kind_of_credential_differs_from_the_granted_kind_is_refused() -> None:
    """The vault and the grant must name the same kind."""
    with pytest.raises(AileronError, match="kind basic"):
        inject(use("api_key"), LentCredential("basic", Secret(b"sesame-123"), "ann"), Outgoing("GET", URL))


def test_the_repr_of_loans_and_injections_does_not_contain_the_secret() -> None:
    """A traceback or a log may print these objects."""
    assert "sesame" not in repr(injected(use("api_key"), b"sesame-123"))
    assert "sesame" not in repr(LentCredential("api_key", Secret(b"sesame-123")))


def test_the_authorization_field_is_reserved_even_if_the_credential_uses_another_field() -> None:
    """The declared field is reserved too."""
    assert reserved_fields(need()) == {"authorization"}
    assert reserved_fields(need(header="X-Api-Key")) == {"authorization", "x-api-key"}
