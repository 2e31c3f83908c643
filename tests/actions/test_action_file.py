"""Parsing of an action file: which texts are accepted, and which are refused with a line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import bind_placeholders, input_schema, parse_action
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile

Text = Callable[..., str]
PIN = "sha256:" + "ab" * 32
OTHER_PIN = "sha256:" + "cd" * 32
POST = "github://acme/post"
RENDER = """[approval.preview.render]
To = "message.headers.To"
"Subject line" = "...headers.Subject"
First = "parts.0.body"
"""
PREVIEW = (
    ('["send_email"]', '["send_email", "get_draft"]'),
    (
        'expires_in = "10m"\n',
        'expires_in = "10m"\nundo_window_s = 30\n\n[approval.preview]\nop = "get_draft"\nmultiline = ["First"]\n\n'
        '[approval.preview.inputs]\nid = "${args.to}"\ndeep = {a = ["${args.count}", 1]}\n\n' + RENDER,
    ),
)
UNBOUND = ("hash = " + f'"{PIN}"', 'hash = "sha256:bound-at-release"')


def parse(text: str) -> ActionFile:
    """Parse the text as an installed file."""
    return parse_action(text, file="send-email.md")


def refusal(text: str) -> str:
    """Return the message with which the file is refused."""
    with pytest.raises(AileronError) as caught:
        parse(text)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert caught.value.failure.boundary is Boundary.ACTION
    return caught.value.failure.message


def test_every_field_of_an_action_file_is_read(action_text: Text) -> None:
    """Each field becomes a value, and the body is everything after the frontmatter, unchanged."""
    action = parse(action_text())

    assert (action.name, action.version, action.intent) == ("send-email", "1.2.0", "send an email")
    assert action.source == "github://acme/mail/actions/send-email@1.2.0"
    assert [(str(c.name), c.version, c.hash, c.capabilities) for c in action.connectors] == [
        ("github://acme/mail", "1.2.0", PIN, ("send_email",))
    ]
    assert [(s.id, s.op, s.idempotent, s.inputs["count"]) for s in action.steps] == [
        ("send", "send_email", False, "${args.count}")
    ]
    assert [(i.name, i.type, i.required) for i in action.inputs] == [
        ("to", "string", True),
        ("count", "integer", False),
    ]
    assert (action.approval.required, action.approval.expires_in_s, action.approval.irreversible) == (True, 600, True)
    assert action.body == "\n# Send an email\n\nSends it.\n"
    assert action.text == action_text()


def test_an_action_file_with_only_the_required_keys_is_valid() -> None:
    """The defaults: no source, no inputs, no approval, and a step that is never retried."""
    action = parse(
        '+++\nname = "a"\nversion = "0.0.0-dev"\n[match]\nintent = "x"\n[[requires.connectors]]\n'
        f'name = "hub://a/b"\nversion = "1.0.0"\nhash = "{PIN}"\ncapabilities = ["go"]\n'
        '[[execute]]\nid = "s"\nconnector = "hub://a/b"\nop = "go"\n+++'
    )

    assert (action.source, action.inputs, action.body) == (None, (), "")
    assert (action.steps[0].idempotent, action.approval.required, action.approval.expires_in_s) == (False, False, 900)


def test_the_digest_of_an_action_file_covers_every_byte(action_text: Text) -> None:
    """A changed description, comment or line ending gives another digest."""
    texts = [
        action_text(),
        action_text(("Sends it.", "Sends it!")),
        action_text(('op = "send_email"', 'op = "send_email" # really')),
        action_text().replace("\n", "\r\n"),
    ]

    assert len({parse(text).digest for text in texts}) == len(texts)
    assert parse(texts[3]).steps == parse(texts[0]).steps


def test_tags_are_read_in_order(action_text: Text) -> None:
    """A file can have up to eight tags of at most 32 characters; without the key it has none."""
    tags = ("mail", "work_2", "a" * 32, *(f"t-{number}" for number in range(5)))

    assert parse(action_text()).tags == ()
    assert parse(action_text(("[[requires", f"tags = {list(tags)}\n\n[[requires"))).tags == tags


WRONG = [
    (
        "[[requires",
        "tags = []\n\n[[requires",
        ':6: tags is empty; expected 1 to 8, such as ["mail"], or leave out tags',
    ),
    ("[[requires", f"tags = {[f't{n}' for n in range(9)]}\n\n[[requires", ":6: tags has 9 entries; expected 1 to 8"),
    ("[[requires", 'tags = ["Mail"]\n\n[[requires', ":6: invalid tag 'Mail': use lower-case"),
    ("[[requires", f'tags = ["{"a" * 33}"]\n\n[[requires', f":6: invalid tag '{'a' * 33}'"),
    ("[[requires", 'tags = ["a", "a"]\n\n[[requires', ":6: tags has 'a' twice; write each once"),
    ("+++\nname", "---\nname", ":1: the first line is not +++"),
    ("+++\n\n# Send", "\n# Send", "no second +++ line"),
    ('name = "send-email"', 'nmae = "send-email"', ":2: unknown key 'nmae'; did you mean 'name'?"),
    ('name = "send-email"', 'name = "Send Email"', ":2: name 'Send Email' is not lower-case letters"),
    ('name = "send-email"', 'name = "../evil"', ":2: name '../evil' is not"),
    ('name = "send-email"', 'name = "a\\u200bb"', ":2: 'name' holds a hidden character: U+200B ZERO WIDTH SPACE"),
    ('version = "1.2.0"\nsource', 'version = "v1.2.0"\nsource', ":3: version: 'v1.2.0' is not a SemVer version"),
    ('version = "1.2.0"\nhash', 'version = "^1.2"\nhash', ":8: version: '^1.2' is not a SemVer version"),
    ("send-email@1.2.0", "send-email", ":4: source: 'github://acme/mail/actions/send-email' has no version"),
    ('source = "github:', 'source = "ftp:', ":4: source: 'ftp://acme/mail/actions/send-email' has no known scheme"),
    ('name = "github://acme/mail"', 'name = "acme/mail"', ":7: name: 'acme/mail' has no known scheme"),
    (f'hash = "{PIN}"', "", ":6: missing key 'hash' (string) in [[requires.connectors]]"),
    (f'"{PIN}"', '"sha256:abc123..."', ":9: hash: 'sha256:abc123...' is not sha256: and 64"),
    (f'"{PIN}"', '"sha256:bound-at-release"', ":9: hash is the placeholder 'sha256:bound-at-release': install"),
    ('["send_email"]', "[]", ':10: capabilities is empty; expected at least 1, such as ["send_email"]'),
    ('["send_email"]', '["*"]', ":10: capability '*' is empty or a wildcard; name the operations"),
    (
        '["send_email"]',
        '["send_email", "send_email"]',
        ":10: capabilities has 'send_email' twice",
    ),
    ('["send_email"]', '"send_email"', ":10: 'capabilities' is a string; expected an array of strings"),
    ('["send_email"]', '["send_email"]\nidentity = "Me"', ":11: identity 'Me' is not lower-case letters"),
    ('["send_email"]', '["send_email"]\nidentity = "login/mail/me"', ":11: identity 'login/mail/me' is not"),
    ("[match]\nintent", "[match]\nintend", ":13: unknown key 'intend' in [match]; did you mean 'intent'?"),
    ('intent = "send an email"', 'intent = " "', ":13: intent is empty"),
    ('id = "send"', 'id = "Send it"', ":16: id 'Send it' is not lower-case"),
    (
        'connector = "github://acme/mail"',
        'connector = "github://acme/post"',
        ":17: step 'send': github://acme/post is not in",
    ),
    ('op = "send_email"', 'op = "send-email"', ":18: op 'send-email' is not a lower-case letter"),
    ("idempotent = false", 'idempotent = "no"', ":19: 'idempotent' is a string; expected a boolean"),
    ('"${args.to}"', '"${args.too}"', ":22: step 'send', key 'to': ${args.too} is not an input; inputs: to, count"),
    (
        '"${args.count}"',
        '"${list.id}"',
        ":23: step 'send', key 'count': ${list.id} is not an earlier step; earlier steps: none",
    ),
    ('"${args.count}"', '"$${args.to} ${"', ":23: step 'send', key 'count': '$${args.to} ${' has a '${'"),
    ('"${args.count}"', '["x", {a = "${args.zzz}"}]', "step 'send', key 'count': ${args.zzz} is not an input"),
    ('"${args.count}"', '{"${args.to}" = 1}', "reference in the name '${args.to}'"),
    ("From ${args.to}: hello", "${args.count} times", ":24: step 'send', key 'subject': input 'count' is optional"),
    ('to = "${args.to}"', '"a b" = 1', "step 'send': 'a b' is not an argument name"),
    ('type = "string"', 'type = "object"', 'input \'to\': schema and type = "array" or "object" go together'),
    ('name = "count"', 'name = "to"', "input 'to' is declared twice"),
    ('name = "count"', 'name = "Count"', ":32: name 'Count' is not a lower-case letter"),
    ('description = "How many."', 'description = "How\\nmany."', ":34: 'description' holds a hidden character: U+000A"),
    ('description = "How many."', 'description = ""', ":34: description is empty"),
    ("required = false", "multiline = true", ":35: multiline needs type = \"string\", but this is 'integer'"),
    ("required = true\nexpires", "expires", ":37: missing key 'required' (boolean) in [approval]"),
    ('"10m"', '"10"', ":39: expires_in: '10' is not a duration from 1s to 24h"),
    ('"10m"', '"25h"', ":39: expires_in: '25h' is not a duration from 1s to 24h"),
    ('"10m"', '"0s"', ":39: expires_in: '0s' is not a duration"),
    (
        "required = true",
        "required = true\nundo_window = 3",
        ":39: unknown key 'undo_window' in [approval]; did you mean",
    ),
    ("Sends it.", "Sends \u202eit.", ":44: a hidden character: U+202E RIGHT-TO-LEFT OVERRIDE"),
    ("Sends it.", "x" * 300_000, "at most 262144"),
    ("name = ", "name = [[[[[[[[[[[[[[[[[[", ":2: nested deeper than 16"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[f"{n}-{row[2][:40]}" for n, row in enumerate(WRONG)])
def test_a_mistake_in_an_action_file_is_reported_with_its_line(
    action_text: Text, old: str, new: str, message: str
) -> None:
    """Each mistake in an otherwise good file is refused by name, with its line."""
    assert message in refusal(action_text((old, new)))


def test_the_preview_and_the_hold_of_an_action_file_are_read(action_text: Text) -> None:
    """The preview has its one connector, and its inputs and lines in the order of the file; the hold is read too."""
    action = parse(action_text(*PREVIEW))

    assert action.approval.undo_window_s == 30
    assert action.preview is not None
    assert (str(action.preview.connector), action.preview.op) == ("github://acme/mail", "get_draft")
    assert action.preview.inputs == {"id": "${args.to}", "deep": {"a": ["${args.count}", 1]}}
    assert list(action.preview.render.items()) == [
        ("To", "message.headers.To"),
        ("Subject line", "...headers.Subject"),
        ("First", "parts.0.body"),
    ]
    assert action.preview.multiline == {"First"}


def test_an_action_has_no_preview_and_no_hold_by_default(action_text: Text) -> None:
    """The file leaves both keys out."""
    assert parse(action_text()).preview is None
    assert parse(action_text()).approval.undo_window_s == 0


WRONG_PREVIEW = [
    ("undo_window_s = 30", "undo_window_s = 3601", ":40: undo_window_s = 3601 is not between 0 and 3600"),
    ("undo_window_s = 30", "undo_window_s = -1", ":40: undo_window_s = -1 is not between 0"),
    ("undo_window_s = 30", 'undo_window_s = "30s"', ":40: 'undo_window_s' is a string; expected an integer"),
    ("undo_window_s = 30", "undo_window_s = true", ":40: 'undo_window_s' is a boolean; expected an integer"),
    (
        "required = true",
        "required = false",
        ":40: undo_window_s holds an approved run, so it needs required = true",
    ),
    (
        'required = true\nexpires_in = "10m"\nundo_window_s = 30',
        "required = false",
        ":40: [approval.preview] is shown to the approver, so it needs required = true",
    ),
    ('op = "get_draft"', "", ":42: missing key 'op' (string) in [approval.preview]"),
    ('op = "get_draft"', 'op = "Get"', ":43: op 'Get' is not a lower-case letter"),
    (
        'op = "get_draft"',
        'op = "list_drafts"',
        ":43: preview: op 'list_drafts' is not in the capabilities of github://acme/mail; listed: send_email, get_draft",
    ),
    ('op = "get_draft"', 'op = "send_email"', ":43: preview: op 'send_email' is a step of this action"),
    (
        'op = "get_draft"',
        'op = "get_draft"\nconnector = "github://acme/post"',
        ":44: preview: github://acme/post is not in [[requires.connectors]]; listed: github://acme/mail",
    ),
    ('op = "get_draft"', 'op = "get_draft"\nconnector = "post"', ":44: connector: 'post' has no known scheme"),
    (
        '"${args.to}"\ndeep',
        '"${args.too}"\ndeep',
        ":47: preview, key 'id': ${args.too} is not an input; inputs: to, count",
    ),
    ('"${args.to}"\ndeep', '"x${args.count}"\ndeep', ":47: preview, key 'id': input 'count' is optional"),
    (
        '"${args.to}"\ndeep',
        '"${send.id}"\ndeep',
        ":47: preview, key 'id': ${send.id} is not an earlier step; earlier steps: none",
    ),
    ('id = "${args.to}"\ndeep', '"a b" = 1\ndeep', ":47: preview: 'a b' is not an argument name"),
    (
        'multiline = ["First"]',
        'multiline = ["Second"]',
        ":44: multiline: 'Second' is not a label of render; labels: To,",
    ),
    ('multiline = ["First"]', 'multiline = "First"', ":44: 'multiline' is a string; expected an array of strings"),
    ('"message.headers.To"', "1", ":51: label 'To': the path into the answer must be a string"),
    ('"message.headers.To"', '""', ":51: label 'To': '' is not a path into the answer"),
    ('"message.headers.To"', '"..headers"', ":51: label 'To': '..headers' is not a path"),
    ('"message.headers.To"', '"...."', ":51: label 'To': '....' is not a path"),
    ('"message.headers.To"', '"a..b"', ":51: label 'To': 'a..b' is not a path"),
    ('"message.headers.To"', '"a."', ":51: label 'To': 'a.' is not a path"),
    ('"message.headers.To"', '"a.\\nb"', ":51: label 'To': 'a.\\nb' is not a path"),
    ('"message.headers.To"', '"a\\u202eb"', ":51: 'To' holds a hidden character: U+202E"),
    ('"message.headers.To"', f'"{"a." * 16}b"', ":51: label 'To': 'a.a."),
    ('"message.headers.To"', f'"{"a" * 513}"', "is not a path into the answer"),
    ('To = "mess', '"" = "mess', ":51: label '' must have 1 to 64 characters, without blanks at the ends"),
    ('To = "mess', '" To" = "mess', ":51: label ' To' must have 1 to 64"),
    ('To = "mess', f'"{"T" * 65}" = "mess', "must have 1 to 64 characters"),
    ('To = "mess', '"T\\u200bo" = "mess', ":51: 'T\\u200bo' holds a hidden character: U+200B"),
    ('To = "mess', 'To.x = "mess', ":51: label 'To': the path into the answer must be a string"),
    ("required = false\n\n[approval]", "requird = false\n\n[approval]", "unknown key 'requird'"),
    ('op = "get_draft"', 'op = "get_draft"\nargs = {}', ":44: unknown key 'args' in [approval.preview]"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), WRONG_PREVIEW, ids=[f"{n}-{row[2][:40]}" for n, row in enumerate(WRONG_PREVIEW)]
)
def test_a_mistake_in_a_preview_is_reported_with_its_line(action_text: Text, old: str, new: str, message: str) -> None:
    """Each mistake in an otherwise good preview is refused by name, with its line."""
    assert message in refusal(action_text(*PREVIEW, (old, new)))


def test_a_preview_has_1_to_32_lines(action_text: Text) -> None:
    """An empty preview would show nothing, and a longer one would not fit on a screen."""
    start = RENDER.index("To =")
    for count, is_fine in ((0, False), (1, True), (32, True), (33, False)):
        lines = "\n".join(f'"line {number}" = "a.{number}"' for number in range(count)) + "\n"
        text = action_text(*PREVIEW, (RENDER[start:], lines), ('multiline = ["First"]\n', ""))
        if is_fine:
            assert parse(text).preview is not None
        else:
            found = f"render has {count} entries; expected 1 to 32" if count else "render is empty; expected 1 to 32"
            assert found in refusal(text)


def test_the_connector_of_a_preview_must_be_named_if_there_are_two(action_text: Text) -> None:
    """An action with two required connectors must name the preview's: both could have an operation of that name."""
    second = f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.0.0"\nhash = "{PIN}"\ncapabilities = ["send_email"]\n\n'
    both = (*PREVIEW, ("[match]", second + "[match]"))
    named = f'op = "send_email"\nconnector = "{POST}"'

    assert "preview: name its connector, one of github://acme/mail, github://acme/post" in refusal(action_text(*both))
    found = parse(action_text(*both, ('op = "get_draft"', named))).preview
    assert found is not None
    assert (str(found.connector), found.op) == (POST, "send_email")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[[requires.connectors]]", "connector github://acme/mail is listed twice"),
        ("[[execute]]", "step id 'send' is used twice"),
    ],
)
def test_a_duplicate_connector_or_step_id_is_refused(action_text: Text, table: str, message: str) -> None:
    """A connector has one pin in a file, and an id names one step."""
    text = action_text()
    start = text.index(table)
    block = text[start : text.index("\n\n", start)] + "\n\n"

    assert message in refusal(text.replace(block, block + block))


