"""The signed bytes are the sent bytes: a server recomputes each signature with botocore from what it received."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from aileron.egress import LentCredential
from aileron.egress.inject import needles_for
from aileron.egress.scrub import ENCODINGS
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.request_signing import AwsScope
from aileron.model.secret import Secret
from tests.egress.conftest import HOST, World, plain_url, reason_of, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.aws_service import SignatureChecker
from tests.support.upstream import Authority, Script, Seen, Upstream, answer, chunked_answer
from tests.support.upstream_h2 import H2Seen, H2Upstream, data, head

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

ID, SECRET = "AKIDEXAMPLE", b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = b"IQoJb3JpZ2luX2VjEXAMPLEtoken/with+characters=="
OWN = "AWS4-HMAC-SHA256 Credential=placeholder/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00"
CHECKER = SignatureChecker({ID: SECRET})


def signing(service: str = "s3", region: str = "us-east-1") -> CredentialUse:
    """Return the use of an AWS credential, as a manifest declares it, with its binding."""
    return use("aws_sigv4", aws=AwsScope(region=region, service=service))


def document(**more: object) -> bytes:
    """Return a key document as `credential_process` programs print it."""
    text = {"Version": 1, "AccessKeyId": ID, "SecretAccessKey": SECRET.decode(), "SessionToken": TOKEN.decode()} | more
    return json.dumps(text, indent=2).encode()


@pytest.fixture(autouse=True)
def key(world: World) -> None:
    """Set the vault's secret to the secret access key, and its user name to the key's ID."""
    world.vault.secret, world.vault.username = SECRET, ID


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


async def ask(world: World, upstream: Upstream, path: str = "/", **options: object) -> bytes:
    """Sign and send one request, and return the response's body."""
    grant = world.grant_for(upstream, credential=options.pop("use", signing()))
    got = await world.ask(upstream, path, credential="aws_sigv4", grant=grant, **options)  # type: ignore[arg-type]
    return got.body


@pytest.mark.abuse_case("E48")
@pytest.mark.parametrize("service", ["s3", "s3express"])
@pytest.mark.parametrize("query", ["session", "session=", "x-id=CreateSession&SESSION", "%73ession"])
async def test_a_request_for_s3_session_keys_is_refused(
    world: World, tls_upstream: MakeUpstream, service: str, query: str
) -> None:
    """The new keys in the response could not be masked. For other services `session` is an ordinary parameter."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=signing(service))
        error = await world.refusal(upstream, f"/?{query}", credential="aws_sigv4", grant=grant)
        assert reason_of(error) == "answer_credential"
        assert "disable_s3_express_session_auth" in error.failure.message
        assert (world.vault.lent, upstream.connections) == (0, 0)

        assert await ask(world, upstream, f"/?{query}", use=signing("execute-api")) == b"ok"
        assert await ask(world, upstream, "/session?sessions&prefix=session", use=signing(service)) == b"ok"
        assert (await world.ask(upstream, f"/?{query}", grant=grant)).body == b"ok"


TARGETS = {
    "plain": "/",
    "spaces and unicode": "/bucket/a%20b/%E1%88%B4",
    "slashes": "/bucket//a///b",
    "unreserved": "/bucket/-._~a.b..c",
    "empty and repeated keys": "/bucket/key?acl&b=2&b=1&b=&a=",
    "plus and percent": "/bucket/key?q=a+b%2Bc%25&prefix=x%2Fy",
}


@pytest.mark.parametrize("service", ["s3", "sqs"])
@pytest.mark.parametrize("target", TARGETS, ids=[name.replace(" ", "-") for name in TARGETS])
async def test_a_server_accepts_the_signature(
    world: World, tls_upstream: MakeUpstream, target: str, service: str
) -> None:
    """The signature is good for any path and query, with a body and the connector's own fields."""
    headers = (
        ("Content-Type", "text/plain"),
        ("X-Amz-Meta-Note", "two  blanks\tand a tab"),
        ("X-Own", "1"),
        ("X-Own", "2"),
    )
    with tls_upstream(CHECKER) as upstream:
        body = await ask(
            world, upstream, TARGETS[target], method="PUT", body=b"hello", headers=headers, use=signing(service)
        )

    (seen,) = upstream.requests
    assert body == b"fine", seen
    signed = seen.values("authorization")[0].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    unsigned = {name.lower() for name, _value in seen.fields}.difference(signed)
    assert unsigned == {"accept-encoding", "authorization", "content-length"}


