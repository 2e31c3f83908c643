"""An action file, and a call, checked against the operations of its connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.actions.resolve import with_args
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import ConnectorManifest, Operation, Parameter
from tests.actions.test_resolve import BASIC, HOME, WORK, Store, Vault, manifest, plan
from tests.support.refusals import refusal_of
from tests.support.shaped import shaped

Text = Callable[..., str]
TO = Parameter(name="to", types=("string",), max_length=20)
COUNT = Parameter(name="count", required=False, types=("integer", "null"), minimum=1, maximum=9)
SUBJECT = Parameter(name="subject", types=("string",))
SEND = Operation(name="send_email", parameters=(TO, COUNT, SUBJECT))


def mail(*operations: Operation) -> ConnectorManifest:
    """Return the connector with these operations on record."""
    return manifest(operations=operations or (SEND,))


def without(name: str, **changes: Any) -> Operation:
    """Return SEND with one parameter changed or removed."""
    kept = [
        msgspec.structs.replace(parameter, **changes) if parameter.name == name else parameter
        for parameter in SEND.parameters
        if parameter.name != name or changes
    ]
    return msgspec.structs.replace(SEND, parameters=tuple(kept))


def checked(text: str, found: ConnectorManifest | None) -> None:
    """Check the file as when it is added."""
    check_action(parse_action(text, file="a.md"), lambda _pin: found, file="a.md")


def refusal(text: str, found: ConnectorManifest) -> AileronError:
    """Return the error with which the file is refused."""
    with pytest.raises(AileronError) as caught:
        checked(text, found)
    return caught.value


def test_an_action_file_is_accepted_if_it_matches_its_operations_or_no_operations_are_recorded(
    action_text: Text,
) -> None:
    """This is the positive control of all tests below."""
    checked(action_text(), mail())
    checked(action_text(), manifest())
    checked(action_text(), None)


def test_an_unknown_operation_is_refused(action_text: Text) -> None:
    """The message names the nearest operation, and the details list all of them for programs."""
    failure = refusal(action_text(), mail(Operation(name="send_mail"), Operation(name="list"))).failure

    assert failure.failure_class is FailureClass.UNKNOWN_OP
    assert failure.message == (
        "a.md: step 'send': github://acme/mail@1.2.0 has no operation 'send_email'; did you mean 'send_mail'?"
    )
    assert failure.details == {"operations": ["list", "send_mail"]}


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        (without("count"), "count: the operation does not accept it; did you mean"),
        (without("to", types=("integer",)), "to: string; the operation accepts integer"),
        (without("count", required=True), "count: the operation needs it, but input 'count' is optional"),
        (without("subject", types=("boolean",)), "subject: string; the operation accepts boolean"),
        (
            msgspec.structs.replace(SEND, parameters=(*SEND.parameters, Parameter(name="cc", types=("string",)))),
            "cc: the operation needs it (string); add it to the step's inputs",
        ),
    ],
)
def test_inputs_that_the_operation_does_not_accept_are_refused(
    action_text: Text, operation: Operation, problem: str
) -> None:
    """Such inputs fit no call of the operation. One that takes any arguments accepts them."""
    failure = refusal(action_text(), mail(operation)).failure

    assert failure.failure_class is FailureClass.INVALID_REQUEST
    assert failure.message.startswith("a.md: step 'send', send_email of github://acme/mail: ")
    assert problem.partition("; did")[0] in failure.message
    checked(action_text(), mail(Operation(name="send_email", rest=True)))


def test_a_literal_value_is_checked_against_its_parameter(action_text: Text) -> None:
    """A literal of the right type can still be out of bounds."""
    nine, ten = (action_text(('count = "${args.count}"', f"count = {number}")) for number in (9, 10))

    checked(nine, mail())
    assert "count: above the maximum of 9" in refusal(ten, mail()).failure.message


def test_a_preview_is_checked_against_its_operation(action_text: Text) -> None:
    """The operation gets the preview's own inputs, and no other argument."""
    preview = '[approval.preview]\nop = "look"\ninputs.to = "${args.to}"\nrender.A = "a"\n'
    text = action_text(
        ('expires_in = "10m"\n', f'expires_in = "10m"\n\n{preview}'),
        ('capabilities = ["send_email"]', 'capabilities = ["send_email", "look"]'),
    )
    look = Operation(name="look", parameters=(TO,))

    checked(text, mail(SEND, look))
    assert "step 'preview'" in refusal(text, mail(SEND)).failure.message
    assert "to: the operation does not accept it" in refusal(text, mail(SEND, Operation(name="look"))).failure.message


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"to": "ann", "count": 10}, "argument 'count': above the maximum of 9"),
        ({"to": "x" * 21}, "argument 'to': longer than the maximum of 20 characters"),
    ],
)
def test_a_call_that_the_operation_does_not_accept_is_refused_before_there_is_a_plan(
    action_text: Text, args: dict[str, Any], problem: str
) -> None:
    """The refusal comes before there is a plan, so no person is asked. A person's edits are checked in the same way."""
    good = {"to": "ann", "count": 9}
    found = plan(action_text(), good, mail())

    attempt: Callable[[], object]
    for attempt in (
        lambda: plan(action_text(), args, mail()),
        lambda: with_args(found, args, connectors=Store(mail())),
    ):
        with pytest.raises(AileronError) as refused:
            attempt()
        assert refused.value.failure.failure_class is FailureClass.BAD_INPUT
        assert problem in refused.value.failure.message
        assert "x" * 21 not in refused.value.failure.message
    assert with_args(found, shaped(good), connectors=Store(mail())) == found
    assert plan(action_text(), args).args["to"] == args["to"], "without a record nothing is refused"


