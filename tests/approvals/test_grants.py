"""Standing grants: which calls pass without a question, each beside one that does not, and which grants are allowed."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.approvals.grants import check_grant, credentials_of, matches
from aileron.model.consent import Constraint, Operator, StandingGrant
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import ActionFile, ApprovalRule, InputSpec
from aileron.model.plan import Plan
from tests.approvals.conftest import POST, step, use

NOW = 1_800_000_000.0


def constraint(argument: str, operator: str, value: Any) -> Constraint:
    """Return a constraint on one argument."""
    return Constraint(argument=argument, operator=operator, value=value)  # type: ignore[arg-type]


def grant(plan: Plan, *constraints: Constraint, **changes: Any) -> StandingGrant:
    """Return a grant for this plan, with these constraints."""
    made = StandingGrant(
        id="apr-1",
        action=plan.action,
        action_digest=plan.action_digest,
        credentials=credentials_of(plan),
        constraints=constraints,
        uses=10,
        until=int(NOW) + 60,
    )
    return msgspec.structs.replace(made, **changes)


def test_a_standing_grant_allows_only_runs_of_exactly_its_action_file(plan: Plan) -> None:
    """A different action needs a question, and so does the same action after one byte changed."""
    found = grant(plan)

    assert matches(found, plan, NOW)
    assert not matches(found, msgspec.structs.replace(plan, action="send-all"), NOW)
    assert not matches(found, msgspec.structs.replace(plan, action_digest="sha256:" + "2" * 64), NOW)


def test_a_standing_grant_does_not_cover_logins_limited_to_previewed_changes(plan: Plan) -> None:
    """A person must see each such change; a step with a read-only login passes."""
    for login, is_let in (("previewed", False), ("read_only", True)):
        credential = msgspec.structs.replace(use("home"), login=login)
        subject = msgspec.structs.replace(plan, steps=(step(credential=credential),))
        assert subject.changes_only_seen != is_let
        assert matches(grant(subject), subject, NOW) == is_let


@pytest.mark.abuse_case("D23")
def test_a_standing_grant_expires_exactly_at_its_end_time(plan: Plan) -> None:
    """The grant ends at `until`, to the second."""
    found = grant(plan)

    assert matches(found, plan, found.until - 0.001)
    assert not matches(found, plan, float(found.until))


def test_a_standing_grant_allows_only_runs_with_the_credentials_that_it_was_made_with(plan: Plan) -> None:
    """A different, additional or missing credential needs a question; order and number of uses do not matter."""
    found, both = grant(plan), (step(), step(POST, credential=use("work", POST)))

    assert not matches(found, msgspec.structs.replace(plan, steps=(step(credential=use("work")),)), NOW)
    assert not matches(found, msgspec.structs.replace(plan, steps=both), NOW)
    assert not matches(found, msgspec.structs.replace(plan, steps=(step(credential=None),)), NOW)
    assert matches(found, msgspec.structs.replace(plan, steps=(step(), step(), step(credential=None))), NOW)
    two = msgspec.structs.replace(plan, steps=both)
    assert matches(grant(two, credentials=("basic/mail/work", "basic/mail/home")), two, NOW)


def test_a_standing_grant_never_allows_a_run_of_an_irreversible_action(plan: Plan) -> None:
    """This holds even if such a grant existed."""
    final = msgspec.structs.replace(plan, approval=ApprovalRule(required=True, irreversible=True))

    assert matches(grant(plan), plan, NOW)
    assert not matches(grant(final), final, NOW)


HOLDS: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("equals", "ann", ["ann"], ["Ann", "ann ", "", "anna", 1, True]),
    ("equals", 1, [1, 1.0], [2, True, "1", 1.5]),
    ("equals", 1.5, [1.5], [1, "1.5"]),
    ("equals", True, [True], [False, 1, "true", 1.0]),
    ("equals", False, [False], [True, 0, "", 0.0]),
    ("equals", "é", ["é"], ["e\u0301"]),
    ("one_of", ["ann", "bob"], ["ann", "bob"], ["an", "annbob", "Ann", 1]),
    ("one_of", [1, 2], [1, 2.0], [True, 3, "1"]),
    ("one_of", [True], [True], [1, False]),
    ("prefix", "ann", ["ann", "anna", "ann\n"], ["an", "Ann", " ann", "", 1, True]),
    ("at_most", 50, [50, 49.9, 0, -1e9], [50.1, 51, True, "1", "", math.inf, math.nan]),
    ("at_most", 0.5, [0.5, 0], [1, False]),
]


@pytest.mark.parametrize(("operator", "value", "good", "bad"), HOLDS)
def test_a_constraint_of_a_standing_grant_matches_only_its_own_values(
    plan: Plan, operator: str, value: Any, good: list[Any], bad: list[Any]
) -> None:
    """Values are not converted to fit, and none passes for another."""
    found = grant(plan, constraint("x", operator, value))

    for given_value in good:
        assert matches(found, msgspec.structs.replace(plan, args={"x": given_value}), NOW), given_value
    for given_value in bad:
        assert not matches(found, msgspec.structs.replace(plan, args={"x": given_value}), NOW), given_value


def test_a_standing_grant_refuses_a_call_with_an_argument_that_must_be_absent(plan: Plan) -> None:
    """Every value of it is refused, null among them; all other arguments are allowed."""
    found = grant(plan, constraint("bcc", "absent", None))

    assert matches(found, msgspec.structs.replace(plan, args={}), NOW)
    assert matches(found, msgspec.structs.replace(plan, args={"to": "ann"}), NOW)
    values: tuple[object, ...] = ("mallory", "", None, False, 0, [])
    for value in values:
        assert not matches(found, msgspec.structs.replace(plan, args={"to": "ann", "bcc": value}), NOW), value


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        ("prefix", ""),
        ("prefix", 1),
        ("at_most", "9"),
        ("at_most", True),
        ("at_most", math.nan),
        ("at_most", math.inf),
        ("one_of", []),
        ("one_of", "ann"),
        ("one_of", {"ann": 1}),
        ("equals", None),
        ("equals", ["ann"]),
        ("equals", {"a": 1}),
    ],
)
def test_an_invalid_constraint_of_a_standing_grant_matches_no_argument(plan: Plan, operator: str, value: Any) -> None:
    """This holds however the constraint came into a grant, and for every argument, even its own value."""
    for given_value in ("ann", "", "9", 9, True, None, value):
        args = {"x": given_value}
        assert not matches(grant(plan, constraint("x", operator, value)), msgspec.structs.replace(plan, args=args), NOW)


ARGUMENTS = st.text(max_size=3) | st.integers(-3, 3) | st.floats(-3, 3) | st.booleans()
CONSTRAINTS = st.builds(
    constraint,
    st.sampled_from(["to", "amount", "other"]),
    st.sampled_from(get_args(Operator)),
    ARGUMENTS | st.lists(ARGUMENTS, max_size=3),
)


@given(st.lists(CONSTRAINTS, max_size=3), CONSTRAINTS, st.dictionaries(st.sampled_from(["to", "amount"]), ARGUMENTS))
def test_adding_a_constraint_never_widens_a_standing_grant(
    plan: Plan, constraints: list[Constraint], more: Constraint, args: dict[str, Any]
) -> None:
    """All constraints must hold, in any order."""
    called = msgspec.structs.replace(plan, args=args)
    if matches(grant(plan, *constraints, more), called, NOW):
        assert matches(grant(plan, *constraints), called, NOW)
        assert matches(grant(plan, more, *reversed(constraints)), called, NOW)


@given(CONSTRAINTS)
def test_a_missing_argument_satisfies_only_the_absent_operator(plan: Plan, condition: Constraint) -> None:
    """The constraint's value does not matter."""
    assert matches(grant(plan, condition), msgspec.structs.replace(plan, args={}), NOW) == (
        condition.operator == "absent"
    )