@pytest.mark.parametrize("change", ["field", "own-field", "body", "path", "query"])
async def test_any_change_after_signing_breaks_the_signature(
    world: World, tls_upstream: MakeUpstream, change: str
) -> None:
    """Control for the checking server: it refuses the same bytes with one thing changed."""
    with tls_upstream(CHECKER) as upstream:
        assert await ask(world, upstream, "/b/k?x=1", method="PUT", body=b"hello", headers=(("X-Own", "1"),)) == b"fine"

    (seen,) = upstream.requests
    head, body = seen.head, seen.body
    match change:
        case "field":
            head += b"\r\nx-amz-acl: public-read"
        case "own-field":
            head = head.replace(b"X-Own: 1", b"X-Own: 2")
        case "body":
            body += b"!"
        case "path":
            head = head.replace(b"/b/k", b"/b/l")
        case "query":
            head = head.replace(b"x=1", b"x=1&acl")
    assert CHECKER.what_is_wrong_with(seen) is None
    assert CHECKER.what_is_wrong_with(Seen(head, body)) is not None


async def test_a_signature_made_by_a_library_is_replaced(world: World, tls_upstream: MakeUpstream) -> None:
    """The placeholder, dates and token go too; an Authorization that is no signature of this version is refused."""
    headers = (
        ("Authorization", OWN),
        ("X-Amz-Date", "20200101T000000Z"),
        ("Date", "x"),
        ("X-Amz-Security-Token", "own"),
    )
    with tls_upstream(CHECKER) as upstream:
        assert await ask(world, upstream, headers=headers) == b"fine"
        grant = world.grant_for(upstream, credential=signing())
        for own in ("AWS AKID:signature", "Bearer mine", "AWS4-ECDSA-P256-SHA256 Credential=x"):
            error = await world.refusal(
                upstream, headers=(("Authorization", own),), credential="aws_sigv4", grant=grant
            )
            assert reason_of(error) == "header_credential"

    (seen,) = upstream.requests
    assert seen.values("x-amz-security-token") == seen.values("date") == []
    assert b"placeholder" not in seen.head


@pytest.mark.parametrize("service", ["s3", "sqs"])
async def test_a_presigned_url_is_presigned_again_with_the_key_from_the_vault(
    world: World, tls_upstream: MakeUpstream, service: str
) -> None:
    """The URL is valid for a short time, whatever the library asked for; the ledger has neither secret nor session token."""
    world.vault.secret, world.vault.username = document(), None
    target = (
        "/b/k?versionId=1&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=placeholder%2F20260101%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature=00"
    )
    with tls_upstream(CHECKER) as upstream:
        assert await ask(world, upstream, target, use=signing(service)) == b"fine"

    (seen,) = upstream.requests
    assert "&X-Amz-Expires=300&" in seen.target
    assert seen.values("authorization") == []
    assert "placeholder" not in seen.target
    assert_clean(world.journal.rows, SECRET, TOKEN)


