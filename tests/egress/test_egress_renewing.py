"""Tokens that expired or were refused: they are renewed, the request is sent once more, and neither token leaks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import pytest

from aileron.egress import EgressRequest, Meter, RequestIntent, RequestReport
from aileron.egress import engine as engine_module
from aileron.egress.around import HELD_BYTES
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import Budget
from tests.egress.conftest import HOST, Got, World, plain_url, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.upstream import CLOSE, Authority, Script, Seen, Upstream, answer, chunked_answer
from tests.support.upstream_h2 import H2Seen, H2Upstream, data, head
from tests.support.waiting import jump, wait_until_async

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

OLD, NEW, NEWER = b"ya29.old-token/of+some=length", b"ya29.new-token/of+some=length", b"ya29.newer-token+of=length"
REFUSAL = answer(b'{"error": "expired"}', 'WWW-Authenticate: Bearer error="invalid_token"', status="401 Unauthorized")


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


def token_in(seen: Seen) -> bytes:
    """Return the token of a request."""
    (value,) = seen.values("authorization")
    assert value.startswith("Bearer ")
    return value.removeprefix("Bearer ").encode()


def takes_only(*good: bytes) -> Script:
    """Return a service that accepts these tokens, and refuses all others."""
    return lambda seen: answer(b"welcome:" + seen.body) if token_in(seen) in good else REFUSAL


def renewing_to(world: World, *tokens: bytes) -> Callable[[bytes], Awaitable[bool]]:
    """Return a hook that puts the next of these tokens into the vault for each refused one; the vault begins with OLD."""
    world.vault.secret, rest = OLD, list(tokens)

    async def renew(_refused: bytes) -> bool:
        await anyio.lowlevel.checkpoint()
        assert world.vault.out == 0, "the loan of what was refused is not over"
        world.vault.secret = rest.pop(0)
        return True

    return renew


@pytest.fixture
def renewing(world: World) -> None:
    """Renew a refused token, before the test says otherwise, to NEW."""
    world.vault.on_refused = renewing_to(world, NEW)


async def ask(world: World, upstream: Upstream, path: str = "/", **options: object) -> Got:
    """Send a request with the token."""
    options.setdefault("grant", world.grant_for(upstream, credential=use("oauth2")))
    return await world.ask(upstream, path, credential="oauth2", **options)  # type: ignore[arg-type]


def rows(world: World) -> list[tuple[str, int, int | None]]:
    """Return the journal in short: what, which request, with which status."""
    return [
        ("sending", row.number, None) if isinstance(row, RequestIntent) else ("finished", row.number, row.status)
        for row in world.journal.rows
    ]


# --- before it is lent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "asked"), [("oauth2", 1), ("api_key", 0), ("basic", 0)])
async def test_only_oauth2_tokens_are_checked_for_renewal_before_a_request(
    world: World, tls_upstream: MakeUpstream, kind: str, asked: int
) -> None:
    """Keys and passwords do not expire by themselves: their requests do not wait for a renewal."""
    world.vault.username = "ann"
    with tls_upstream(lambda _seen: answer()) as upstream:
        await world.ask(upstream, credential=kind, grant=world.grant_for(upstream, credential=use(kind)))

    assert (world.vault.asked_ready, world.vault.lent) == (asked, 1)


async def test_a_token_is_renewed_after_the_checks_and_before_the_loan(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A request that a rule refuses causes no renewal; a request that passes gets the renewed token."""
    order: list[str] = []

    async def renew() -> None:
        order.append(f"ready: {len(world.resolver.asked)} looked up, {world.vault.lent} lent, {rows(world)}")
        world.vault.secret = NEW

    world.vault.secret, world.vault.on_ready = OLD, renew
    with tls_upstream(takes_only(NEW)) as upstream:
        grant = world.grant_for(upstream, credential=use("oauth2"))
        await world.refusal(upstream, url="https://evil.io/", credential="oauth2", grant=grant)
        await world.refusal(upstream, headers=(("Authorization", "x"),), credential="oauth2", grant=grant)
        assert order == []
        got = await ask(world, upstream)

    assert (got.status, got.body) == (200, b"welcome:")
    assert order == ["ready: 1 looked up, 0 lent, []"]
    assert world.vault.refused == []


