"""Signed requests to moto, which checks each signature: S3, and SQS for the rules of the other services."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import TypedDict, Unpack

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.request_signing import AwsScope
from tests.egress.conftest import Got, World, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.moto import REGION, Moto
from tests.support.upstream import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def moto(authority: Authority) -> Iterator[Moto]:
    """Start moto once for this file."""
    with Moto(authority) as running:
        yield running


def signing(service: str) -> CredentialUse:
    """Return the use of an AWS credential for a service, as a manifest declares it, with its binding."""
    return use("aws_sigv4", aws=AwsScope(region=REGION, service=service))


class Options(TypedDict, total=False):
    """Options of a request."""

    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


async def ask(
    world: World, moto: Moto, service: str, path: str, secret: str | None = None, **options: Unpack[Options]
) -> Got:
    """Send one signed request, with moto's key or another secret."""
    world.vault.secret, world.vault.username = (secret or moto.secret).encode(), moto.key_id
    world.resolver.table["localhost"] = ["127.0.0.1"]
    grant = world.grant(HostPort("localhost", moto.port), credential=signing(service))
    url = f"https://localhost:{moto.port}{path}"
    return await world.ask(None, url=url, credential="aws_sigv4", grant=grant, **options)


def action(name: str, body: bytes) -> Options:
    """Return the options of a request for an SQS action, in its JSON protocol."""
    fields = (("Content-Type", "application/x-amz-json-1.0"), ("X-Amz-Target", f"AmazonSQS.{name}"))
    return {"method": "POST", "headers": fields, "body": body}


async def test_s3_objects_are_written_and_read_back(world: World, moto: Moto) -> None:
    """The key has spaces and non-ASCII letters; the listing has an empty parameter."""
    bucket = moto.bucket("egress-objects")
    key = urllib.parse.quote("a b/ü+c~.txt", safe="/~")
    put = await ask(
        world, moto, "s3", f"/{bucket}/{key}", method="PUT", body=b"hello", headers=(("X-Amz-Meta-A", "b  c"),)
    )
    got = await ask(world, moto, "s3", f"/{bucket}/{key}")
    listed = await ask(world, moto, "s3", f"/{bucket}?list-type=2&prefix=&delimiter=%2F")

    assert (put.status, got.status, listed.status) == (200, 200, 200)
    assert got.body == b"hello" == moto.get(bucket, "a b/ü+c~.txt")
    assert b"<Prefix>a b/</Prefix>" in listed.body
    assert_clean(moto.asked[-1].head, moto.secret.encode())


async def test_an_sqs_queue_is_created_and_used(world: World, moto: Moto) -> None:
    """SQS actions are in the body, whose hash is signed without a header field for it."""
    made = await ask(world, moto, "sqs", "/", **action("CreateQueue", b'{"QueueName": "egress"}'))
    listed = await ask(world, moto, "sqs", "/", **action("ListQueues", b"{}"))

    assert (made.status, listed.status) == (200, 200), (made, listed)
    assert b"/egress" in made.body
    assert b"/egress" in listed.body
    assert moto.asked[-1].values("x-amz-content-sha256") == []


@pytest.mark.parametrize("service", ["s3", "sqs"])
async def test_a_wrong_secret_key_is_refused_by_moto_and_reported(world: World, moto: Moto, service: str) -> None:
    """A request with the right secret passes; the wrong secret has the same length."""
    options: Options = {} if service == "s3" else action("ListQueues", b"{}")
    with pytest.raises(AileronError) as caught:
        await ask(world, moto, service, "/", secret="x" * 40, **options)

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert "does not belong to the access key ID" in str(caught.value)
    assert (await ask(world, moto, service, "/", **options)).status == 200
