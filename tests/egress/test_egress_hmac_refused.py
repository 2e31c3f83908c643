"""A webhook that the receiver refuses while the clocks differ: the failure names the fix; all other responses are relayed."""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Callable

import pytest

from aileron.egress.signing.hmac_template import signs_time
from aileron.model.failure import FailureClass
from aileron.model.request_signing import HmacTemplate
from tests.egress.conftest import World, use
from tests.support.upstream import Script, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

TIMED = HmacTemplate(message="{time}.{body}", headers=(("X-Signature", "t={time},v1={signature}"),))
TIMELESS = HmacTemplate(message="{body}", headers=(("X-Signature", "{signature}"),))
STATUSES = ("400 Bad Request", "401 Unauthorized", "403 Forbidden")


def refusal(minutes: float, status: str) -> bytes:
    """Return a refusal by a service whose clock is this many minutes from ours."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    return answer(b"no matching signature", f"Date: {email.utils.format_datetime(at, usegmt=True)}", status=status)


@pytest.mark.parametrize(
    ("minutes", "words"), [(-60, "60 minutes ahead of"), (60, "60 minutes behind")], ids=["ahead", "behind"]
)
@pytest.mark.parametrize("status", STATUSES)
async def test_a_refused_signature_is_reported_as_a_wrong_clock_if_the_clocks_differ(
    world: World, tls_upstream: MakeUpstream, minutes: float, words: str, status: str
) -> None:
    """The message says how far off the clock is and how to set it; the plain refusal would not show it."""
    with tls_upstream(lambda _seen: refusal(minutes, status)) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=TIMED))
        failure = (await world.refusal(upstream, method="POST", body=b"x", credential="hmac", grant=grant)).failure

    assert (failure.failure_class, failure.retriable) == (FailureClass.NETWORK_ERROR, False)
    assert words in failure.message
    assert "timedatectl" in failure.message


@pytest.mark.parametrize(
    ("minutes", "status", "template"),
    [
        (4, STATUSES[1], TIMED),
        (-4, STATUSES[1], TIMED),
        (60, "200 OK", TIMED),
        (60, "404 No", TIMED),
        (60, STATUSES[1], TIMELESS),
    ],
    ids=["a-little-behind", "a-little-ahead", "accepted", "not-found", "no-time"],
)
async def test_a_response_that_does_not_point_to_a_wrong_clock_is_relayed(
    world: World, tls_upstream: MakeUpstream, minutes: float, status: str, template: HmacTemplate
) -> None:
    """A clock difference alone or a refusal alone is no clock failure, and neither is a signature without a time."""
    with tls_upstream(lambda _seen: refusal(minutes, status)) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=template))
        got = await world.ask(upstream, method="POST", body=b"x", credential="hmac", grant=grant)

    assert (got.status, got.body) == (int(status[:3]), b"no matching signature")


@pytest.mark.parametrize("field", ["", "Date: ", "Date: yesterday", "Date: Thu, 99 Nov 2026 99:00:00 GMT"])
async def test_a_response_without_a_usable_date_is_relayed(
    world: World, tls_upstream: MakeUpstream, field: str
) -> None:
    """A refusal whose `Date` is missing or malformed says nothing about the clock."""
    with tls_upstream(lambda _seen: answer(b"", *filter(None, [field]), status=STATUSES[1])) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=TIMED))
        assert (await world.ask(upstream, credential="hmac", grant=grant)).status == 401


def test_the_function_signs_time_returns_true_exactly_if_the_signature_covers_the_time() -> None:
    """The time may be in seconds or milliseconds."""
    assert signs_time(TIMED)
    assert signs_time(HmacTemplate(message="{time_ms}{body}", headers=TIMELESS.headers))
    assert not signs_time(TIMELESS)
