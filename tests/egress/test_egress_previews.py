"""Steps that only read: which requests of a preview are sent; each refused request is sent by an ordinary step."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec
import pytest

from aileron.egress import Meter
from aileron.egress.tcp import StreamRequest
from aileron.model.failure import AileronError
from aileron.model.plan import Grant
from aileron.model.request_signing import AwsScope
from tests.egress.conftest import HOST, World, reason_of, use
from tests.support.upstream import Script, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]
READING = ("GET", "HEAD", "OPTIONS", "PROPFIND", "QUERY", "REPORT", "SEARCH")


def reading(grant: Grant) -> Grant:
    """Return the same grant for a preview."""
    return msgspec.structs.replace(grant, read_only=True)


@pytest.mark.parametrize("method", READING)
async def test_a_preview_may_use_safe_http_methods(world: World, tls_upstream: MakeUpstream, method: str) -> None:
    """Every method that is defined to be safe is sent, with a body if it has one, and with the credential."""
    with tls_upstream(lambda _seen: answer(b"" if method == "HEAD" else b"ok")) as upstream:
        grant = reading(world.grant_for(upstream, credential=use()))
        body = b"<query/>" if method in {"PROPFIND", "QUERY", "REPORT", "SEARCH"} else None
        got = await world.ask(upstream, method=method, grant=grant, credential="api_key", body=body)

    assert got.status == 200
    assert upstream.requests[0].method == method
    assert world.vault.lent == 1


@pytest.mark.parametrize(
    "method",
    ["POST", "PUT", "PATCH", "DELETE", "MKCOL", "MOVE", "PROPPATCH", "LOCK", "ACL", "get", "Get", "X-GET", "GETS"],
)
async def test_a_preview_may_not_use_unsafe_http_methods(world: World, tls_upstream: MakeUpstream, method: str) -> None:
    """The refusal comes before a lookup, a loan or a row; an ordinary step may send the same request."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, method=method, grant=reading(grant), credential="api_key")
        assert reason_of(error) == "read_only"
        assert "PROPFIND" in error.failure.message
        assert (world.resolver.asked, world.vault.lent, world.journal.rows, upstream.connections) == ([], 0, [], 0)

        assert (await world.ask(upstream, method=method, grant=grant, credential="api_key")).body == b"ok"
    assert [seen.method for seen in upstream.requests] == [method]


@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_METHOD_OVERRIDE"]
)
async def test_a_preview_may_not_override_its_method_with_a_header_field(
    world: World, tls_upstream: MakeUpstream, name: str
) -> None:
    """Some frameworks would obey such a field and do what the method itself forbids."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant, headers = world.grant_for(upstream), ((name, "DELETE"),)
        error = await world.refusal(upstream, headers=headers, grant=reading(grant))
        assert reason_of(error) == "read_only"
        assert upstream.connections == 0

        assert (await world.ask(upstream, headers=headers, grant=grant)).body == b"ok"


@pytest.mark.abuse_case("E49")
@pytest.mark.parametrize("service", ["ec2", "s3"])
@pytest.mark.parametrize(
    "query",
    ["Action=TerminateInstances&Version=1", "a=1&ACTION=x", "a=1;action=x", "%41ction=x", "%2541ction", "Action[]=x"],
)
async def test_a_preview_may_not_name_an_aws_operation_in_its_query(
    world: World, tls_upstream: MakeUpstream, service: str, query: str
) -> None:
    """AWS query APIs perform operations by GET. The word is allowed in a value, and in an ordinary step."""
    world.vault.secret, world.vault.username = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE"
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=use("aws_sigv4", aws=AwsScope(region="eu-1", service=service)))
        error = await world.refusal(upstream, f"/?{query}", grant=reading(grant), credential="aws_sigv4")
        assert reason_of(error) == "read_only"
        assert "Action could name an operation of an AWS query API" in error.failure.message
        assert (world.vault.lent, upstream.connections) == (0, 0)

        assert (await world.ask(upstream, f"/?{query}", grant=grant, credential="aws_sigv4")).body == b"ok"
        harmless = "/Action?Actions=1&marker=Action"
        assert (await world.ask(upstream, harmless, grant=reading(grant), credential="aws_sigv4")).body == b"ok"


async def test_a_preview_with_an_http_method_that_is_never_allowed_is_refused_for_the_reason_method(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The grammar is checked first, so the reason is not that the method writes."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        for method in ("CONNECT", "TRACE", "GET /x"):
            error = await world.refusal(upstream, method=method, grant=reading(world.grant_for(upstream)))
            assert reason_of(error) == "method"


async def test_a_preview_gets_no_stream(world: World, tls_upstream: MakeUpstream) -> None:
    """The content of a stream cannot be judged; an ordinary step gets the same stream."""

    async def opened(grant: Grant) -> bytes:
        deadline = anyio.current_time() + world.timeout_s
        request = StreamRequest(HOST, upstream.port, True)
        streams = world.egress.streams
        async with streams.open(request, grant, Meter(grant.budget), world.journal, deadline) as stream:
            await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return await stream.receive()

    with tls_upstream(lambda _seen: answer(b"hello")) as upstream:
        grant = world.grant_for(upstream)
        with pytest.raises(AileronError) as caught:
            await opened(reading(grant))
        assert reason_of(caught.value) == "read_only"
        assert [(denial.method, denial.reason) for denial in world.journal.denials] == [("TCP", "read_only")]
        assert (world.resolver.asked, world.journal.rows, upstream.connections) == ([], [], 0)

        assert (await opened(grant)).endswith(b"hello")
