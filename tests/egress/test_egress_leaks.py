"""A canary secret: upstreams reflect it in every way, and it must not be in anything that comes out."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

import pytest

from aileron.egress import EgressRequest, Meter
from aileron.egress.scrub import ENCODINGS
from aileron.model.failure import AileronError
from aileron.model.plan import Budget
from tests.egress.conftest import CANARY, World, plain_url, use
from tests.support.upstream import CLOSE, Seen, Upstream, answer, chunked_answer

pytestmark = pytest.mark.anyio

Echo = Callable[[bytes], bytes | Iterable[bytes]]

KEY = b"canary-/7Gq+Zw9tK0=~"
"""A canary of only those characters that a header can carry."""


def forms(secret: bytes) -> set[bytes]:
    """Return every published form of a secret."""
    return {form for _name, encode in ENCODINGS for form in encode(secret)}


def assert_clean(seen: object, *secrets: bytes) -> None:
    """Check that the representation of an object has no form of the secrets."""
    text = seen if isinstance(seen, bytes) else repr(seen).encode()
    for secret in secrets:
        assert not [form for form in forms(secret) if form in text]


def credential_of(seen: Seen) -> bytes:
    """Return the credential that the upstream was sent."""
    return seen.values("authorization")[0].encode("latin-1")


ECHOES: dict[str, Echo] = {
    "in the body": lambda sent: answer(b"you sent " + sent),
    "in chunks of three": lambda sent: chunked_answer([sent[i : i + 3] for i in range(0, len(sent), 3)]),
    "byte by byte": lambda sent: chunked_answer([sent[i : i + 1] for i in range(len(sent))]),
    "in a field": lambda sent: answer(b"", f"X-Echo: {sent.decode()}", f"Set-Cookie: a={sent.decode()}; Path=/"),
    "in the name of a field": lambda _sent: answer(b"", f"X-{KEY.hex()}: 1"),
    "in the redirect": lambda sent: answer(b"", f"Location: /?k={urllib.parse.quote(sent)}", status="302 Found"),
    "in the status line": lambda sent: answer(b"", status=f"200 {sent.decode()}"),
    "in a trailer": lambda sent: [*list(chunked_answer([b"x"]))[:-1], b"0\r\nX-Echo: " + sent + b"\r\n\r\n"],
    "as JSON of PHP": lambda sent: answer(json.dumps({"h": sent.decode()}).replace("/", "\\/").encode()),
    "as base64": lambda sent: answer(base64.b64encode(b"xx" + sent + b"yy")),
    "as UTF-16": lambda sent: answer(sent.decode().encode("utf-16")),
    "compressed": lambda sent: answer(gzip.compress(sent), "Content-Encoding: gzip"),
    "in an error": lambda sent: answer(b"bad credential: " + sent, status="401 Who"),
}


@pytest.mark.abuse_case("E27")
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("kind", ["api_key", "oauth2", "basic"])
async def test_a_credential_that_an_upstream_reflects_is_masked(world: World, kind: str, echo: str) -> None:
    """The cases are body, fields, chunks, encodings and compression; the length is kept, and the ledger counts the matches."""
    world.vault.secret, world.vault.username = KEY, "ann" if kind == "basic" else None
    with Upstream(lambda seen: ECHOES[echo](credential_of(seen))) as upstream:
        grant = world.grant_for(upstream, credential=use(kind), plain=True)
        got = await world.ask(upstream, url=plain_url(upstream), credential=kind, grant=grant)

    sent = credential_of(upstream.requests[0])
    pair = b"ann:" + KEY
    assert (KEY if kind != "basic" else base64.b64encode(pair)) in sent
    for part in (got.body, *[text.encode("latin-1") for field in got.headers for text in field]):
        assert_clean(part, KEY, pair, base64.b64encode(pair))
    relayed = echo not in {"in the status line", "in a trailer"}
    assert (got.scrubbed > 0) is relayed
    assert world.journal.last.scrubbed == got.scrubbed
    if echo == "in the body":
        assert got.body == b"you sent " + sent.split(b" ")[0] + b" " + b"*" * (len(sent) - sent.index(b" ") - 1)


async def test_a_key_in_the_query_does_not_come_back_in_links(world: World) -> None:
    """Pagination links repeat the URL in the server's encoding; the ledger has no query at all."""
    world.vault.secret = CANARY

    def script(seen: Seen) -> bytes:
        link = f'Link: <https://api.example.test{seen.target}&page=2>; rel="next"'
        return answer(json.dumps({"next": urllib.parse.unquote(seen.target)}).encode(), link)

    with Upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use("api_key", query="key"), plain=True)
        got = await world.ask(upstream, url=plain_url(upstream, "/v1?x=1"), credential="api_key", grant=grant)

    assert upstream.requests[0].target == f"/v1?x=1&key={urllib.parse.quote(CANARY, safe='')}"
    assert got.scrubbed == 2
    assert_clean(got, CANARY)
    assert_clean(world.journal.rows, CANARY)
    assert world.journal.rows[0].path == "/v1"  # type: ignore[union-attr]


async def test_a_secret_that_the_upstream_stored_is_scrubbed_from_later_responses(world: World) -> None:
    """A request without the credential fetches what an earlier one stored; both responses of the step are scrubbed."""
    world.vault.secret = KEY
    left: list[bytes] = []

    def script(seen: Seen) -> bytes:
        if seen.target == "/leave":
            left.append(credential_of(seen))
        return answer(b"log: " + b"".join(left))

    with Upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use(), plain=True)
        meter = Meter(Budget())
        await world.ask(upstream, url=plain_url(upstream, "/leave"), credential="api_key", grant=grant, meter=meter)
        got = await world.ask(upstream, url=plain_url(upstream, "/fetch"), grant=grant, meter=meter)

    assert upstream.requests[1].values("authorization") == []
    assert_clean(got.body, KEY)
    assert got.scrubbed == 1


