"""References `${args.x}` and `${step.path}`: what counts as one, where it may stand, and what is put in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.actions.references import Argument, pieces
from aileron.actions.resolve import resolve, with_args
from aileron.config import Settings
from aileron.executor.interpolation import with_answers
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.plan import MAX_ARGS_BYTES, Filled, Plan, Step, StepValue
from tests.actions.test_resolve import Store, Vault, manifest
from tests.support.refusals import refusal_of

Text = Callable[..., str]

FIND = """[[execute]]
id = "find"
connector = "github://acme/mail"
op = "find"

"""
TWO_STEPS = (("[[execute]]\n", f"{FIND}[[execute]]\n"), ('["send_email"]', '["send_email", "find"]'))


def planned(text: str, **args: Any) -> Plan:
    """Return the plan of the action in `text`."""
    action = parse_action(text, file="send-email.md")
    invocation = Invocation(action=action.name, args={"to": "ann", **args}, scope=Scope.OPERATOR)
    return resolve(invocation, action, connectors=Store(manifest()), bindings=Vault(), settings=Settings())


@pytest.fixture
def with_inputs(action_text: Text) -> Callable[[str], str]:
    """Return a function that builds an action of two steps, the second with the given inputs."""

    def build(inputs: str) -> str:
        given = 'to = "${args.to}"\ncount = "${args.count}"\nsubject = "From ${args.to}: hello"\n'
        return action_text(*TWO_STEPS, (given, inputs + "\n"))

    return build


# What counts as one


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("hello", ("hello",)),
        ("$ {args.to} $", ("$ {args.to} $",)),
        ("${args.to}", (Argument("to"),)),
        ("${args.to}${args.to}", (Argument("to"), Argument("to"))),
        ("a ${find.id} b", ("a ", StepValue(step="find", path=("id",)), " b")),
        ("${find-2.messages.0.payload.@type}", (StepValue(step="find-2", path=("messages", "0", "payload", "@type")),)),
        ("$${args.to}}", ("$", Argument("to"), "}")),
    ],
)
def test_a_text_is_split_at_its_references(text: str, found: tuple[object, ...]) -> None:
    """The plain parts stay, and each reference becomes an object that says what it refers to."""
    assert pieces(text) == found


NOT_ONE = (
    "${",
    "${}",
    "${args}",
    "${args.}",
    "${args.To}",
    "${args.a.b}",
    "${find}",
    "${find.}",
    "${find..id}",
    "${ find.id }",
    "${find.a b}",
    "${find.*}",
    "${Find.id}",
    "${find.id",
    "${${args.to}}",
    "${find." + ".".join("a" * 17) + "}",
)


@pytest.mark.parametrize("text", NOT_ONE)
def test_a_malformed_reference_is_refused(text: str) -> None:
    """A typing mistake is not sent as plain text."""
    with pytest.raises(ValueError, match="is not"):
        pieces(text)


@given(st.text(alphabet="${}args.find_0-x ", max_size=40))
def test_the_parts_of_a_split_text_join_to_the_original_text(text: str) -> None:
    """A text with a malformed reference is refused instead."""
    try:
        found = pieces(text)
    except ValueError:
        assert "${" in text
    else:
        assert (
            "".join(f"${{args.{piece.name}}}" if isinstance(piece, Argument) else str(piece) for piece in found) == text
        )


# What the file may say


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ('id = "${send.id}"', "step 'send', key 'id': ${send.id} is not an earlier step; earlier steps: find"),
        ('id = "${later.id}"', "is not an earlier step"),
        ('id = "x ${fnd.id}"', "${fnd.id} is not an earlier step; earlier steps: find"),
        ('id = [{a = "${nobody.id}"}]', "is not an earlier step"),
    ],
)
def test_only_an_earlier_step_can_be_referenced(with_inputs: Callable[[str], str], inputs: str, problem: str) -> None:
    """References to the step itself, a later step or an unknown one are refused when the file is read, with a list of
    the earlier steps.
    """
    assert problem in refusal_of(parse_action, with_inputs(inputs), file="send-email.md").message
    assert parse_action(with_inputs('id = "${find.id}"'), file="send-email.md").steps[1].inputs == {"id": "${find.id}"}


def test_a_step_cannot_be_named_args(action_text: Text) -> None:
    """`${args.x}` refers to the call's arguments."""
    with pytest.raises(AileronError, match="step id 'args'"):
        parse_action(action_text(('id = "send"', 'id = "args"')), file="send-email.md")


# Where they come


