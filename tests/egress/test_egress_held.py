"""Held bodies: a streamed body that must be whole is read to its end before anything is lent, and sent with its length."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from aileron.egress import Meter
from aileron.egress.held import PLACES_OF_ONE
from aileron.model.failure import FailureClass
from tests.egress.conftest import World, reason_of, use
from tests.support.upstream import Script, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

KEYED = use(body="json:/token")
JSON = ("Content-Type", "application/json")
"""Content type of a body that carries the key: at most 1 MiB of it is held."""


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


async def test_a_buffered_body_is_sent_with_its_length(world: World, tls_upstream: MakeUpstream) -> None:
    """The held body is not chunked; without the credential the same body is streamed."""
    with tls_upstream(lambda seen: answer(b"%d" % len(seen.body))) as upstream:
        grant = world.grant_for(upstream, credential=KEYED)
        for credential in ("api_key", None):
            await world.ask(
                upstream,
                method="POST",
                headers=(JSON,),
                body=pieces(b'{"a":', b" 1}"),
                credential=credential,
                grant=grant,
            )

    held, streamed = upstream.requests
    assert (held.values("content-length"), held.values("transfer-encoding")) == ([str(len(held.body))], [])
    assert streamed.values("transfer-encoding") == ["chunked"]
    assert (held.body[:5], streamed.body) == (b'{"a":', b'{"a": 1}')


async def test_no_secret_is_lent_before_a_buffered_body_is_complete(world: World, tls_upstream: MakeUpstream) -> None:
    """The connector sends slowly; until the body is complete there is no connection either."""
    seen: list[tuple[int, int]] = []
    with tls_upstream(lambda _seen: answer()) as upstream:

        async def slow() -> AsyncIterator[bytes]:
            for chunk in (b'{"a":', b" 1}"):
                seen.append((world.vault.lent, upstream.connections))
                yield chunk

        grant = world.grant_for(upstream, credential=KEYED)
        await world.ask(upstream, method="POST", headers=(JSON,), body=slow(), credential="api_key", grant=grant)
        assert world.vault.lent == 1

    assert seen == [(0, 0), (0, 0)]


@pytest.mark.parametrize("headers", [(JSON,), (JSON, ("Content-Length", str(3 << 19)))], ids=["in-pieces", "announced"])
async def test_a_body_above_the_limit_for_buffered_bodies_is_refused(
    world: World, tls_upstream: MakeUpstream, headers: tuple[tuple[str, str], ...]
) -> None:
    """The error says what to do; no secret is lent, and no connection is made."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=KEYED)
        body = pieces(*[bytes(1 << 19)] * 3)
        error = await world.refusal(
            upstream, method="POST", body=body, credential="api_key", headers=headers, grant=grant
        )

    assert (reason_of(error), upstream.connections, world.vault.lent) == ("body_held", 0, 0)
    assert "more than 1 MiB; send it in parts" in str(error)


async def test_a_buffered_body_must_have_its_announced_length(world: World, tls_upstream: MakeUpstream) -> None:
    """A shorter or longer body is refused, as a streamed one is."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=KEYED)
        for chunks in ((b"{}",), (b'{"a": 1', b', "b": 2}')):
            headers = (JSON, ("Content-Length", "8"))
            error = await world.refusal(
                upstream, method="POST", body=pieces(*chunks), credential="api_key", headers=headers, grant=grant
            )
            assert reason_of(error) == "body_length"
        await world.ask(
            upstream, method="POST", body=pieces(b'{"a": 1}'), credential="api_key", headers=headers, grant=grant
        )

    assert len(upstream.requests) == 1


async def test_a_step_buffers_a_bounded_number_of_bodies_at_once(world: World, tls_upstream: MakeUpstream) -> None:
    """Another body waits until the deadline and fails as network_error in phase `queue`; afterwards there is room again."""
    stuck = anyio.Event()

    async def waiting() -> AsyncIterator[bytes]:
        await stuck.wait()
        yield b"{}"

    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=KEYED)
        meter = Meter(grant.budget)
        async with anyio.create_task_group() as tasks:
            for _number in range(PLACES_OF_ONE):

                async def ask() -> None:
                    await world.ask(
                        upstream,
                        method="POST",
                        headers=(JSON,),
                        body=waiting(),
                        credential="api_key",
                        grant=grant,
                        meter=meter,
                    )

                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            world.timeout_s = 0.1
            error = await world.refusal(
                upstream,
                method="POST",
                headers=(JSON,),
                body=pieces(b"{}"),
                credential="api_key",
                grant=grant,
                meter=meter,
            )
            stuck.set()
        world.timeout_s = 20.0
        await world.ask(
            upstream, method="POST", headers=(JSON,), body=pieces(b"{}"), credential="api_key", grant=grant, meter=meter
        )

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert error.failure.details["phase"] == "queue"
    assert len(upstream.requests) == PLACES_OF_ONE + 1
