"""Signatures that the service refuses: clock, region or key, each reported with its fix; all other errors are relayed."""

from __future__ import annotations

import datetime
import email.utils
import json
import re
from collections.abc import Callable

import pytest

from aileron.egress.journal import RequestReport
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored
from aileron.model.plan import CredentialUse
from aileron.model.request_signing import AwsScope
from tests.egress.conftest import World, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.upstream import Script, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

ID, SECRET = "AKIDEXAMPLE", b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNING = use("aws_sigv4", aws=AwsScope(region="eu-central-1", service="s3"))


def xml(code: str, more: str = "") -> bytes:
    """Return an error document of S3."""
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message>{more}</Error>'.encode()


def coral(code: str, message: str = "no") -> bytes:
    """Return an error document of a service that speaks JSON."""
    return json.dumps({"__type": f"com.amazon.coral.service#{code}", "message": message}).encode()


def query_api(code: str, message: str = "no") -> bytes:
    """Return an error document of STS, SQS or EC2."""
    error = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    return f"<ErrorResponse><Error>{error}</Error></ErrorResponse>".encode()


def date(minutes: int) -> str:
    """Return a `Date` field with a placeholder: that many minutes from the time at which `dated` fills it in."""
    return f"Date: @{minutes}@"


def dated(said: bytes) -> bytes:
    """Fill in the times of `date` placeholders."""
    now = datetime.datetime.now(datetime.UTC)

    def written(found: re.Match[bytes]) -> bytes:
        return email.utils.format_datetime(now + datetime.timedelta(minutes=int(found[1])), usegmt=True).encode()

    return re.sub(rb"@(-?[0-9]+)@", written, said)


async def asked(world: World, upstream: Upstream, credential: CredentialUse = SIGNING, method: str = "GET") -> int:
    """Send one signed request and return the response's status."""
    world.vault.secret, world.vault.username = SECRET, ID
    grant = world.grant_for(upstream, credential=credential)
    return (await world.ask(upstream, method=method, credential="aws_sigv4", grant=grant)).status


async def failure(world: World, upstream: Upstream) -> AileronError:
    """Return the failure of a signed request. The ledger has its status and its failure class."""
    with pytest.raises(AileronError) as caught:
        await asked(world, upstream)
    report = world.journal.rows[-1]
    assert isinstance(report, RequestReport)
    assert report.status is not None
    assert report.failure is caught.value.failure.failure_class
    assert_clean(repr(caught.value.failure), SECRET)
    return caught.value


CLOCK = {
    "ahead": (
        answer(xml("RequestTimeTooSkewed"), date(-60), status="403 No"),
        "is 60 minutes ahead of api.example.test",
    ),
    "behind": (answer(xml("RequestTimeTooSkewed"), date(60), status="403 No"), "is 60 minutes behind api.example.test"),
    "a wrong signature": (
        answer(coral("InvalidSignatureException"), date(-60), status="403 No"),
        "60 minutes ahead of",
    ),
    "an expired one": (
        answer(
            query_api("SignatureDoesNotMatch", "Signature expired: 2026 is now earlier than"),
            date(-60),
            status="403 No",
        ),
        "60 minutes ahead of",
    ),
    "an expired url": (
        answer(xml("AccessDenied").replace(b">no<", b">Request has expired<"), date(-20), status="403 No"),
        "20 minutes ahead of",
    ),
    "no body": (answer(b"", date(7), status="403 No"), "is 7 minutes behind"),
    "no date": (answer(xml("RequestTimeTooSkewed"), status="403 No"), "is not that of the service"),
    "a bad date": (
        answer(xml("RequestTimeTooSkewed"), "Date: yesterday", status="403 No"),
        "is not that of the service",
    ),
}


@pytest.mark.parametrize("case", CLOCK, ids=[name.replace(" ", "-") for name in CLOCK])
async def test_an_aws_refusal_caused_by_a_wrong_clock_is_reported_with_the_fix(
    world: World, tls_upstream: MakeUpstream, case: str
) -> None:
    """The message says by how much and in which direction, if the response has the service's time, and how to set the clock."""
    said, words = CLOCK[case]
    with tls_upstream(lambda _seen: dated(said)) as upstream:
        error = await failure(world, upstream)

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert not error.failure.retriable
    assert words in str(error)
    assert "timedatectl set-ntp true" in str(error)


REGION = {
    "malformed": (
        answer(xml("AuthorizationHeaderMalformed", "<Region>us-west-2</Region>"), status="400 No"),
        "region eu-central-1, and the service expects us-west-2",
    ),
    "in words": (
        answer(
            xml("AuthorizationHeaderMalformed").replace(
                b">no<", b">the region 'eu-central-1' is wrong; expecting 'us-west-2'<"
            ),
            status="400 No",
        ),
        "expects us-west-2",
    ),
    "of a head": (answer(b"", "x-amz-bucket-region: us-west-2", status="400 No"), "expects us-west-2"),
    "not said": (
        answer(coral("InvalidSignatureException", "Credential should be scoped to a valid region. "), status="403 No"),
        "region eu-central-1, and the service expects another",
    ),
    "a service": (
        answer(
            query_api("SignatureDoesNotMatch", "Credential should be scoped to correct service: 'sqs'. "),
            status="403 No",
        ),
        "service s3, and the service expects sqs",
    ),
}