@given(ARGUMENTS, ARGUMENTS)
def test_the_equals_operator_is_symmetric(plan: Plan, ours: Any, theirs: Any) -> None:
    """A boolean equals no number, and a text equals no other type of value."""
    there = matches(
        grant(plan, constraint("x", "equals", ours)), msgspec.structs.replace(plan, args={"x": theirs}), NOW
    )
    back = matches(grant(plan, constraint("x", "equals", theirs)), msgspec.structs.replace(plan, args={"x": ours}), NOW)
    are_alike = isinstance(ours, bool) == isinstance(theirs, bool) and isinstance(ours, str) == isinstance(theirs, str)

    assert there == back == (are_alike and ours == theirs)


@given(st.lists(CONSTRAINTS, max_size=3), st.dictionaries(st.sampled_from(["to", "amount"]), ARGUMENTS))
def test_a_stored_standing_grant_matches_the_same_calls_as_before(
    plan: Plan, constraints: list[Constraint], args: dict[str, Any]
) -> None:
    """A grant goes through JSON into the vault and back."""
    found, called = grant(plan, *constraints), msgspec.structs.replace(plan, args=args)
    stored = msgspec.json.decode(msgspec.json.encode(found), type=StandingGrant)

    assert matches(stored, called, NOW) == matches(found, called, NOW)


# Which grants there may be


def action(**changes: Any) -> ActionFile:
    """Return a gated action that can be undone, with an input of each type."""
    fields: dict[str, Any] = {
        "name": "send-money",
        "version": "1.0.0",
        "source": None,
        "intent": "x",
        "connectors": (),
        "steps": (),
        "inputs": (
            InputSpec(name="to", type="string", description="x"),
            InputSpec(name="count", type="integer", description="x"),
            InputSpec(name="amount", type="number", description="x"),
            InputSpec(name="urgent", type="boolean", description="x", required=False),
        ),
        "approval": ApprovalRule(required=True, irreversible=False),
        "body": "",
        "text": "",
        "digest": "sha256:" + "1" * 64,
    }
    return ActionFile(**{**fields, **changes})


