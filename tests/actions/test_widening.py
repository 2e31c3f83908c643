"""Changes of an action file that need a person: the closed list, row by row, and laws over arbitrary pairs of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.actions.widening import changes, consent_of
from aileron.model.canonical import canonical_json
from aileron.model.consent import MAX_CHANGE_CHARACTERS, Change, subject_digest
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import (
    ActionFile,
    ApprovalRule,
    ConnectorManifest,
    CredentialNeed,
    InputSpec,
    PreviewRule,
    RequiredConnector,
    StepSpec,
)
from aileron.model.names import Fqn, HostPort
from aileron.model.plan import ConnectorPin
from tests.support.refusals import refusal_of

Text = Callable[..., str]
PIN, OTHER_PIN = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32
MAIL, POST = Fqn.parse("github://acme/mail"), Fqn.parse("github://acme/post")

# Two steps, a preview and every key, so that each row below changes one thing.
WHOLE = (
    ('["send_email"]', '["send_email", "get_draft"]'),
    (
        'expires_in = "10m"\n',
        'expires_in = "10m"\nirreversible = true\nundo_window_s = 30\n\n[approval.preview]\n'
        'connector = "github://acme/mail"\nop = "get_draft"\n'
        'multiline = ["Text"]\n\n[approval.preview.inputs]\nid = "${args.to}"\n\n'
        '[approval.preview.render]\n"To" = "a.b"\n"Text" = "c"\n',
    ),
    (
        '[[inputs]]\nname = "to"',
        '[[execute]]\nid = "log"\nconnector = "github://acme/mail"\nop = "send_email"\n\n[execute.inputs]\ncopies = 1\n\n'
        '[[inputs]]\nname = "to"',
    ),
)
SECOND = f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.0.0"\nhash = "{PIN}"\ncapabilities = ["post"]\n\n'
LOG = '[[execute]]\nid = "log"\nconnector = "github://acme/mail"\nop = "send_email"\n\n[execute.inputs]\ncopies = 1\n\n'


def read(text: str) -> ActionFile:
    """Parse an installed file."""
    return parse_action(text, file="send-email.md")


def told(before: ActionFile | None, after: ActionFile) -> dict[str, bool]:
    """Return each changed place and whether the change widens."""
    return {change.where: change.widens for change in changes(before, after)}


CHANGES: list[tuple[str, str, dict[str, bool], dict[str, bool]]] = [
    # what stands in the file, what in its place, the changes there, and those back
    ("undo_window_s = 30", "undo_window_s = 10", {"approval.undo_window_s": True}, {"approval.undo_window_s": False}),
    ("undo_window_s = 30", "", {"approval.undo_window_s": True}, {"approval.undo_window_s": False}),
    ("irreversible = true", "irreversible = false", {"approval.irreversible": True}, {"approval.irreversible": False}),
    ("irreversible = true\n", "", {}, {}),
    ('"10m"', '"11m"', {"approval.expires_in (seconds)": True}, {"approval.expires_in (seconds)": False}),
    ('"10m"', '"600s"', {}, {}),
    (
        "idempotent = false",
        "idempotent = true",
        {"execute send: idempotent": True},
        {"execute send: idempotent": False},
    ),
    ("idempotent = false\n", "", {}, {}),
    (
        'op = "send_email"\nidem',
        'op = "send_email"\neffect = "send"\nidem',
        {"execute send: effect": True},
        {"execute send: effect": True},
    ),
    ("[[requires", 'tags = ["mail"]\n\n[[requires', {"tags": False}, {"tags": False}),
    ("[[requires", 'summary = "Send to {to}"\n\n[[requires', {"summary": True}, {"summary": True}),
    (
        'op = "get_draft"\nmulti',
        'op = "get_drafts"\nmulti',
        {"approval.preview.op": True},
        {"approval.preview.op": True},
    ),
    (
        '"${args.to}"\n\n[approval',
        '"x"\n\n[approval',
        {"approval.preview.inputs": True},
        {"approval.preview.inputs": True},
    ),
    ('"To" = "a.b"', '"To" = "a.c"', {"approval.preview.render": True}, {"approval.preview.render": True}),
    (
        '"To" = "a.b"\n"Text" = "c"',
        '"Text" = "c"\n"To" = "a.b"',
        {"approval.preview.render": True},
        {"approval.preview.render": True},
    ),
    ('["Text"]', "[]", {"approval.preview.multiline": True}, {"approval.preview.multiline": True}),
    (
        f'hash = "{PIN}"',
        f'hash = "{OTHER_PIN}"',
        {f"requires.connectors {MAIL}: hash": True},
        {f"requires.connectors {MAIL}: hash": True},
    ),
    (
        'version = "1.2.0"\nhash',
        'version = "1.2.1"\nhash',
        {f"requires.connectors {MAIL}: version": True},
        {f"requires.connectors {MAIL}: version": True},
    ),
    (
        '["send_email", "get_draft"]',
        '["send_email", "get_draft", "get_drafts"]',
        {f"requires.connectors {MAIL}: capabilities": True},
        {f"requires.connectors {MAIL}: capabilities": True},
    ),
    (
        '"get_draft"]\n',
        '"get_draft"]\nidentity = "work"\n',
        {f"requires.connectors {MAIL}: identity": True},
        {f"requires.connectors {MAIL}: identity": True},
    ),
    (
        "[match]",
        SECOND + "[match]",
        {f"requires.connectors {POST}": True},
        {f"requires.connectors {POST}": False},
    ),
    (LOG, "", {"execute log": False}, {"execute log": True}),
    (
        'id = "log"',
        'id = "note"',
        {"execute log": False, "execute note": True},
        {"execute log": True, "execute note": False},
    ),
    ('to = "${args.to}"\ncount', 'to = "boss"\ncount', {"execute send: inputs": True}, {"execute send: inputs": True}),
    ("copies = 1", "copies = 1.0", {"execute log: inputs": True}, {"execute log: inputs": True}),
    ("copies = 1", "copies = true", {"execute log: inputs": True}, {"execute log: inputs": True}),
    ("copies = 1", 'copies = "1"', {"execute log: inputs": True}, {"execute log: inputs": True}),
    ("copies = 1", "copies = 0x1 # one", {}, {}),
    ('type = "integer"', 'type = "number"', {"inputs count: type": True}, {"inputs count: type": True}),
    (
        "required = false\n\n[approval]",
        "\n[approval]",
        {"inputs count: required": False},
        {"inputs count: required": True},
    ),
    (
        "[approval]",
        '[[inputs]]\nname = "cc"\ntype = "string"\ndescription = "x"\n\n[approval]',
        {"inputs cc": True},
        {"inputs cc": False},
    ),
    ('version = "1.2.0"\nsource', 'version = "9.0.0"\nsource', {"version": False}, {"version": False}),
    ("mail/actions/send-email@1.2.0", "mail/x@1.2.0", {"source": False}, {"source": False}),
    ('intent = "send an email"', 'intent = "post it"', {"intent": False}, {"intent": False}),
    ("Sends it.", "Sends it now.", {"body": False}, {"body": False}),
    ('"How many."', '"How many?"', {"inputs count: description": False}, {"inputs count: description": False}),
    (
        '"Who gets it."',
        '"Who gets it."\nlabel = "To"\nmultiline = true',
        {"inputs to: label": True, "inputs to: multiline": False},
        {"inputs to: label": True, "inputs to: multiline": False},
    ),
    ('name = "send-email"', 'name = "send-mail"', {"name": True}, {"name": True}),
    ("[match]", "# a word\n[match]", {}, {}),
]


@pytest.mark.parametrize(
    ("old", "new", "there", "back"), CHANGES, ids=[f"{n}-{row[1][:30]!r}" for n, row in enumerate(CHANGES)]
)
def test_each_change_in_the_table_widens_the_action_or_not_as_the_table_says(
    action_text: Text, old: str, new: str, there: dict[str, bool], back: dict[str, bool]
) -> None:
    """The table's rows are tried in both directions, and only the changed place is reported."""
    more = (
        (('"get_draft"]', '"get_draft", "get_drafts"]'),) if "get_drafts" in new and "capab" not in str(there) else ()
    )
    before, after = read(action_text(*WHOLE, *more)), read(action_text(*WHOLE, *more, (old, new)))

    assert told(before, after) == there
    assert told(after, before) == back