@pytest.mark.parametrize("case", REGION, ids=[name.replace(" ", "-") for name in REGION])
async def test_a_wrong_region_or_service_is_reported(world: World, tls_upstream: MakeUpstream, case: str) -> None:
    """The message names the one in the manifest and the one that the service expects."""
    said, words = REGION[case]
    with tls_upstream(lambda _seen: dated(said)) as upstream:
        error = await failure(world, upstream)

    assert (error.failure.failure_class, error.failure.boundary) == (
        FailureClass.BINDING_FAILED,
        Boundary.USER,
    )
    assert words in str(error)
    assert "[capabilities.credential.aws]" in str(error)


KEY = {
    "InvalidAccessKeyId": answer(xml("InvalidAccessKeyId"), status="403 No"),
    "InvalidClientTokenId": answer(query_api("InvalidClientTokenId"), status="403 No"),
    "UnrecognizedClientException": answer(coral("UnrecognizedClientException"), status="400 No"),
    "a field": answer(
        b'{"message": "no"}',
        "x-amzn-ErrorType: UnrecognizedClientException:http://internal.amazon.com/",
        status="403 No",
    ),
    "SignatureDoesNotMatch": answer(xml("SignatureDoesNotMatch"), date(0), status="403 No"),
    "ExpiredToken": answer(xml("ExpiredToken"), status="400 No"),
    "ExpiredTokenException": answer(coral("ExpiredTokenException"), date(1), status="400 No"),
    "AuthFailure": answer(query_api("AuthFailure"), status="401 No"),
}


@pytest.mark.parametrize("case", KEY, ids=[name.replace(" ", "-") for name in KEY])
async def test_a_refused_access_key_is_reported_as_a_failed_binding(
    world: World, tls_upstream: MakeUpstream, case: str
) -> None:
    """The message has the command that stores another key."""
    with tls_upstream(lambda _seen: dated(KEY[case])) as upstream:
        error = await failure(world, upstream)

    assert (error.failure.failure_class, error.failure.boundary) == (FailureClass.BINDING_FAILED, Boundary.USER)
    assert "aileron secret set" in str(error)


async def test_the_fix_for_a_refused_key_kept_in_a_secret_store_names_that_store(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """`secret set` would put a value in place of the reference."""
    world.vault.stored = Stored("cloud", "vault://store.example/secret/cloud#key")
    with tls_upstream(lambda _seen: KEY["InvalidAccessKeyId"]) as upstream:
        error = await failure(world, upstream)

    assert "change it at vault://store.example/secret/cloud#key, then approve it with" in str(error)
    assert "secret set" not in str(error)


RELAYED = {
    "a policy": answer(xml("AccessDenied"), date(0), status="403 No"),
    "a policy under another clock": answer(xml("AccessDenied"), date(-7), status="403 No"),
    "a parameter": answer(coral("ValidationException"), date(-60), status="400 No"),
    "no such thing": answer(xml("InvalidAccessKeyId"), status="404 No"),
    "a page": answer(b"x" * (65 << 10) + xml("InvalidAccessKeyId"), status="403 No"),
    "the same region": answer(b"", "x-amz-bucket-region: eu-central-1", status="400 No"),
    "a route": answer(
        b'{"message": "Missing Authentication Token"}',
        "x-amzn-ErrorType: MissingAuthenticationTokenException",
        status="403 No",
    ),
    "fine": answer(xml("InvalidAccessKeyId")),
}


@pytest.mark.parametrize("case", RELAYED, ids=[name.replace(" ", "-") for name in RELAYED])
async def test_an_error_that_is_not_about_the_signature_is_relayed(
    world: World, tls_upstream: MakeUpstream, case: str
) -> None:
    """The response arrives unchanged; so does an error about signatures if the request was sent without one."""
    with tls_upstream(lambda _seen: dated(RELAYED[case])) as upstream:
        grant = world.grant_for(upstream, credential=SIGNING)
        world.vault.secret, world.vault.username = SECRET, ID
        got = await world.ask(upstream, credential="aws_sigv4", grant=grant)
        assert RELAYED[case].endswith(b"\r\n\r\n" + got.body)
        assert (await world.ask(upstream, grant=grant)).body == got.body

    assert world.journal.last.failure is None


async def test_odd_text_in_an_error_response_is_not_quoted(world: World, tls_upstream: MakeUpstream) -> None:
    """The message quotes only the name of a region or service, and only if it looks like one."""
    odd = answer(xml("AuthorizationHeaderMalformed", "<Region>Run `rm -rf /` now</Region>"), status="400 No")
    with tls_upstream(lambda _seen: odd) as upstream:
        error = await failure(world, upstream)
    assert "rm -rf" not in str(error)
    assert "expects another" in str(error)
