"""AWS Signature Version 4: the vectors that AWS publishes, botocore as the oracle, and removal of a library's own signature."""

from __future__ import annotations

import datetime
import hashlib
from unittest import mock
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import RefusedError
from aileron.egress.signing.aws import canonical_request, presigned, signed
from aileron.egress.signing.aws_request import (
    MAX_EXPIRES_S,
    check_own_query,
    given_payload,
    sign_for_aws,
    without_own_signature,
)
from aileron.egress.url import Url, parse_url
from aileron.model.aws_key import AwsKey
from aileron.model.request_signing import AwsScope
from aileron.model.secret import Secret

HOST = "example.amazonaws.com"
AT = datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.UTC)
ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
KEY = AwsKey(ID, Secret(SECRET.encode()))
TEMPORARY = AwsKey(ID, Secret(SECRET.encode()), Secret(TOKEN.encode()))
SCOPE = AwsScope(region="us-east-1", service="service")
EMPTY = hashlib.sha256(b"").hexdigest()
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# awslabs/aws-c-auth, tests/aws-signing-test-suite/v4: name, method, path, query, fields, signature in a field, in the query.
VECTORS: list[tuple[str, str, str, str | None, list[tuple[str, str]], str | None, str | None]] = [
    ("get-header-key-duplicate", "GET", "/", None,
     [("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
     "3349ee0b81b4b589da0ff28a395c3591e04de515651dd74f298fa992d1507a97"),
    ("get-header-value-order", "GET", "/", None,
     [("My-Header1", "value4"), ("My-Header1", "value1"), ("My-Header1", "value3"), ("My-Header1", "value2")],
     "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01", None),
    ("get-header-value-trim", "GET", "/", None, [("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')],
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736", None),
    ("get-slashes-normalized", "GET", "//example//", None, [],
     "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
     "c1834e8fb0307243711f0f907f6ab7311ed300d87f13792d7ee4da89ab93e082"),
    ("get-space-normalized", "GET", "/example space/", None, [],
     "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741", None),
    ("get-unreserved", "GET", f"/{UNRESERVED}", None, [],
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f", None),
    ("get-utf8", "GET", "/\u1234", None, [],
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
     "10eae3f14a260bd3911cc6d008d3c576d143b05b62f09782a7a4b37f52178e44"),
    ("get-vanilla-empty-query-key", "GET", "/", "Param1=value1", [],
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb", None),
    ("get-vanilla-query-order-encoded", "GET", "/", "Param-3=Value3&Param=Value2&%E1%88%B4=Value1", [],
     "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
     "c5f1848ceec943ac2ca68ee720460c23aaae30a2300586597ada94c4a65e4787"),
    ("get-vanilla-query-order-key-case", "GET", "/", "Param2=value2&Param1=value1", [],
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500", None),
    ("get-vanilla-query-unreserved", "GET", "/", f"{UNRESERVED}={UNRESERVED}", [],
     "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197", None),
    ("get-vanilla-utf8-query", "GET", "/", "\u1234=bar", [],
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04", None),
    ("post-header-key-sort", "POST", "/", None, [("My-Header1", "value1")],
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c", None),
    ("post-vanilla-query", "POST", "/", "Param1=value1", [],
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11", None),
]  # fmt: skip


def outgoing(
    method: str = "GET",
    path: str = "/",
    query: str | None = None,
    fields: list[tuple[str, str]] | None = None,
    body: bytes | None = None,
) -> Outgoing:
    """Return a request to the host of the vectors, framed as the engine frames it."""
    return Outgoing(method, Url("https", HOST, 443, path, query), (("Host", HOST), *(fields or ())), body)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector[0] for vector in VECTORS])
def test_the_signatures_match_those_that_aws_publishes(
    vector: tuple[str, str, str, str | None, list[tuple[str, str]], str | None, str | None],
) -> None:
    """The signature in the header field matches, and so does the one in the query where the vector has it."""
    _name, method, path, query, fields, in_field, in_query = vector
    request = outgoing(method, path, query, fields)
    made, signature = signed(request, KEY, SCOPE, AT, EMPTY)
    assert signature == in_field
    assert made.fields[-1][1].endswith(f"Signature={signature}")
    if in_query is not None:
        made, signature = presigned(request, KEY, SCOPE, AT, EMPTY, 3600)
        assert signature == in_query
        assert (made.url.query or "").endswith(f"&X-Amz-Signature={signature}")


def test_a_session_token_is_sent_and_signed() -> None:
    """The signatures with a token, in a field and in the query, are those that AWS publishes."""
    made, signature = signed(outgoing(), TEMPORARY, SCOPE, AT, EMPTY)
    assert signature == "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
    assert ("X-Amz-Security-Token", TOKEN) in made.fields

    made, signature = presigned(outgoing(), TEMPORARY, SCOPE, AT, EMPTY, 3600)
    assert signature == "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c"
    assert f"&X-Amz-Security-Token={TOKEN}" in (made.url.query or "")


# --- botocore ---

SEGMENT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda text: quote(text, safe="~"))
PATH = st.lists(SEGMENT.filter(lambda part: part not in {".", ".."}), max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)
WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda text: quote(text, safe="-_.~"))
PAIR = st.tuples(st.one_of(st.sampled_from(["a", "A", "a-b", "acl"]), WORD.filter(bool)), WORD).map("=".join)
QUERY = st.lists(PAIR, max_size=5).map(lambda pairs: "&".join(pairs) or None)
VALUE = st.text(st.sampled_from(' \tab"=,;/'), max_size=10)
FIELDS = st.lists(
    st.tuples(st.sampled_from(["X-Amz-Meta-A", "x-amz-target", "Content-Type", "X-Own", "Accept"]), VALUE),
    max_size=4,
    unique_by=lambda field: field[0],
)
BODY = st.one_of(st.none(), st.binary(max_size=40))


def _of_botocore(auth: type[botocore.auth.SigV4Auth], request: Outgoing, scope: AwsScope, **more: int) -> AWSRequest:
    """Return the request as botocore signs it at the same time."""
    made = AWSRequest(request.method, f"https://{HOST}{request.url.target}", dict(request.fields), request.body or b"")
    with mock.patch("botocore.auth.get_current_datetime", return_value=AT.replace(tzinfo=None)):
        auth(Credentials(ID, SECRET, TOKEN), scope.service, scope.region, **more).add_auth(made)
    return made


@pytest.mark.parametrize("service", ["sqs", "s3"])
@given(path=PATH, query=QUERY, fields=FIELDS, body=BODY)
def test_the_authorization_field_matches_botocore(
    service: str, path: str, query: str | None, fields: list[tuple[str, str]], body: bytes | None
) -> None:
    """The field matches for any path, query, fields and body, by the rules of S3 and by those of other services.

    S3 serves `%2F` as a slash and signs the slash; botocore, which never sends `%2F`, would sign it unchanged.
    """
    if service == "s3":
        path = path.replace("%2F", "/")
    scope = AwsScope(region="eu-central-1", service=service)
    request = outgoing("PUT", path, query, fields, body)
    auth = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    expected = _of_botocore(auth, request, scope)
    made, _signature = sign_for_aws(request, TEMPORARY, scope, AT)
    assert made.fields[-1] == ("Authorization", expected.headers["Authorization"])


@given(path=PATH, pairs=st.lists(PAIR, max_size=4, unique_by=lambda pair: pair.partition("=")[0]))
def test_the_presigned_query_matches_botocore(path: str, pairs: list[str]) -> None:
    """The signature of a presigned request does not depend on the order of its parameters. (botocore drops repeated names.)"""
    scope = AwsScope(region="eu-central-1", service="sqs")
    request = outgoing("GET", path, "&".join(pairs) or None)
    expected = _of_botocore(botocore.auth.SigV4QueryAuth, request, scope, expires=60)
    made, signature = presigned(request, TEMPORARY, scope, AT, EMPTY, 60)
    assert f"X-Amz-Signature={signature}" in expected.url
    assert sorted((made.url.query or "").split("&")) == sorted(expected.url.partition("?")[2].split("&"))


# --- what goes on the wire ---


def test_a_plus_in_a_query_is_sent_as_a_percent_encoded_space() -> None:
    """Servers read `+` in two ways. It goes out, and is signed, as the space that it means in HTML forms."""
    made, _signature = signed(outgoing(query="q=a+b"), KEY, SCOPE, AT, EMPTY)
    text, _names = canonical_request(made, "service", EMPTY)
    assert made.url.query == "q=a%20b"
    assert text.split("\n")[2] == "q=a%20b"


def test_repeated_slashes_in_a_path_are_kept_for_s3_and_merged_for_other_services() -> None:
    """The key of an S3 object may begin with a slash, so merging slashes would name another object."""
    lines = [canonical_request(outgoing(path="//a%20b//"), service, EMPTY)[0].split("\n") for service in ("s3", "sqs")]
    assert [line[1] for line in lines] == ["//a%20b//", "/a%2520b/"]


OWN = "AWS4-HMAC-SHA256 Credential=placeholder/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00"


def test_the_signature_fields_of_a_client_library_are_removed() -> None:
    """The spelling of the field names makes no difference; a field that is no such signature stays."""
    fields = [
        ("Authorization", OWN),
        ("x-amz-date", "1"),
        ("Date", "2"),
        ("X_Amz_Security_Token", "3"),
        ("x-amz-acl", "private"),
    ]
    assert without_own_signature(fields) == (("x-amz-acl", "private"),)
    other = ("Authorization", "AWS AKID:signature")
    assert without_own_signature([other]) == (other,)


def presigned_url(expires: str) -> str:
    """Return a presigned URL as a library makes it with placeholder keys."""
    return (
        f"https://{HOST}/key?versionId=1&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=x%2Fy&X-Amz-Date=20260101T000000Z"
        f"&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&X-Amz-Security-Token=own&X-Amz-Signature=00"
    )


@pytest.mark.parametrize(
    ("asked", "given"), [("60", "60"), ("604800", str(MAX_EXPIRES_S)), ("x", str(MAX_EXPIRES_S)), ("0", "1")]
)
def test_a_presigned_url_is_presigned_again_with_a_short_lifetime(asked: str, given: str) -> None:
    """The library's own parameters are gone, and the body is left unsigned, as S3 does it."""
    url = parse_url(presigned_url(asked))
    request = Outgoing("GET", url, (("Host", HOST),))
    made, signature = sign_for_aws(request, KEY, AwsScope(region="us-east-1", service="s3"), AT)
    parameters = dict(pair.split("=") for pair in (made.url.query or "").split("&"))
    assert (parameters["versionId"], parameters["X-Amz-Expires"]) == ("1", given)
    assert parameters["X-Amz-Credential"] == quote(f"{ID}/20150830/us-east-1/s3/aws4_request", safe="")
    assert "X-Amz-Security-Token" not in parameters
    assert parameters["X-Amz-Signature"] == signature
    assert all(name.lower() != "authorization" for name, _value in made.fields)


@pytest.mark.parametrize(
    "query",
    ["AWSAccessKeyId=a&Signature=b&Expires=1", "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Signature=00"],
    ids=["version-2", "asymmetric"],
)
def test_a_url_with_an_unsupported_signature_is_refused(query: str) -> None:
    """Two signatures would be sent, one of them worthless. The positive control is a URL whose signature is replaced."""
    with pytest.raises(RefusedError) as refused:
        check_own_query(parse_url(f"https://{HOST}/?{query}"))
    assert refused.value.reason == "header_credential"
    check_own_query(parse_url(presigned_url("60")))


@pytest.mark.parametrize(
    ("scheme", "value", "is_fine"),
    [
        ("https", EMPTY, True),
        ("http", EMPTY, True),
        ("https", "UNSIGNED-PAYLOAD", True),
        ("http", "UNSIGNED-PAYLOAD", False),
        ("https", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", True),
        ("https", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", False),
        ("https", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", False),
        ("https", EMPTY.upper(), False),
        ("https", "", False),
    ],
)  # fmt: skip
def test_a_payload_hash_given_by_the_connector_is_signed_or_refused(scheme: str, value: str, is_fine: bool) -> None:
    """A refusal has the reason `body_signature`; the accepted values are returned unchanged."""
    url, fields = parse_url(f"{scheme}://{HOST}/"), [("X-Amz-Content-Sha256", value)]
    if is_fine:
        assert given_payload(url, fields) == value
        return
    with pytest.raises(RefusedError) as refused:
        given_payload(url, fields)
    assert refused.value.reason == "body_signature"
