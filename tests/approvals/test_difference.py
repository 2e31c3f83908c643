"""Comparison of a call with the last one that was approved: the order of differences, and that none is left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from aileron.approvals.difference import differences, most_similar
from aileron.model.consent import Change
from aileron.model.login import BoundLogin, LoginDetails, LoginTarget
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import Plan, PlannedPreview
from tests.approvals.conftest import MAIL, POST, step, use


def called(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other arguments, or without those that are None."""
    args = {**plan.args, **changes}
    return msgspec.structs.replace(plan, args={name: value for name, value in args.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"to": "bob@example.com"}, ("args.to (new)", "ann@example.com", "bob@example.com", True)),
        ({"to": "ann@example.com "}, ("args.to (new)", "ann@example.com", "ann@example.com ", True)),
        ({"amount": 1000}, ("args.amount (larger)", "10", "1000", True)),
        ({"amount": 10.5}, ("args.amount (larger)", "10", "10.5", True)),
        ({"amount": 9}, ("args.amount (smaller)", "10", "9", False)),
        ({"urgent": True}, ("args.urgent (changed)", "false", "true", True)),
        ({"cc": "eve@example.com"}, ("args.cc (added)", None, "eve@example.com", True)),
        ({"amount": None}, ("args.amount (left out)", "10", None, False)),
    ],
)
def test_an_argument_that_differs_from_the_earlier_call_is_reported(
    plan: Plan, changes: dict[str, Any], expected: tuple[str, str | None, str | None, bool]
) -> None:
    """The change says how the argument differs, its old value and its new one."""
    (change,) = differences(plan, called(plan, **changes))

    assert (change.where, change.before, change.after, change.widens) == expected


def test_a_host_that_the_earlier_call_did_not_reach_is_reported(plan: Plan) -> None:
    """A new host is reported once; one that is no longer used is not."""
    hosts = ("api.example.com:443", "mail.example.com:465")
    wider = msgspec.structs.replace(plan, steps=(step(hosts=hosts), step(hosts=hosts)))

    assert differences(plan, wider) == (Change(where="host (new)", before=None, after="api.example.com:443"),)
    assert differences(wider, plan) == ()


def test_a_new_host_that_only_the_preview_reaches_is_reported(plan: Plan) -> None:
    """The preview sends requests with a credential too."""
    reading = PlannedPreview(step=step(POST, hosts=("api.example.com:443",), credential=None), render=(("A", "b"),))
    now = msgspec.structs.replace(plan, preview=reading)

    assert [change.where for change in differences(plan, now)] == ["host (new)", f"connector {POST}"]


def test_a_credential_that_the_earlier_call_did_not_use_is_reported(plan: Plan) -> None:
    """The first credential of a connector that had none counts as well."""
    work = msgspec.structs.replace(plan, steps=(step(credential=use("work")),))
    none = msgspec.structs.replace(plan, steps=(step(credential=None),))
    where = f"credential of {MAIL}"

    assert differences(plan, work) == (Change(where=where, before="basic/mail/home", after="basic/mail/work"),)
    assert differences(none, plan) == (Change(where=where, before=None, after="basic/mail/home"),)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("ada", "mira", ("ada (basic/mail/home)", "mira (basic/mail/home)")),
        ("ada", "ada", None),
        ("ada", None, None),
        (None, "mira", None),
    ],
    ids=["another one signed in", "the same", "not named now", "not named then"],
)
def test_a_different_account_under_the_same_binding_is_reported(
    plan: Plan, before: str | None, now: str | None, expected: tuple[str, str] | None
) -> None:
    """Both accounts must be known: a missing account name does not count as a different one."""
    as_before, as_now = (
        msgspec.structs.replace(plan, steps=(step(credential=msgspec.structs.replace(use("home"), account=who)),))
        for who in (before, now)
    )

    assert [(change.before, change.after) for change in differences(as_before, as_now)] == (
        [] if expected is None else [expected]
    )


def test_a_different_login_under_the_same_binding_is_reported(plan: Plan) -> None:
    """A user with two databases has two logins; plans from before logins were recorded are not compared."""
    target = LoginTarget.parse("postgres://db.example.com:5432")
    need = CredentialNeed(kind="login", scope="Query", logins=(target,))
    shop, test = (BoundLogin(username="ada", details=LoginDetails(database=name)) for name in ("shop", "test"))
    in_shop, in_test, unsaid = (
        msgspec.structs.replace(
            plan, steps=(step(credential=msgspec.structs.replace(use("home"), need=need, bound=login)),)
        )
        for login in (shop, test, UNSET)
    )

    assert [(change.before, change.after) for change in differences(in_shop, in_test)] == [
        (
            "ada on shop at db.example.com:5432 (basic/mail/home)",
            "ada on test at db.example.com:5432 (basic/mail/home)",
        )
    ]
    assert differences(in_shop, in_shop) == differences(unsaid, in_shop) == ()