def test_removing_an_approval_or_a_preview_widens_an_action(action_text: Text) -> None:
    """A preview requires an approval, so it is removed first. Adding a preview needs consent as well."""
    whole = read(action_text(*WHOLE))
    start = action_text(*WHOLE).index("[approval.preview]")
    end = action_text(*WHOLE).index("+++\n\n# Send")
    preview = action_text(*WHOLE)[start:end]
    seen_less = read(action_text(*WHOLE, (preview, "")))
    ungated = read(
        action_text(*WHOLE, (preview, ""), ("required = true", "required = false"), ("undo_window_s = 30", ""))
    )

    assert told(whole, seen_less) == {"approval.preview": True}
    assert told(seen_less, whole) == {"approval.preview": True}
    assert told(whole, ungated) == {
        "approval.required": True,
        "approval.preview": True,
        "approval.undo_window_s": True,
    }
    assert told(ungated, seen_less) == {"approval.required": False, "approval.undo_window_s": False}


def test_reordering_steps_widens_an_action(action_text: Text) -> None:
    """The order of effects can matter."""
    text = action_text(*WHOLE)
    moved = text.replace(LOG, "").replace('[[execute]]\nid = "send"', LOG + '[[execute]]\nid = "send"')

    assert told(read(text), read(moved)) == {"execute: order": True}