def test_a_duplicate_key_is_refused(action_text: Text) -> None:
    """Otherwise the second value of the key would win silently."""
    assert ":3: not TOML" in refusal(action_text(('name = "send-email"\n', 'name = "send-email"\nname = "b"\n')))


def test_the_first_line_of_three_pluses_ends_the_frontmatter(action_text: Text) -> None:
    """The fence counts even inside a multi-line string: where the frontmatter ends does not depend on parsing it."""
    assert "not TOML" in refusal(action_text(('intent = "send an email"', 'intent = """\n+++\n"""')))


def test_a_hash_placeholder_is_replaced_by_the_only_installed_pin(action_text: Text) -> None:
    """Only the hash's placeholder changes; the rest of the file stays byte for byte."""
    bound = bind_placeholders(action_text(UNBOUND), file="a.md", pins=lambda name, version: [OTHER_PIN])

    assert bound == action_text((PIN, OTHER_PIN))
    assert parse(bound).connectors[0].hash == OTHER_PIN


def test_a_file_without_a_placeholder_stays_unchanged(action_text: Text) -> None:
    """Pins are not looked up for it."""
    assert bind_placeholders(action_text(), file="a.md", pins=lambda name, version: []) == action_text()


def test_a_hash_placeholder_is_refused_if_no_pin_or_several_pins_are_installed(action_text: Text) -> None:
    """A person must choose between two installed versions; a connector that is not installed has no pin."""
    with pytest.raises(AileronError, match="is not installed: aileron connector install") as missing:
        bind_placeholders(action_text(UNBOUND), file="a.md", pins=lambda name, version: [])
    with pytest.raises(AileronError, match=f"more than once; write the hash of the one you mean: {PIN}, {OTHER_PIN}"):
        bind_placeholders(action_text(UNBOUND), file="a.md", pins=lambda name, version: [PIN, OTHER_PIN])

    assert missing.value.failure.failure_class is FailureClass.NOT_FOUND