def test_a_changed_writing_account_is_reported_beside_an_unchanged_read_only_account(plan: Plan) -> None:
    """The preview's read-only role is the same in all calls, and must not hide that the writing account differs."""

    def written_as(writer: str, reader: str = "reader") -> Plan:
        reading = msgspec.structs.replace(use(reader), login="read_only")
        preview = PlannedPreview(step=step(credential=reading), render=(("A", "b"),))
        return msgspec.structs.replace(plan, steps=(step(credential=use(writer)),), preview=preview)

    where = f"credential of {MAIL}"
    assert differences(written_as("home"), written_as("home")) == ()
    assert differences(written_as("home"), written_as("work")) == (
        Change(where=where, before="basic/mail/home", after="basic/mail/work"),
    )
    assert differences(written_as("home"), written_as("home", "other")) == (
        Change(where=where, before="basic/mail/reader", after="basic/mail/other"),
    )
    assert differences(written_as("home", "work"), written_as("work", "home")) == (
        Change(where=where, before="basic/mail/home", after="basic/mail/work"),
        Change(where=where, before="basic/mail/work", after="basic/mail/home"),
    )


def test_an_account_that_the_earlier_call_did_not_write_to_is_reported(plan: Plan) -> None:
    """The action writes to one more account. An account that is no longer used is not reported."""
    home, both = (
        msgspec.structs.replace(plan, steps=tuple(step(credential=use(name)) for name in names))
        for names in (("home",), ("home", "work"))
    )

    assert differences(home, both) == (Change(where=f"credential of {MAIL}", before=None, after="basic/mail/work"),)
    assert differences(both, home) == ()


def test_a_connector_version_or_hash_that_the_earlier_call_did_not_use_is_reported(plan: Plan) -> None:
    """The report has the version, or the hash if the versions are equal."""
    newer = msgspec.structs.replace(plan, steps=(step(version="1.3.0"),))
    other = msgspec.structs.replace(plan, steps=(step(hash="sha256:" + "cd" * 32),))

    for now in (newer, other):
        (change,) = differences(plan, now)
        assert change.where == f"connector {MAIL}"
        assert (change.before, change.after) == (
            f"1.2.0 sha256:{'ab' * 32}",
            f"{now.steps[0].connector.version} {now.steps[0].connector.hash}",
        )


def test_changed_arguments_are_reported_before_changed_hosts_and_credentials_and_connectors(plan: Plan) -> None:
    """Arguments are in the order of the call; host, credential and connector follow."""
    now = msgspec.structs.replace(
        called(plan, to="bob", amount=11),
        steps=(step(hosts=("a.example.com:443",), credential=use("work"), version="2.0.0"),),
    )

    assert [change.where for change in differences(plan, now)] == [
        "args.to (new)",
        "args.amount (larger)",
        "host (new)",
        f"credential of {MAIL}",
        f"connector {MAIL}",
    ]


VALUES = st.text(max_size=4) | st.integers(-3, 3) | st.floats(-3, 3) | st.booleans()
CALLS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES)


@given(CALLS, CALLS)
def test_exactly_the_arguments_that_differ_in_value_or_type_are_reported(
    plan: Plan, before: dict[str, Any], now: dict[str, Any]
) -> None:
    """Values of different types differ even if Python considers them equal, such as `1` and `true`."""
    changes = differences(msgspec.structs.replace(plan, args=before), msgspec.structs.replace(plan, args=now))
    told = [change.where.removeprefix("args.").split(" ")[0] for change in changes]
    absent = object()
    differing = {
        name
        for name in {*before, *now}
        if repr(before.get(name, absent)) != repr(now.get(name, absent))  # tells 1, 1.0, True and '1' apart
    }

    assert sorted(told) == sorted(differing)
    assert differences(plan, plan) == ()


def test_the_most_similar_call_is_the_one_with_the_fewest_differences(plan: Plan) -> None:
    """The number of newer calls does not matter; of equally similar calls the newest wins; a new host counts like an argument."""
    to_ann, to_bob = called(plan), called(plan, to="bob@example.com", amount=99)
    elsewhere = msgspec.structs.replace(to_ann, steps=(step(hosts=("evil.example:443",)),))

    assert most_similar([to_bob, to_ann], called(plan, amount=11)) == 1
    assert most_similar([to_ann, to_ann], called(plan, amount=11)) == 0
    assert most_similar([to_bob], to_ann) == 0
    assert most_similar([to_ann, elsewhere], elsewhere) == 1