async def test_a_response_in_progress_is_scrubbed_of_secrets_lent_meanwhile(world: World) -> None:
    """A request without the credential reads a log, in which another request's credential then appears."""
    world.vault.secret = KEY
    lent, left = threading.Event(), list[bytes]()

    def script(seen: Seen) -> Iterator[bytes]:
        if seen.target == "/leave":
            left.append(credential_of(seen))
            lent.set()
            yield answer()
            return
        pieces = iter(chunked_answer([b"log:\nunfinished ", b"x"]))
        yield next(pieces)
        yield next(pieces)
        lent.wait(10)
        yield b"".join([*chunked_answer([left[0] + b"\n"])][1:])

    with Upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use(), plain=True)
        meter = Meter(Budget())
        request = EgressRequest("GET", plain_url(upstream, "/log"))
        async with world.egress.open(request, grant, meter, world.journal, 1e12) as response:
            body = await anext(aiter(response))
            await world.ask(upstream, url=plain_url(upstream, "/leave"), credential="api_key", grant=grant, meter=meter)
            body += b"".join([piece async for piece in response])

    assert body.startswith(b"log:\nunfinished Bearer ***")
    assert_clean(body, KEY)


BREAKS: dict[str, Echo] = {
    "a status line": lambda sent: [b"HTTP/1.1 " + sent + b"\r\n\r\n", CLOSE],
    "a field line": lambda sent: [b"HTTP/1.1 200 OK\r\n" + sent + b"\r\n\r\n", CLOSE],
    "a length": lambda sent: [b"HTTP/1.1 200 OK\r\nContent-Length: " + sent + b"\r\n\r\n", CLOSE],
    "a transfer encoding": lambda sent: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + sent + b"\r\n\r\n", CLOSE],
    "a chunk size": lambda sent: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent + b"\r\n", CLOSE],
    "a coding": lambda sent: answer(sent, f"Content-Encoding: {sent.decode()}"),
    "a damaged coding": lambda sent: answer(sent, "Content-Encoding: gzip"),
    "a body cut short": lambda sent: [b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + sent, CLOSE],
}


@pytest.mark.abuse_case("E29")
@pytest.mark.parametrize("where", BREAKS)
async def test_a_protocol_error_that_contains_the_credential_does_not_quote_the_credential(
    world: World, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """The upstream breaks HTTP with it. Failure, traceback, causes, ledger and DEBUG log are searched."""
    world.vault.secret = KEY
    with Upstream(lambda seen: BREAKS[where](credential_of(seen))) as upstream, caplog.at_level(logging.DEBUG):
        grant = world.grant_for(upstream, credential=use(), plain=True)
        with pytest.raises(AileronError) as caught:
            await world.ask(upstream, url=plain_url(upstream), credential="api_key", grant=grant)

    assert KEY in upstream.received
    chain: list[BaseException] = [caught.value]
    for error in chain:
        chain.extend(linked for linked in (error.__cause__, error.__context__) if linked is not None)
    assert chain == [caught.value]
    assert_clean("".join(traceback.format_exception(caught.value)).encode(), KEY)
    assert_clean(caught.value.failure, KEY)
    assert_clean(world.journal.rows, KEY)
    assert_clean("\n".join(record.getMessage() for record in caplog.records).encode(), KEY)


async def test_a_successful_request_leaves_no_secret_in_a_debug_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """httpcore2 would log response heads unscrubbed; its logging is off, whatever the configuration."""
    world.vault.secret = KEY
    echo = ECHOES["in a field"]
    with Upstream(lambda seen: echo(credential_of(seen))) as upstream, caplog.at_level(logging.DEBUG):
        caplog.set_level(logging.DEBUG, "httpcore2.http11")
        grant = world.grant_for(upstream, credential=use(), plain=True)
        await world.ask(upstream, url=plain_url(upstream), credential="api_key", grant=grant)

    assert_clean("\n".join(record.getMessage() for record in caplog.records).encode(), KEY)


@pytest.mark.abuse_case("E22")
@pytest.mark.parametrize("secret", [b"sesame\r\nX-Injected: 1", b"sesame-\0-", b"short", b"sesame-\xff\xfe-"])
async def test_a_secret_that_cannot_be_sent_stops_the_request_before_any_connection(
    world: World, secret: bytes
) -> None:
    """The request has no row and no connection, and the failure quotes none of the secret."""
    world.vault.secret = secret
    with Upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(), plain=True)
        error = await world.refusal(upstream, url=plain_url(upstream), credential="api_key", grant=grant)

    assert error.failure.failure_class.value == "binding_failed"
    assert (upstream.connections, world.journal.rows) == (0, [])
    assert "sesame" not in repr(error.failure)
    assert world.vault.lent == 1


async def test_the_repr_of_requests_and_responses_contains_no_secret(world: World) -> None:
    """A traceback with local variables would print these objects."""
    request = EgressRequest("POST", "https://h/?token=sesame", (("X", "sesame"),), "api_key", b"sesame")
    assert "sesame" not in repr(request)
    assert "sesame" not in repr(world.egress)
    with Upstream(lambda _seen: answer(b"sesame", "X: sesame")) as upstream:
        request = EgressRequest("GET", plain_url(upstream))
        grant, meter = world.plain_grant(upstream), Meter(Budget())
        async with world.egress.open(request, grant, meter, world.journal, 1e12) as response:
            assert repr(response) == "<EgressResponse 200>"
