"""Callers without a session's token, behind a real ingress: they keep out each other, but never a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from aileron.config import GatewaySettings, Settings, Upstream
from aileron.ingress.known import KnownCallers, digest_of
from tests.gateway.conftest import TOKEN, Line, Provider, gateway, refusal

UPLOAD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nx-api-key: %s\r\n\r\n{"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Provider, Provider, int]]:
    """Start a gateway with four places for an API whose key is in the vault and one that accepts any key."""
    monkeypatch.setattr("aileron.gateway.proxy.MAX_IN_FLIGHT", 4)
    monkeypatch.setattr("aileron.gateway.proxy.MAX_OF_STRANGERS", 2, raising=False)
    known = KnownCallers()
    known.add(digest_of(TOKEN.encode()))
    with Provider() as ours, Provider() as anybodys:
        settings = Settings(gateway=GatewaySettings(Upstream(ours.url, "claude"), Upstream(anybodys.url)))
        with gateway(settings, known=known) as port:
            yield ours, anybodys, port


def answered(client: Line, upstream: Line) -> bytes:
    """Finish an upload, and return the body of its response."""
    upstream.head()
    client.say(b"}")
    assert upstream.exactly(2) == b"{}"
    upstream.say(OK)
    return client.message()[1]


@pytest.mark.abuse_case("A34")
def test_callers_without_a_token_take_at_most_half_of_the_places(world: tuple[Provider, Provider, int]) -> None:
    """Two slow uploads fill their half: a third such caller must retry, and a caller with a token is served."""
    ours, anybodys, port = world
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Line.to(port)) for _ in range(2)]
        upstreams = []
        for client in slow:
            client.say(UPLOAD % (b"/v1/chat/completions", b"own"))
            upstreams.append(stack.enter_context(anybodys.answering()))
        for _ in range(3):
            with Line.to(port) as one_more:
                one_more.say(UPLOAD % (b"/v1/chat/completions", b"own") + b"}")
                status, kind, message = refusal(one_more)
                assert (status, kind) == (429, "busy")
                assert "without a session's token" in message
        with ours.asked(port, UPLOAD % (b"/v1/messages", TOKEN.encode())) as (agent, upstream):
            assert answered(agent, upstream) == b"ok"
        assert answered(slow[0], upstreams[0]) == b"ok"


@pytest.mark.abuse_case("A34")
def test_a_stalled_upload_without_a_token_is_ended_early(
    world: tuple[Provider, Provider, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller with a session's token keeps the normal timeout."""
    monkeypatch.setattr("aileron.gateway.sides.STRANGER_IDLE_S", 0.3)
    monkeypatch.setattr("aileron.gateway.sides.DRAIN_S", 0.3)
    ours, anybodys, port = world
    with Line.to(port) as agent, Line.to(port) as stranger:
        agent.say(UPLOAD % (b"/v1/messages", TOKEN.encode()))
        stranger.say(UPLOAD % (b"/v1/chat/completions", b"own"))
        with anybodys.answering() as upstream:
            assert refusal(stranger) == (502, "network_error", "the agent sent or took nothing for 0 s")
            upstream.head()
            assert upstream.exactly(1) == b"{"
            assert upstream.is_at_end()
        with ours.answering() as upstream:
            assert answered(agent, upstream) == b"ok"