def test_the_plan_lists_each_place_that_an_earlier_steps_value_fills(with_inputs: Callable[[str], str]) -> None:
    """Arguments are filled in at once. An omitted optional argument in a list moves the places behind it."""
    inputs = 'id = "${find.messages.0.id}"\nall = ["${args.count}", "a", {"x/~y" = "Re: ${args.to} ${find.subject}"}]'
    plan = planned(with_inputs(inputs), to="${find.id}")

    subject = StepValue(step="find", path=("subject",))
    assert plan.steps[1].args == {
        "to": "${find.id}",
        "id": "${find.messages.0.id}",
        "all": ["a", {"x/~y": "Re: ${find.id} ${find.subject}"}],
    }
    assert plan.steps[1].filled == (
        Filled(at="/id", parts=(StepValue(step="find", path=("messages", "0", "id")),)),
        Filled(at="/all/1/x~1~0y", parts=("Re: ", "${find.id}", " ", subject)),
    )
    assert plan.steps[0].filled == ()
    assert Plan.from_json(plan.to_json()) == plan


def test_editing_arguments_updates_the_places_that_earlier_steps_fill(with_inputs: Callable[[str], str]) -> None:
    """The places are computed again for the edited arguments."""
    plan = planned(with_inputs('all = ["${args.count}", "${find.id}"]'))

    edited = with_args(plan, {"to": "ann", "count": 2}, connectors=Store(manifest()))

    assert [place.at for place in plan.steps[1].filled] == ["/all/0"]
    assert [place.at for place in edited.steps[1].filled] == ["/all/1"]
    assert edited.digest == planned(with_inputs('all = ["${args.count}", "${find.id}"]'), count=2).digest


# What is put in


def filled(step: Step, answer: Any) -> Any:
    """Return the step's arguments with that answer of `find`."""
    return with_answers(step, {"find": answer}).args


@pytest.mark.abuse_case("B10")
@pytest.mark.parametrize("value", ["x", "${args.to}", "${find.id}", 3, 0.5, True, None, [1], {"a": 1}])
def test_a_value_of_an_earlier_step_keeps_its_type_and_is_not_expanded_again(
    with_inputs: Callable[[str], str], value: object
) -> None:
    """A value that looks like a reference is not expanded again, and the plan itself is not changed."""
    step = planned(with_inputs('id = "${find.messages.0.id}"')).steps[1]
    before = msgspec.to_builtins(step)

    assert filled(step, {"messages": [{"id": value}]}) == {"to": "ann", "id": value}
    assert msgspec.to_builtins(step) == before


def test_a_number_or_boolean_inserted_into_a_text_is_spelled_as_json(with_inputs: Callable[[str], str]) -> None:
    """Numbers and booleans have the spelling of JSON."""
    step = planned(with_inputs('subject = "${find.a}, ${find.b}, ${find.c} for ${args.to}"')).steps[1]

    assert filled(step, {"a": "x ${find.b}", "b": 2.0, "c": True})["subject"] == "x ${find.b}, 2, true for ann"


@pytest.mark.parametrize(
    ("inputs", "answer", "problem"),
    [
        ('id = "${find.messages.0.id}"', {}, "has no 'messages' there"),
        ('id = "${find.messages.0.id}"', {"messages": []}, "has no '0' there"),
        ('id = "${find.messages.00.id}"', {"messages": [{"id": 1}]}, "has no '00' there"),
        ('id = "${find.messages.x.id}"', {"messages": [{"id": 1}]}, "has no 'x' there"),
        ('id = "${find.id.x}"', {"id": "a text"}, "has no 'x' there"),
        ('id = "${find.id}"', None, "has no 'id' there"),
        ('id = "a ${find.id}"', {"id": {"secret": "hidden"}}, "inside a text, but its value is an object"),
        ('id = "a ${find.id}"', {"id": ["hidden"]}, "inside a text, but its value is an array"),
        ('id = "a ${find.id}"', {"id": None}, "inside a text, but its value is null"),
        ('id = "${find.id}"', {"id": "x" * MAX_ARGS_BYTES}, f"at most {MAX_ARGS_BYTES}"),
    ],
)
def test_a_missing_value_of_an_earlier_step_fails_with_a_clear_message(
    with_inputs: Callable[[str], str], inputs: str, answer: object, problem: str
) -> None:
    """The message has the step, the place and the reference, but no data of the earlier step's result."""
    with pytest.raises(AileronError) as refused:
        filled(planned(with_inputs(inputs)).steps[1], answer)

    failure = refused.value.failure
    assert failure.failure_class is FailureClass.BAD_INPUT
    assert "step 'send' was not started" in failure.message
    assert problem in failure.message
    assert "hidden" not in failure.message