@pytest.mark.parametrize(
    "failure", [FailureClass.VAULT_LOCKED, FailureClass.BINDING_FAILED, FailureClass.NETWORK_ERROR]
)
async def test_an_error_of_the_renewal_before_a_request_is_passed_on_and_nothing_is_sent(
    world: World, tls_upstream: MakeUpstream, failure: FailureClass
) -> None:
    """The message is for the person; nothing is lent, and nothing is recorded as sent."""

    async def fail() -> None:
        raise AileronError(failure, "as the lender says it", boundary=Boundary.USER)

    world.vault.on_ready = fail
    with (
        tls_upstream(takes_only(OLD)) as upstream,
        pytest.raises(AileronError, match="as the lender says it") as caught,
    ):
        await ask(world, upstream)

    assert caught.value.failure.failure_class is failure
    assert (world.vault.lent, upstream.requests, world.journal.rows) == (0, [], [])


async def test_waiting_for_a_hanging_renewal_ends_at_the_deadline(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure says that nothing was sent; after the deadline no renewal is begun."""

    async def never() -> None:
        jump(monkeypatch, world.timeout_s)
        await anyio.sleep_forever()

    world.vault.on_ready = never
    with tls_upstream(takes_only(OLD)) as upstream:
        with pytest.raises(AileronError, match="not renewed in time") as caught:
            await ask(world, upstream)
        world.timeout_s = -1.0
        with pytest.raises(AileronError, match="took too long"):
            await ask(world, upstream)

    assert caught.value.failure.failure_class is FailureClass.NETWORK_ERROR
    assert caught.value.failure.details == {"phase": "queue"}
    assert (world.vault.asked_ready, world.vault.lent, upstream.requests) == (1, 0, [])


async def test_a_renewal_gets_a_connection_slot_although_all_requests_wait_for_the_renewal(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request to the provider uses the same engine: those that wait must not keep it out."""
    world.egress.slots = anyio.Semaphore(2)  # type: ignore[misc]
    renewed, waiting = anyio.Event(), 0

    async def wait() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            await world.ask(upstream, "/token", credential=None)
            renewed.set()
        await renewed.wait()

    def script(seen: Seen) -> bytes:
        return answer(b"for the provider" if seen.target == "/token" else b"for a connector")

    world.vault.on_ready = wait
    with tls_upstream(script) as upstream, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _request in range(4):
                tasks.start_soon(ask, world, upstream)

    assert [seen.target for seen in upstream.requests] == ["/token", "/", "/", "/", "/"]
    assert world.egress.slots.value == 2


async def test_a_request_with_a_token_takes_a_connection_slot(world: World, tls_upstream: MakeUpstream) -> None:
    """The slot is free only while the renewal runs: a second request waits for the only slot, and is sent later."""
    world.egress.slots = anyio.Semaphore(1)  # type: ignore[misc]
    world.vault.secret = OLD
    with tls_upstream(takes_only(OLD)) as upstream:
        grant = world.grant_for(upstream, credential=use("oauth2"))
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/", (), "oauth2")
        async with world.egress.open(request, grant, Meter(Budget()), world.journal, 1e12):
            world.timeout_s = 0.2
            with pytest.raises(AileronError, match="took too long") as caught:
                await ask(world, upstream)
        world.timeout_s = 20.0
        assert (await ask(world, upstream)).status == 200

    assert caught.value.failure.details == {"phase": "queue"}
    assert len(upstream.requests) == 2


# --- after a service refused it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"once"), ("DELETE", b"")])
@pytest.mark.usefixtures("renewing")
async def test_a_refused_token_is_renewed_and_the_request_is_sent_once_more(
    world: World, tls_upstream: MakeUpstream, method: str, body: bytes | None
) -> None:
    """Method, target, fields and body are equal; only the token differs. The first response is dropped."""
    with tls_upstream(takes_only(NEW)) as upstream:
        got = await ask(world, upstream, "/v1?x=%20", method=method, body=body, headers=(("X-Kept", "yes"),))

    first, second = upstream.requests
    assert (got.status, got.body) == (200, b"welcome:" + (body or b""))
    assert got.header("www-authenticate") == []
    assert first.head.replace(OLD, NEW) == second.head
    assert (first.body, token_in(first), token_in(second)) == (second.body, OLD, NEW)
    assert world.vault.refused == [OLD]


@pytest.mark.usefixtures("renewing")
async def test_the_request_after_a_renewal_counts_as_a_second_request(world: World, tls_upstream: MakeUpstream) -> None:
    """The second has its own number, count, loan and rows; its first row comes after the end of the first request."""
    heard: list[int] = []
    budget = Budget(requests=2, bytes_up=8)
    with tls_upstream(takes_only(NEW)) as upstream:
        grant, meter = world.grant_for(upstream, credential=use("oauth2"), budget=budget), Meter(budget)
        world.journal.on_sending = lambda: heard.append(len(upstream.requests))
        await ask(world, upstream, method="POST", body=b"four", grant=grant, meter=meter)

    assert rows(world) == [("sending", 1, None), ("finished", 1, 401), ("sending", 2, None), ("finished", 2, 200)]
    assert heard == [0, 1]
    reports = [row for row in world.journal.rows if isinstance(row, RequestReport)]
    assert [(row.bytes_up, row.bytes_down, row.failure) for row in reports] == [(4, 20, None), (4, 12, None)]
    assert (meter.requests, meter.bytes_up, meter.bytes_down) == (2, 8, 32)
    assert (world.vault.lent, world.vault.asked_ready) == (2, 2)


@pytest.mark.parametrize("limit", ["requests", "bytes_up"])
@pytest.mark.usefixtures("renewing")
async def test_the_request_after_a_renewal_must_fit_into_the_budget(
    world: World, tls_upstream: MakeUpstream, limit: str
) -> None:
    """A request that would exceed the budget is not sent."""
    budget = Budget(requests=1) if limit == "requests" else Budget(bytes_up=7)
    with tls_upstream(takes_only(NEW)) as upstream, pytest.raises(AileronError) as caught:
        await ask(
            world,
            upstream,
            method="POST",
            body=b"four",
            grant=world.grant_for(upstream, credential=use("oauth2"), budget=budget),
        )

    assert caught.value.failure.details == {"limit": limit}
    assert len(upstream.requests) == 1


async def test_the_request_after_a_renewal_reuses_the_connection_unless_the_service_has_closed_it(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """They use two if the service closes the connection after its refusal."""
    renew = renewing_to(world, NEW, NEWER)
    world.vault.on_refused = renew

    def closing(seen: Seen) -> Iterator[bytes]:
        said = takes_only(NEWER)(seen)
        assert isinstance(said, bytes)
        yield said
        if seen.target == "/closes" and token_in(seen) == NEW:
            yield CLOSE

    with tls_upstream(takes_only(NEW)) as upstream:
        assert (await ask(world, upstream)).status == 200
        assert (upstream.connections, len(upstream.requests)) == (1, 2)
    with tls_upstream(closing) as upstream:

        async def renew_once_it_closed(refused: bytes) -> bool:
            """Renew only after the close: before it, the second request could still meet the old connection."""
            idle = [
                connection for connection in world.egress.pool.idle if connection.key.destination.port == upstream.port
            ]
            await wait_until_async(lambda: not any(connection.is_alive() for connection in idle), "it closes")
            return await renew(refused)

        world.vault.on_refused = renew_once_it_closed
        assert (await ask(world, upstream, "/closes")).status == 200
        assert (upstream.connections, len(upstream.requests)) == (2, 2)


@pytest.mark.abuse_case("O7")
async def test_a_second_refusal_after_the_renewal_of_a_token_is_relayed(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The response is whole, and nothing is renewed for it or for the step's next requests."""
    world.vault.on_refused = renewing_to(world, NEW, NEWER)

    def script(seen: Seen) -> bytes:
        number = b"first" if token_in(seen) == OLD else b"second"
        return answer(number, "WWW-Authenticate: " + number.decode(), status="401 No")

    with tls_upstream(script) as upstream:
        grant, meter = world.grant_for(upstream, credential=use("oauth2")), Meter(Budget())
        for _request in range(3):
            got = await ask(world, upstream, grant=grant, meter=meter)
            assert (got.status, got.body, got.header("www-authenticate")) == (401, b"second", ["second"])

    assert world.vault.refused == [OLD]
    assert [token_in(seen) for seen in upstream.requests] == [OLD, NEW, NEW, NEW]


async def test_another_step_may_renew_the_token_again(world: World, tls_upstream: MakeUpstream) -> None:
    """The bound is for each step; the lender decides how often a provider is asked in all."""
    world.vault.on_refused = renewing_to(world, NEW, NEWER)
    with tls_upstream(takes_only(NEWER)) as upstream:
        assert (await ask(world, upstream)).status == 401
        assert (await ask(world, upstream)).status == 200
    assert world.vault.refused == [OLD, NEW]


async def test_a_refusal_is_relayed_if_no_token_was_renewed(world: World, tls_upstream: MakeUpstream) -> None:
    """The response arrives with its fields and its whole body, although the exchange has ended by then."""
    big = b"0123456789abcdef" * (HELD_BYTES // 16)
    refusals = {"/": REFUSAL, "/none": answer(status="401 No"), "/big": answer(big, status="401 No")}
    world.vault.secret = OLD
    with tls_upstream(lambda seen: refusals[seen.target]) as upstream:
        plain, none, large = [await ask(world, upstream, path) for path in refusals]

    assert (plain.status, plain.body) == (401, b'{"error": "expired"}')
    assert plain.header("www-authenticate") == ['Bearer error="invalid_token"']
    assert (none.status, none.body) == (401, b"")
    assert (large.status, large.body) == (401, big)
    assert world.vault.refused == [OLD] * 3
    assert len(upstream.requests) == 3


@pytest.mark.usefixtures("renewing")
async def test_a_refusal_too_long_to_be_held_is_relayed_without_a_renewal(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The part of a response that is held back is bounded; the body here has one byte more."""
    body = b"x" * (HELD_BYTES + 1)
    with tls_upstream(lambda _seen: chunked_answer([body[:-1], body[-1:]], status="401 No")) as upstream:
        got = await ask(world, upstream)

    assert (got.status, got.body) == (401, body)
    assert world.vault.refused == []
    assert rows(world) == [("sending", 1, None), ("finished", 1, 401)]


@pytest.mark.usefixtures("renewing")
async def test_a_request_with_a_streamed_body_is_not_sent_again_after_a_renewal(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The streamed bytes are not kept: the refusal is relayed, and the next request has the new token."""
    with tls_upstream(takes_only(NEW)) as upstream:
        grant, meter = world.grant_for(upstream, credential=use("oauth2")), Meter(Budget())
        first = await ask(world, upstream, method="POST", body=parts(b"a", b"b"), grant=grant, meter=meter)
        second = await ask(world, upstream, method="POST", body=parts(b"a", b"b"), grant=grant, meter=meter)

    assert (first.status, first.body) == (401, b'{"error": "expired"}')
    assert (second.status, second.body) == (200, b"welcome:ab")
    assert world.vault.refused == [OLD]


@pytest.mark.parametrize("kind", ["api_key", "basic", "none"])
async def test_refusals_of_credentials_that_cannot_be_renewed_are_relayed_at_once(
    world: World, tls_upstream: MakeUpstream, kind: str
) -> None:
    """A key is not renewed, and neither is the token for a request that was sent without it."""
    world.vault.username = "ann"
    with tls_upstream(lambda _seen: REFUSAL) as upstream:
        granted = use("oauth2" if kind == "none" else kind)
        asked = None if kind == "none" else kind
        got = await world.ask(upstream, credential=asked, grant=world.grant_for(upstream, credential=granted))

    assert got.status == 401
    assert (world.vault.refused, len(upstream.requests)) == ([], 1)


@pytest.mark.parametrize("status", ["400 No", "403 No", "407 No", "500 No"])
@pytest.mark.usefixtures("renewing")
async def test_only_a_401_means_that_a_token_is_refused(world: World, tls_upstream: MakeUpstream, status: str) -> None:
    """A 403 for a missing scope is not fixed by a new token of the same grant."""
    with tls_upstream(lambda _seen: answer(b"no", status=status)) as upstream:
        assert (await ask(world, upstream)).status == int(status[:3])
    assert (world.vault.refused, len(upstream.requests)) == ([], 1)


@pytest.mark.parametrize(
    "failure", [FailureClass.VAULT_LOCKED, FailureClass.BINDING_FAILED, FailureClass.NETWORK_ERROR]
)
async def test_an_error_of_the_renewal_is_passed_on_after_the_refusal_is_recorded(
    world: World, tls_upstream: MakeUpstream, failure: FailureClass
) -> None:
    """The error may say that a new sign-in is needed, which the service's 401 does not."""

    async def fail(_refused: bytes) -> bool:
        raise AileronError(failure, "sign in again", boundary=Boundary.USER)

    world.vault.secret, world.vault.on_refused = OLD, fail
    with tls_upstream(lambda _seen: REFUSAL) as upstream, pytest.raises(AileronError, match="sign in again") as caught:
        await ask(world, upstream)

    assert caught.value.failure.failure_class is failure
    assert rows(world) == [("sending", 1, None), ("finished", 1, 401)]
    assert world.egress.slots.value == engine_module.MAX_CONNECTIONS


async def test_a_renewal_after_a_refusal_ends_at_the_deadline(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of the step covers the renewal too."""

    async def never(_refused: bytes) -> bool:
        jump(monkeypatch, world.timeout_s)
        await anyio.sleep_forever()
        return True

    world.vault.secret, world.vault.on_refused = OLD, never
    with (
        tls_upstream(lambda _seen: REFUSAL) as upstream,
        pytest.raises(AileronError, match="not renewed in time") as caught,
    ):
        await ask(world, upstream)

    assert caught.value.failure.details == {"phase": "exchange"}


@pytest.mark.parametrize("how", ["breaks off", "breaks HTTP", "unknown coding"])
async def test_a_malformed_or_incomplete_refusal_is_an_error_and_renews_no_token(world: World, how: str) -> None:
    """The response was not read completely, so it is unclear what was refused."""
    head = "HTTP/1.1 401 No\r\nContent-Length: 9\r\n"
    said = {
        "breaks off": f"{head}\r\nno".encode(),
        "breaks HTTP": f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(),
        "unknown coding": f"{head}Content-Encoding: br\r\n\r\n123456789".encode(),
    }[how]
    world.vault.on_refused = renewing_to(world, NEW)
    with Upstream(lambda _seen: [said, CLOSE]) as upstream:
        error = await world.refusal(
            upstream,
            url=plain_url(upstream),
            credential="oauth2",
            grant=world.grant_for(upstream, plain=True, credential=use("oauth2")),
        )

    assert error.failure.details == {"phase": "exchange"}
    assert world.vault.refused == []
    assert world.journal.last.failure is FailureClass.NETWORK_ERROR


async def test_concurrent_refused_requests_are_each_sent_once_more(world: World, tls_upstream: MakeUpstream) -> None:
    """All had the same token and report it; the lender decides which report renews it."""
    world.vault.secret = OLD

    async def renew(refused: bytes) -> bool:
        await anyio.lowlevel.checkpoint()
        assert refused == OLD
        world.vault.secret = NEW
        return True

    world.vault.on_refused = renew
    with tls_upstream(takes_only(NEW)) as upstream:
        grant, meter = world.grant_for(upstream, credential=use("oauth2")), Meter(Budget())
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await ask(world, upstream, grant=grant, meter=meter)).status)

        async with anyio.create_task_group() as tasks:
            for _request in range(12):
                tasks.start_soon(one)

    assert statuses == [200] * 12
    assert meter.requests == len(upstream.requests) == 12 + len(world.vault.refused)


@pytest.mark.usefixtures("renewing")
async def test_both_the_old_and_the_new_token_are_scrubbed_after_a_renewal(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """They are scrubbed from later responses without a credential too: a service may have kept either."""
    both = OLD + b" and " + NEW

    def script(seen: Seen) -> bytes:
        status = "401 No" if OLD.decode() in str(seen.values("authorization")) else "200 OK"
        return answer(both, f"X-Kept: {both.decode()}", status=status)

    masked = b"*" * len(OLD) + b" and " + b"*" * len(NEW)
    with tls_upstream(script) as upstream:
        grant, meter = world.grant_for(upstream, credential=use("oauth2")), Meter(Budget())
        with_it = await ask(world, upstream, grant=grant, meter=meter)
        without = await world.ask(upstream, grant=grant, meter=meter)

    for got in (with_it, without):
        assert (got.body, got.header("x-kept"), got.scrubbed) == (masked, [masked.decode()], 4)


@pytest.mark.parametrize("second", ["a lie", "a dead end"])
@pytest.mark.usefixtures("renewing")
async def test_an_error_after_a_renewal_quotes_neither_token(
    world: World, tls_upstream: MakeUpstream, second: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Causes and logs do not quote them either: both were echoed where libraries quote what they cannot parse."""
    caplog.set_level(logging.DEBUG)

    def script(seen: Seen) -> list[bytes]:
        echo = "\r\n".join(f"X-Echo: {token.decode()}" for token in (OLD, NEW))
        if token_in(seen) == OLD:
            return [answer(OLD + NEW, *echo.split("\r\n"), status=f"401 {OLD.decode()}")]
        return [b"HTTP/1.1 200 OK\r\n" + NEW + OLD + b"\r\n\r\n", CLOSE] if second == "a lie" else [CLOSE]

    with tls_upstream(script) as upstream:
        error = await world.refusal(
            upstream, credential="oauth2", grant=world.grant_for(upstream, credential=use("oauth2"))
        )

    assert error.failure.details == {"phase": "exchange"}
    assert (error.__cause__, error.__context__) == (None, None)
    assert_clean(error.failure, OLD, NEW)
    assert_clean(world.journal.rows, OLD, NEW)
    assert_clean([record.getMessage() for record in caplog.records], OLD, NEW)


@pytest.mark.parametrize("body", [None, b"x" * 100_000])
@pytest.mark.usefixtures("renewing")
async def test_a_token_is_renewed_over_http2_as_well(world: World, authority: Authority, body: bytes | None) -> None:
    """The body is sent again, over the connection on which the refusal came."""
    seen_bodies: list[bytes] = []

    def script(seen: H2Seen) -> Iterator[bytes]:
        seen_bodies.append(seen.body)
        good = seen.value("authorization") == f"Bearer {NEW.decode()}"
        yield head(seen, (":status", "200" if good else "401"), ("www-authenticate", "Bearer"))
        yield data(seen, b"welcome" if good else b"no", end=True)

    with H2Upstream(script, authority.server_context(HOST)) as upstream:
        grant = world.grant_for(upstream, credential=use("oauth2"))
        got = await world.ask(None, url=f"https://{HOST}:{upstream.port}/", method="POST" if body else "GET",
                              credential="oauth2", grant=grant, body=body)  # fmt: skip

    assert (got.status, got.body) == (200, b"welcome")
    assert seen_bodies == [body or b""] * 2
    assert (upstream.connections, [row[1:] for row in rows(world)[1::2]]) == (1, [(1, 401), (2, 200)])


async def test_cancelling_during_a_renewal_frees_the_slot_and_sends_no_second_request(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The refusal is recorded, no slot is taken, and no second request is sent."""
    world.vault.secret, begun = OLD, anyio.Event()

    async def renew(_refused: bytes) -> bool:
        begun.set()
        await anyio.sleep_forever()
        return True

    world.vault.on_refused = renew
    with tls_upstream(takes_only(NEW)) as upstream:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, world, upstream)
            await begun.wait()
            tasks.cancel_scope.cancel()

    assert rows(world) == [("sending", 1, None), ("finished", 1, 401)]
    assert len(upstream.requests) == 1
    assert world.egress.slots.value == engine_module.MAX_CONNECTIONS


@pytest.mark.usefixtures("renewing")
async def test_an_unread_response_after_a_renewal_is_recorded_as_ended(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The second exchange gets its row however much of the response the caller read."""
    with tls_upstream(takes_only(NEW)) as upstream:
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/", (), "oauth2")
        grant = world.grant_for(upstream, credential=use("oauth2"))
        with contextlib.suppress(KeyError):
            async with world.egress.open(request, grant, Meter(Budget()), world.journal, 1e12) as response:
                assert response.status == 200
                raise KeyError

    assert rows(world)[2:] == [("sending", 2, None), ("finished", 2, 200)]
    assert world.journal.last.failure is FailureClass.INTERNAL_ERROR