def test_a_placeholder_outside_a_hash_is_not_replaced(action_text: Text) -> None:
    """A description may quote the placeholder, so only the value of a hash counts."""
    text = action_text(UNBOUND, ("Sends it.", 'Source has "sha256:bound-at-release".'))

    with pytest.raises(AileronError, match="also written outside a connector's hash"):
        bind_placeholders(text, file="a.md", pins=lambda name, version: [PIN])


def test_the_schema_for_a_model_has_names_types_and_descriptions(action_text: Text) -> None:
    """The JSON Schema of the inputs also says which are required, and allows no others."""
    assert input_schema(parse(action_text())) == {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "Who gets it."},
            "count": {"type": "integer", "description": "How many."},
        },
        "required": ["to"],
        "additionalProperties": False,
    }


@given(st.text(max_size=400))
def test_any_frontmatter_is_parsed_or_refused(text: str) -> None:
    """Every text between the fences is parsed, or refused with an AileronError."""
    for frame in ("{}", "+++\n{}\n+++\nbody"):
        try:
            parse(frame.format(text))
        except AileronError:
            continue


_pieces = st.sampled_from(["+++\n", '"', "[", "]", "\n", "=", "${args.to}", "${", "{", "#", "\u202e", "\x00", "'''"])


@given(cut=st.tuples(st.integers(0, 900), st.integers(0, 30)), piece=_pieces)
def test_a_mutated_file_is_parsed_or_refused(action_text: Text, cut: tuple[int, int], piece: str) -> None:
    """A valid file with a piece cut out and another put in raises AileronError or nothing."""
    text = action_text()
    start, length = cut
    with contextlib.suppress(AileronError):
        parse(text[:start] + piece + text[start + length :])