def test_reordering_connectors_widens_an_action(action_text: Text) -> None:
    """Any change of the connectors' text or order needs consent."""
    after = read(action_text(*WHOLE, ("[match]", SECOND + "[match]")))
    before = read(action_text(*WHOLE, ("[[requires.connectors]]", SECOND + "[[requires.connectors]]")))

    assert told(before, after) == {"requires.connectors: order": True}


def test_a_new_action_file_is_a_single_change_that_widens(action_text: Text) -> None:
    """The consent shows the whole file beside it."""
    (change,) = changes(None, read(action_text()))

    assert change == Change(where="file", before=None, after="send-email 1.2.0", widens=True)


def test_a_change_has_the_old_and_the_new_value(action_text: Text) -> None:
    """Both are spelled as in the file."""
    (change,) = changes(read(action_text(*WHOLE)), read(action_text(*WHOLE, ('"10m"', '"1h"'))))

    assert (change.where, change.before, change.after) == ("approval.expires_in (seconds)", "600", "3600")


@pytest.mark.parametrize("same", [0, 500, 5000])
def test_truncated_texts_of_a_change_still_show_the_difference(action_text: Text, same: int) -> None:
    """The excerpt is around the difference, and a mark says how much is left out."""
    before = read(action_text(("Sends it.", "x" * same + "before" + "y" * 9000)))
    after = read(action_text(("Sends it.", "x" * same + "after" + "y" * 9000)))
    (change,) = changes(before, after)

    assert change.before is not None
    assert change.after is not None
    assert "before" in change.before
    assert "after" in change.after
    assert change.before.endswith(" more characters)")
    assert len(change.before) <= MAX_CHANGE_CHARACTERS
    assert change.before.startswith("(the same for ") == (same > 0)


