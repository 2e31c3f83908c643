"""The engine against real servers: what goes out, what comes back, in which order, and what is written down."""

from __future__ import annotations

import pytest

from tests.egress.conftest import HOST, World
from tests.support.upstream import Upstream, answer

pytestmark = pytest.mark.anyio


async def test_a_granted_request_reaches_its_host_and_comes_back(world: World, tls_upstream) -> None:
    """Method, target and body arrive; status, fields and body return."""
    with tls_upstream(lambda seen: answer(b"pong:" + seen.body, "X-Kind: test", status="201 Created")) as upstream:
        got = await world.ask(upstream, "/v1/items?x=1", method="POST", body=b"ping")

    assert (got.status, got.body) == (201, b"pong:ping")
    assert got.header("x-kind") == ["test"]
    assert upstream.requests[0].target == "/v1/items?x=1"
    assert upstream.requests[0].values("host") == [f"{HOST}:{upstream.port}"]