def test_an_omitted_argument_that_the_operation_requires_is_reported(action_text: Text) -> None:
    """The input is optional in the action but required by the operation, so only the caller can fix it."""
    found = mail(without("count", required=True))

    with pytest.raises(AileronError, match="argument 'count': missing; the operation needs integer or null"):
        plan(action_text(), {"to": "ann"}, found)
    assert plan(action_text(), {"to": "ann", "count": 1}, found)


def test_the_type_of_a_value_from_an_earlier_step_is_not_checked(action_text: Text) -> None:
    """The value is not known yet, but the parameter's name must exist."""
    two = (
        '[[execute]]\nid = "send"',
        '[[execute]]\nid = "find"\nconnector = "github://acme/mail"\nop = "find"\n\n[[execute]]\nid = "send"',
    )
    text = action_text(
        two,
        ('capabilities = ["send_email"]', 'capabilities = ["send_email", "find"]'),
        ('count = "${args.count}"', 'count = "${find.count}"'),
    )
    find = Operation(name="find", rest=True)

    checked(text, mail(SEND, find))
    assert plan(text, {"to": "ann"}, mail(SEND, find))
    assert "count" in refusal(text, mail(without("count"), find)).failure.message


@pytest.mark.parametrize("bound", [(), (HOME, WORK)])
def test_an_operation_that_uses_no_credential_needs_no_choice_of_credential(
    action_text: Text, bound: tuple[Any, ...]
) -> None:
    """This holds with no binding and with two. An operation that can name a credential is refused, and a name that the
    caller gives must exist.
    """
    idle, naming = (
        manifest(credential=BASIC, operations=(msgspec.structs.replace(SEND, credential=name),))
        for name in (False, True)
    )
    vault = Vault(mail=bound)

    assert plan(action_text(), {"to": "ann"}, idle, vault=vault).steps[0].grant.credential is None
    assert (
        refusal_of(plan, action_text(), {"to": "ann"}, naming, vault=vault).failure_class
        is FailureClass.BINDING_REQUIRED
    )
    with pytest.raises(AileronError):
        plan(action_text(), {"to": "ann"}, idle, vault=vault, binding="nobody")


PREVIEW = '[approval.preview]\nop = "look"\ninputs.to = "${args.to}"\nrender.A = "a"\n'
CHANGE = msgspec.structs.replace(SEND, login="previewed")
LOOK = Operation(name="look", parameters=(TO,))


def with_preview(action_text: Text, preview: str = PREVIEW) -> str:
    """Return the action with a preview by `look`."""
    return action_text(
        ('expires_in = "10m"\n', f'expires_in = "10m"\n\n{preview}'),
        ('capabilities = ["send_email"]', 'capabilities = ["send_email", "look"]'),
    )


def test_an_action_limited_to_previewed_changes_needs_a_preview_that_runs_the_change(action_text: Text) -> None:
    """The preview must be an operation that is rolled back, not one that only reads something."""
    seen = msgspec.structs.replace(LOOK, login="previewed")

    checked(with_preview(action_text), mail(CHANGE, seen))
    assert "changes only what a person saw" in refusal(action_text(), mail(CHANGE)).failure.message
    assert "[approval.preview]" in refusal(with_preview(action_text), mail(CHANGE, LOOK)).failure.message


def test_the_label_for_previewed_changes_is_reserved(action_text: Text) -> None:
    """An author's line of that name could be taken for Aileron's; without such changes the label has no special meaning."""
    seen = msgspec.structs.replace(LOOK, login="previewed")
    text = with_preview(action_text, PREVIEW.replace("render.A", "render.changes"))

    checked(text, mail(SEND, LOOK))
    assert "shown by Aileron" in refusal(text, mail(CHANGE, seen)).failure.message