def test_hostile_text_is_not_escaped_in_a_change(action_text: Text) -> None:
    """Every surface escapes text when it displays it."""
    (change,) = changes(read(action_text()), read(action_text(("Sends it.", "Sends\u200d it."))))

    assert change.after is not None
    assert "Sends\u200d it." in change.after


# Laws

_texts = st.sampled_from(["a", "b", "c\nd"])
_inputs = st.dictionaries(
    st.sampled_from(["to", "id"]), st.sampled_from(["${args.x}", 1, 1.0, True, "1", [1], {"a": 1}])
)
_steps = st.lists(
    st.builds(
        StepSpec,
        id=st.sampled_from(["one", "two", "three"]),
        connector=st.sampled_from([MAIL, POST]),
        op=st.sampled_from(["send", "post"]),
        idempotent=st.booleans(),
        inputs=_inputs,
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda step: step.id,
)
_connectors = st.lists(
    st.builds(
        RequiredConnector,
        name=st.sampled_from([MAIL, POST]),
        version=st.sampled_from(["1.0.0", "2.0.0"]),
        hash=st.sampled_from([PIN, OTHER_PIN]),
        capabilities=st.sampled_from([("send",), ("send", "post"), ("post", "send")]),
        identity=st.sampled_from([None, "home", "work"]),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda connector: connector.name,
)
_specs = st.lists(
    st.builds(
        InputSpec,
        name=st.sampled_from(["x", "y"]),
        type=st.sampled_from(["string", "integer"]),
        description=_texts,
        required=st.booleans(),
        label=st.none() | _texts,
        multiline=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda spec: spec.name,
)
_previews = st.none() | st.builds(
    PreviewRule,
    connector=st.sampled_from([MAIL, POST]),
    op=st.sampled_from(["get", "list"]),
    inputs=_inputs,
    render=st.dictionaries(st.sampled_from(["To", "Text"]), st.sampled_from(["a", "b.0"]), min_size=1),
    multiline=st.sampled_from([frozenset(), frozenset({"Text"})]),
)


def _as_tuples(connectors: list[Any], steps: list[Any], inputs: list[Any], **fields: Any) -> ActionFile:
    return ActionFile(
        name="a",
        text="the text",
        digest="sha256:" + "0" * 64,
        connectors=tuple(connectors),
        steps=tuple(steps),
        inputs=tuple(inputs),
        **fields,
    )


FILES = st.builds(
    _as_tuples,
    version=st.sampled_from(["1.0.0", "1.0.1"]),
    source=st.none() | st.just("hub://a/b@1.0.0"),
    intent=_texts,
    connectors=_connectors,
    steps=_steps,
    inputs=_specs,
    approval=st.builds(
        ApprovalRule,
        required=st.booleans(),
        expires_in_s=st.sampled_from([60, 900]),
        irreversible=st.booleans(),
        undo_window_s=st.sampled_from([0, 10]),
    ),
    preview=_previews,
    body=_texts,
)
PROSE = ("version", "source", "intent", "body")
PROSE_OF_INPUTS = (": description", ": multiline")


def is_prose(change: Change) -> bool:
    """Return whether the change is in text that only a model reads, not in a rule."""
    is_of_input = change.where.startswith("inputs ") and change.where.endswith(PROSE_OF_INPUTS)
    return change.where in PROSE or is_of_input


def widens(before: ActionFile, after: ActionFile) -> bool:
    """Return whether a person is asked."""
    return any(change.widens for change in changes(before, after))


def beside_prose(action: ActionFile) -> bytes:
    """Return everything in a file except prose, in one spelling that keeps types apart."""
    bare = msgspec.structs.replace(
        action,
        version="",
        source=None,
        intent="",
        body="",
        inputs=tuple(
            msgspec.structs.replace(spec, description="", multiline=False)
            for spec in sorted(action.inputs, key=lambda spec: spec.name)
        ),
    )
    rendered = None if action.preview is None else list(action.preview.render.items())
    return msgspec.json.encode([msgspec.to_builtins(bare, order="deterministic"), rendered])


@given(FILES)
def test_an_action_file_compared_with_itself_has_no_changes(action: ActionFile) -> None:
    """Such a comparison asks for no consent either."""
    assert changes(action, action) == ()


@given(FILES, FILES)
def test_every_difference_other_than_prose_is_reported(before: ActionFile, after: ActionFile) -> None:
    """Prose is text that only a model reads. It never widens, and both sides of a reported change differ."""
    found = changes(before, after)

    assert any(not is_prose(change) for change in found) == (beside_prose(before) != beside_prose(after))
    for change in found:
        assert change.before != change.after
        assert not (is_prose(change) and change.widens)


@given(FILES, FILES, FILES)
def test_changed_prose_does_not_hide_a_change_that_widens(
    before: ActionFile, after: ActionFile, other: ActionFile
) -> None:
    """A widening change is found whatever prose changes at the same time."""
    dressed = msgspec.structs.replace(
        after, version=other.version, source=other.source, intent=other.intent, body=other.body
    )

    assert [change for change in changes(before, after) if change.widens] == [
        change for change in changes(before, dressed) if change.widens
    ]


@given(FILES, FILES)
def test_the_reverse_of_a_change_that_needs_no_consent_widens_unless_only_prose_changed(
    before: ActionFile, after: ActionFile
) -> None:
    """Undoing a change that needs no consent does need one, unless only prose changed."""
    found = changes(before, after)
    if any(not is_prose(change) for change in found) and not widens(before, after):
        assert widens(after, before)


@given(FILES, FILES, FILES)
def test_two_successive_edits_that_each_widen_nothing_together_widen_nothing(
    first: ActionFile, second: ActionFile, third: ActionFile
) -> None:
    """Two edits that do not widen cannot be combined into one that does."""
    if not widens(first, second) and not widens(second, third):
        assert not widens(first, third)


# What a person is asked


def manifests(pin: ConnectorPin) -> ConnectorManifest:
    """Return one of two connectors, one of which needs a password."""
    if pin.name not in (str(MAIL), str(POST)):
        raise AileronError(FailureClass.NOT_FOUND, f"{pin} is not installed")
    need = CredentialNeed(kind="basic", scope="Send mail")
    hosts = (HostPort("mail.example.com", 465), HostPort("api.example.com", 443))
    if pin.name == str(MAIL):
        return ConnectorManifest(name=MAIL, version=pin.version, hosts=hosts, credential=need)
    return ConnectorManifest(name=POST, version=pin.version, hosts=hosts[1:])


def test_a_consent_contains_the_whole_action_file_and_what_the_action_can_reach(action_text: Text) -> None:
    """The consent lists each host and kind of credential once, for all connectors of the file."""
    before, after = read(action_text()), read(action_text(("[match]", SECOND + "[match]")))
    consent = consent_of(before, after, manifests=manifests, install=True, replace=True)

    assert (consent.name, consent.text, consent.before) == ("send-email", after.text, before.digest)
    assert consent.changes == changes(before, after)
    assert consent.reaches == ("api.example.com:443", "mail.example.com:465")
    assert consent.credentials == ("basic: Send mail",)
    assert (consent.install, consent.replace) == (True, True)
    assert consent_of(None, after, manifests=manifests, install=False, replace=False).before is None
    assert subject_digest(consent) == subject_digest(msgspec.convert(msgspec.to_builtins(consent), type(consent)))
    assert canonical_json(msgspec.to_builtins(consent))


def test_an_action_file_that_needs_a_missing_connector_cannot_be_approved(action_text: Text) -> None:
    """A consent could not show what that connector reaches."""
    text = action_text(("acme/mail", "acme/other"))
    assert (
        refusal_of(consent_of, None, read(text), manifests=manifests, install=True, replace=False).failure_class
        is FailureClass.NOT_FOUND
    )