GOOD = [
    constraint("to", "equals", "ann"),
    constraint("to", "one_of", ["ann", "bob"]),
    constraint("to", "prefix", "ann@"),
    constraint("count", "at_most", 5),
    constraint("count", "equals", 5),
    constraint("amount", "at_most", 0.5),
    constraint("amount", "equals", 5),
    constraint("urgent", "equals", False),
    constraint("urgent", "one_of", [True, False]),
    constraint("urgent", "absent", None),
]


def test_a_standing_grant_within_the_bounds_for_grants_can_be_made(plan: Plan) -> None:
    """The lower and the upper end of each bound are tried, with no constraints and with all kinds of them."""
    check_grant(action(), [], 1, 60)
    check_grant(action(), GOOD, 1000, 30 * 24 * 3600)
    check_grant(action(), [constraint("to", "prefix", "a")] * 16 + [constraint("count", "absent", None)] * 64, 1, 60)
    check_grant(action(), [constraint("to", "one_of", ["a"] * 64)], 1, 60)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"approval": ApprovalRule(required=False, irreversible=False)}, "asks nobody"),
        ({"approval": ApprovalRule(required=True)}, "cannot be undone"),
        ({"constraints": [constraint("too", "equals", "a")]}, "no argument 'too'; declared: to, count, amount, urgent"),
        ({"constraints": [constraint("to", "equals", 5)]}, "argument 'to', equals: its value is not of type string"),
        ({"constraints": [constraint("to", "equals", None)]}, "not of type string"),
        ({"constraints": [constraint("to", "equals", "\ud800")]}, "cannot be written as canonical JSON"),
        ({"constraints": [constraint("count", "equals", 5.5)]}, "not of type integer"),
        ({"constraints": [constraint("count", "equals", True)]}, "not of type integer"),
        ({"constraints": [constraint("count", "equals", 2**53)]}, "cannot be written as canonical JSON"),
        ({"constraints": [constraint("amount", "equals", "5")]}, "not of type number"),
        ({"constraints": [constraint("amount", "equals", math.inf)]}, "cannot be written as canonical JSON"),
        ({"constraints": [constraint("urgent", "equals", 1)]}, "not of type boolean"),
        ({"constraints": [constraint("to", "one_of", [])]}, "not a list of 1 to 64"),
        ({"constraints": [constraint("to", "one_of", ["a"] * 65)]}, "not a list of 1 to 64"),
        ({"constraints": [constraint("to", "one_of", "ann")]}, "not a list"),
        ({"constraints": [constraint("to", "one_of", ["ann", 5])]}, "a value is not of type string"),
        ({"constraints": [constraint("to", "prefix", "")]}, "not a text, or empty"),
        ({"constraints": [constraint("to", "prefix", 5)]}, "not a text"),
        ({"constraints": [constraint("count", "prefix", "5")]}, "for text, and this argument is of type integer"),
        ({"constraints": [constraint("to", "at_most", 5)]}, "for numbers, and this argument is of type string"),
        ({"constraints": [constraint("urgent", "at_most", 1)]}, "for numbers, and this argument is of type boolean"),
        ({"constraints": [constraint("count", "at_most", "5")]}, "its value is not a number"),
        ({"constraints": [constraint("count", "at_most", True)]}, "its value is not a number"),
        ({"constraints": [constraint("urgent", "absent", False)]}, "argument 'urgent', absent: its value is not null"),
        ({"constraints": [constraint("bcc", "absent", None)]}, "no argument 'bcc'"),
        ({"constraints": [constraint("to", "absent", None)] * 65}, "65 arguments that must not be given; at most 64"),
        ({"constraints": [constraint("to", "equals", "x" * 5000)]}, "over 4096 bytes"),
        ({"constraints": [constraint("to", "prefix", "a")] * 17}, "17 constraints; at most 16"),
        ({"uses": 0}, "1 to 1000 uses, not 0"),
        ({"uses": 1001}, "1 to 1000 uses"),
        ({"uses": True}, "1 to 1000 uses"),
        ({"for_s": 59}, "from 60 seconds to 30 days, not 59"),
        ({"for_s": 30 * 24 * 3600 + 1}, "from 60 seconds to 30 days"),
    ],
)
def test_a_standing_grant_outside_the_bounds_for_grants_is_refused(changes: dict[str, Any], message: str) -> None:
    """Each refusal names its reason; a grant that differs in one field is allowed."""
    asked: dict[str, Any] = {"constraints": GOOD, "uses": 5, "for_s": 3600, "approval": action().approval, **changes}
    with pytest.raises(AileronError) as caught:
        check_grant(action(approval=asked["approval"]), asked["constraints"], asked["uses"], asked["for_s"])

    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert message in caught.value.failure.message


def test_an_action_that_does_not_declare_whether_it_is_irreversible_gets_no_standing_grant() -> None:
    """A missing value counts as irreversible, so every call is decided by itself."""
    with pytest.raises(AileronError, match="irreversible = false"):
        check_grant(action(approval=ApprovalRule(required=True)), [], 1, 60)
