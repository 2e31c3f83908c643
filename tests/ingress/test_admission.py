"""The budget of unknown clients: counted, not timed; known callers never wait."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.ingress.admission import (
    BYTES_AT_ONCE,
    BYTES_PER_S,
    FORM,
    MAX_UNDER_WAY,
    MAX_WAITING,
    PAGES_AT_ONCE,
    PAGES_PER_S,
    WAIT_S,
    Admission,
    BusyError,
    TokenBucket,
    candidates,
)
from aileron.ingress.known import KnownCallers, digest_of

pytestmark = pytest.mark.anyio


def scope(path: str = "/approvals", *fields: tuple[bytes, bytes], method: str = "GET") -> dict[str, Any]:
    """Return the scope of a request, as the server passes it."""
    return {"type": "http", "path": path, "method": method, "headers": list(fields)}


async def entered(admission: Admission, asked: dict[str, Any], count: int) -> int:
    """Return how many of `count` simultaneous requests get in, at once or after a wait."""
    return (await entered_within(admission, asked, count))[0]


async def entered_within(admission: Admission, asked: dict[str, Any], count: int) -> tuple[int, float]:
    """Return that number, and the seconds that the requests took to start: a busy machine needs time until the last has asked."""
    got_in, began, last = 0, anyio.current_time(), 0.0

    async def enter() -> None:
        nonlocal got_in, last
        last = anyio.current_time()
        try:
            async with admission.turn(asked):
                got_in += 1
        except BusyError:
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(enter)
    return got_in, last - began


async def test_all_unknown_clients_together_get_the_saved_budget_and_the_budget_that_accrues_meanwhile() -> None:
    """The number of such clients makes no difference."""
    got_in, asked_s = await entered_within(Admission([]), scope(), 2000)
    assert PAGES_AT_ONCE <= got_in <= PAGES_AT_ONCE + min(MAX_WAITING, PAGES_PER_S * (WAIT_S + asked_s)) + 1


async def test_submitting_a_form_costs_as_much_budget_as_several_pages() -> None:
    """The daemon must look up the browser session of each form."""
    got_in, asked_s = await entered_within(Admission([]), scope(method="POST"), 2000)
    assert got_in <= (PAGES_AT_ONCE + PAGES_PER_S * (WAIT_S + asked_s)) / FORM + 1


async def test_requests_of_pages_agents_and_models_have_separate_budgets() -> None:
    """A flood of one of them does not block the others."""
    admission = Admission(["/v1/messages"])
    await entered(admission, scope(), 1000)
    assert await entered(admission, scope("/v1/actions"), 1) == 1
    assert await entered(admission, scope("/v1/messages/batches"), 1) == 1
    assert await entered(admission, scope("/approvals"), 1) in (0, 1)


@pytest.mark.parametrize(
    "field",
    [
        (b"authorization", b"Bearer ail_token"),
        (b"Authorization", b"bearer  ail_token"),
        (b"x-api-key", b"ail_token"),
        (b"cookie", b"a=b; aileron-page-1=ail_token; c=d"),
    ],
)
async def test_a_request_with_the_token_of_an_open_session_is_from_a_known_client(field: tuple[bytes, bytes]) -> None:
    """The token's digest is known until the session is over; another value is unknown."""
    known, admission = KnownCallers(), Admission([])
    known.add(digest_of(b"ail_token"))
    admission.know(known.all())
    assert admission.is_known(scope("/mcp", field))
    assert not admission.is_known(scope("/mcp", (field[0], field[1].replace(b"token", b"other"))))
    known.discard(digest_of(b"ail_token"))
    admission.know(known.all())
    assert not admission.is_known(scope("/mcp", field))


async def test_an_upload_over_the_budget_is_delayed_and_not_aborted() -> None:
    """An upload of ten times the saved budget waits for a time that is known in advance."""
    bucket = TokenBucket(rate=100.0, most=10.0)
    assert bucket.take(10, float("inf")) == 0
    wait_s = bucket.take(100, float("inf"))
    assert wait_s is not None
    assert 0.9 < wait_s <= 1.0


async def test_unanswered_requests_of_unknown_clients_are_bounded() -> None:
    """The daemon takes other requests than theirs, however slow they are."""
    admission = Admission(["/v1/messages"])
    asked = itertools.cycle(["/v1/messages", "/v1/messages", "/v1/actions"])
    async with contextlib.AsyncExitStack() as slow:
        for _ in range(MAX_UNDER_WAY):
            await slow.enter_async_context(admission.turn(scope(next(asked))))
        with pytest.raises(BusyError):
            await slow.enter_async_context(admission.turn(scope()))
    assert await entered(admission, scope(), 1) == 1


async def test_a_client_that_disconnects_frees_its_reserved_bytes() -> None:
    """A hundred clients wanted to upload and went away: the next one waits only for its own bytes."""
    admission = Admission([])
    await admission.upload(int(BYTES_AT_ONCE))
    with anyio.move_on_after(0.05):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(admission.upload, 1 << 20)
    with anyio.fail_after(50 * (1 << 20) / BYTES_PER_S):  # half of what they would owe
        await admission.upload(1)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"cookie", b"authorization", b"x-api-key", b"x"]), st.binary(max_size=9000)),
        max_size=40,
    )
)
def test_only_a_few_credentials_of_a_request_are_checked(fields: list[tuple[bytes, bytes]]) -> None:
    """Each check costs a hash: at most eight values of at most 4 KiB are looked up."""
    found = candidates(fields)
    assert len(found) <= 8
    assert all(0 < len(candidate) <= 4096 for candidate in found)