async def test_a_session_token_is_sent_signed_and_masked_in_the_response(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Each part of a key document is a secret; the document itself is sent nowhere."""
    world.vault.secret, world.vault.username = document(), None
    echo: Script = lambda seen: chunked_answer([repr(seen.fields).encode(), b" ", SECRET])  # noqa: E731
    with tls_upstream(echo) as upstream:
        said = await ask(world, upstream)

    (seen,) = upstream.requests
    assert CHECKER.what_is_wrong_with(seen) is None
    assert seen.values("x-amz-security-token") == [TOKEN.decode()]
    assert_clean(said, SECRET, TOKEN, seen.values("authorization")[0].rpartition("=")[2].encode())
    assert ID.encode() in said  # no secret: it says which key was used


async def test_a_signature_is_masked_in_its_own_response_and_the_key_in_every_response(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A signature belongs to one request, so the next request has another. No usual form of either comes back."""
    with tls_upstream(
        lambda seen: answer(f"you sent {seen.values('authorization')[0]}".encode() + b" " + SECRET)
    ) as upstream:
        first, second = await ask(world, upstream), await ask(world, upstream, "/2")

    for said, seen in zip((first, second), upstream.requests, strict=True):
        signature = seen.values("authorization")[0].rpartition("=")[2]
        assert signature.encode() not in said
        assert said.endswith(b"Signature=" + b"*" * 64 + b" " + b"*" * len(SECRET))


async def test_each_secret_in_a_key_document_is_scrubbed_from_responses_of_its_host() -> None:
    """A document without a key gives no needles: it was never sent, so it cannot come back."""
    whole = LentCredential("aws_sigv4", Secret(document()))
    needles = needles_for([whole], HostPort(HOST, 443))
    for part in (SECRET, TOKEN):
        assert {form for _name, encode in ENCODINGS for form in encode(part)} <= set(needles.all)
    assert not needles_for([LentCredential("aws_sigv4", Secret(b'{"Version": 1}'))], HostPort(HOST, 443))


# --- bodies ---


async def test_a_streamed_body_without_a_hash_is_buffered_and_signed(world: World, tls_upstream: MakeUpstream) -> None:
    """The request gets a Content-Length, for S3 and for other services."""
    with tls_upstream(CHECKER) as upstream:
        for service in ("s3", "sqs"):
            said = await ask(world, upstream, method="POST", body=pieces(b"hel", b"lo"), use=signing(service))
            assert said == b"fine"

    assert [seen.body for seen in upstream.requests] == [b"hello"] * 2
    assert [seen.values("content-length") for seen in upstream.requests] == [["5"]] * 2


@pytest.mark.parametrize("length", [(), (("Content-Length", "5"),)], ids=["chunked", "sized"])
async def test_a_streamed_body_with_a_hash_is_sent_without_buffering(
    world: World, tls_upstream: MakeUpstream, length: tuple[tuple[str, str], ...]
) -> None:
    """The request is signed with the hash that the connector gave."""
    given = (("x-amz-content-sha256", hashlib.sha256(b"hello").hexdigest()), *length)
    with tls_upstream(CHECKER) as upstream:
        assert await ask(world, upstream, method="PUT", body=pieces(b"hel", b"", b"lo", b""), headers=given) == b"fine"

    (seen,) = upstream.requests
    assert (seen.body, bool(seen.values("transfer-encoding"))) == (b"hello", not length)


@pytest.mark.parametrize("length", [(), (("Content-Length", "5"),)], ids=["chunked", "sized"])
@pytest.mark.parametrize("chunks", [(b"hel", b"lo"), (b"hello",)], ids=["in-two", "in-one"])
async def test_a_streamed_body_that_does_not_match_its_hash_is_never_sent_completely(
    world: World, tls_upstream: MakeUpstream, length: tuple[tuple[str, str], ...], chunks: tuple[bytes, ...]
) -> None:
    """The service never sees a whole request."""
    given = (("x-amz-content-sha256", hashlib.sha256(b"HELLO").hexdigest()), *length)
    with tls_upstream(CHECKER) as upstream:
        grant = world.grant_for(upstream, credential=signing())
        error = await world.refusal(
            upstream, method="PUT", body=pieces(*chunks), headers=given, credential="aws_sigv4", grant=grant
        )

    assert reason_of(error) == "body_signature"
    assert upstream.requests == []
    after_head = upstream.received.partition(b"\r\n\r\n")[
        2
    ]  # the head itself may end with a signature that ends with 0
    assert chunks[-1] not in after_head
    assert not after_head.endswith(b"0\r\n\r\n")


async def test_a_whole_body_that_does_not_match_its_hash_is_refused_at_once(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The refusal comes before the secret is lent; the body with its right hash is sent."""
    with tls_upstream(CHECKER) as upstream:
        grant = world.grant_for(upstream, credential=signing())
        wrong = (("x-amz-content-sha256", hashlib.sha256(b"HELLO").hexdigest()),)
        error = await world.refusal(
            upstream, method="PUT", body=b"hello", headers=wrong, credential="aws_sigv4", grant=grant
        )
        assert (reason_of(error), world.vault.lent, upstream.connections) == ("body_signature", 0, 0)
        right = (("x-amz-content-sha256", hashlib.sha256(b"hello").hexdigest()),)
        assert await ask(world, upstream, method="PUT", body=b"hello", headers=right) == b"fine"


@pytest.mark.parametrize("value", ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"])
async def test_an_unsigned_body_is_sent_only_over_tls(world: World, tls_upstream: MakeUpstream, value: str) -> None:
    """`UNSIGNED-PAYLOAD` is signed in place of the hash; without TLS the request is refused."""
    given = (("x-amz-content-sha256", value),)
    with tls_upstream(CHECKER) as upstream:
        assert await ask(world, upstream, method="PUT", body=pieces(b"hel", b"lo"), headers=given) == b"fine"
        grant = world.grant_for(upstream, credential=signing(), plain=True)
        error = await world.refusal(
            upstream,
            url=plain_url(upstream),
            method="PUT",
            body=b"x",
            headers=given,
            credential="aws_sigv4",
            grant=grant,
        )

    assert reason_of(error) == "body_signature"
    assert upstream.requests[0].values("x-amz-content-sha256") == [value]


async def test_a_body_of_chunks_signed_with_the_placeholder_key_is_refused(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The error names the setting for boto3."""
    given = (("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),)
    with tls_upstream(CHECKER) as upstream:
        grant = world.grant_for(upstream, credential=signing())
        for body in (b"x", pieces(b"x")):
            error = await world.refusal(
                upstream, method="PUT", body=body, headers=given, credential="aws_sigv4", grant=grant
            )
            assert reason_of(error) == "body_signature"
            assert "request_checksum_calculation" in str(error)
        assert upstream.connections == 0


# --- the key ---


def iso(**delta: float) -> str:
    """Return a time relative to now, as AWS writes it."""
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(**delta)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("secret", "username", "says"),
    [
        (document(Expiration="2026-01-01T00:00:00Z"), None, "expired at 2026-01-01 00:00 UTC"),
        (document(), "AKIAANOTHER", "another AccessKeyId"),
        (b'{"Version": 1}', None, "needs AccessKeyId and SecretAccessKey"),
        (SECRET, None, "no access key ID"),
        (SECRET, "ASIAEXAMPLEEXAMPLE", "without its session token"),
        (b"AKIAEXAMPLEEXAMPLE", ID, "looks like an access key ID"),
    ],
    ids=["expired", "other-id", "not-a-key", "no-id", "no-token", "swapped"],
)
async def test_a_key_that_cannot_sign_is_reported_as_a_failed_binding(
    world: World, tls_upstream: MakeUpstream, secret: bytes, username: str | None, says: str
) -> None:
    """The request is not sent; the message says what to do, and quotes no secret."""
    world.vault.secret, world.vault.username = secret, username
    with tls_upstream(CHECKER) as upstream:
        with pytest.raises(AileronError) as caught:
            await ask(world, upstream)
        assert upstream.requests == []
        world.vault.secret, world.vault.username = document(Expiration=iso(hours=1)), None
        assert await ask(world, upstream) == b"fine"

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert says in str(caught.value)
    assert "aileron secret set" in str(caught.value)
    assert_clean(str(caught.value), SECRET, TOKEN)


async def test_the_signature_of_an_http2_request_matches_what_is_sent(world: World, authority: Authority) -> None:
    """Lower-case field names and the host as a pseudo-header field make no difference to a signature."""
    heard: list[H2Seen] = []

    def script(seen: H2Seen) -> list[bytes]:
        heard.append(seen)
        return [head(seen, (":status", "200")), data(seen, b"ok", end=True)]

    with H2Upstream(script, authority.server_context(HOST)) as upstream:
        grant = world.grant(HostPort(HOST, upstream.port), credential=signing())
        url = f"https://{HOST}:{upstream.port}/b/k?acl"
        got = await world.ask(None, url=url, method="PUT", credential="aws_sigv4", body=b"hello", grant=grant)
        assert got.body == b"ok"

    (seen,) = heard
    fields = [(name.decode(), value.decode()) for name, value in seen.fields if not name.startswith(b":")]
    lines = "".join(f"\r\n{name}: {value}" for name, value in [("host", seen.value(":authority")), *fields])
    assert CHECKER.what_is_wrong_with(Seen(f"PUT {seen.target} HTTP/1.1{lines}".encode(), seen.body)) is None
