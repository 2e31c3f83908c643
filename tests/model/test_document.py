"""The strict TOML reader that action files and connector manifests share."""

from __future__ import annotations

import contextlib
import time
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.model.document import MAX_DOCUMENT_BYTES, Field, Kind, Table, read_document, rows
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.text import hidden_at

SCHEMA = {
    "name": Field(Kind.STRING, required=True),
    "count": Field(Kind.INTEGER, bounds=range(10)),
    "tags": Field(Kind.STRINGS),
    "level": Field(Kind.STRING, choices=("high", "low")),
    "part": Field(
        Kind.TABLES,
        fields={
            "id": Field(Kind.STRING, required=True),
            "quick": Field(Kind.BOOLEAN),
            "values": Field(Kind.FREE),
        },
    ),
    "deep": Field(Kind.TABLE, fields={"inner": Field(Kind.TABLE, fields={"x": Field(Kind.STRING)})}),
}


def read(text: str, first_line: int = 1) -> Table:
    """Read the document with this module's schema."""
    return read_document(text, SCHEMA, file="f.toml", boundary=Boundary.ACTION, first_line=first_line)


def refusal(text: str, first_line: int = 1) -> str:
    """Return the message with which the document is refused."""
    with pytest.raises(AileronError) as caught:
        read(text, first_line)
    assert caught.value.failure.failure_class == FailureClass.INVALID_REQUEST
    assert caught.value.failure.boundary == Boundary.ACTION
    return caught.value.failure.message


def test_each_accessor_returns_the_documents_value_or_the_default() -> None:
    """Every accessor returns the value that the document holds, or the default."""
    table = read(
        'name = "n"\ncount = 3\ntags = ["a", "b"]\n'
        '[[part]]\nid = "p"\nquick = true\n[part.values]\nx = [1, {y = 1.5}]\n[deep.inner]\nx = "z"\n'
    )

    (part,) = table.tables("part")
    assert (table.string("name"), table.integer("count", 0), table.strings("tags")) == ("n", 3, ("a", "b"))
    assert (part.string("id"), part.boolean("quick", False)) == ("p", True)
    assert part.free("values") == {"x": [1, {"y": 1.5}]}
    assert table.table("deep").table("inner").maybe_string("x") == "z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "n"\n\nnmae = "x"', "f.toml:3: unknown key 'nmae'; did you mean 'name'?"),
        (
            'name = "n"\nzzzzzz = 1',
            "f.toml:2: unknown key 'zzzzzz'; expected one of name, count, tags, level, part, deep",
        ),
        ("count = 1", "f.toml:1: missing key 'name' (string)"),
        (
            'name = "n"\n[[part]]\nid = "a"\n\n[[part]]\nquick = true',
            "f.toml:5: missing key 'id' (string) in [[part]]",
        ),
        (
            'name = "n"\n[[part]]\nid = "a"\n[[part]]\nid = "b"\nqick = true',
            "f.toml:6: unknown key 'qick' in [[part]]; did you mean 'quick'?",
        ),
        ("name = 5", "f.toml:1: 'name' is an integer; expected a string"),
        ('name = "n"\ncount = true', "f.toml:2: 'count' is a boolean; expected an integer"),
        ('name = "n"\ncount = 10', "f.toml:2: count = 10 is not between 0 and 9"),
        ('name = "n"\ncount = 0x' + "f" * 5000, "f.toml:2: count = a number of 2**53 or more is not between 0 and 9"),
        ('name = "n"\nlevel = "hihg"', "f.toml:2: level 'hihg' is not one of high, low; did you mean 'high'?"),
        ('name = "n"\nlevel = ""', "f.toml:2: level '' is not one of high, low"),
        ('name = "n"\ncount = "3"', "f.toml:2: 'count' is a string; expected an integer"),
        ('name = "n"\ntags = ["a", 1]', "f.toml:2: 'tags' is an array; expected an array of strings"),
        ('name = "n"\npart = {id = "x"}', "f.toml:2: 'part' is a table; expected an array of tables"),
        ('name = "n"\nname = "m"', "f.toml:2: not TOML: Cannot overwrite a value"),
        ('name = "n', "f.toml:1: not TOML: "),
        (
            'name = "a\\u202eb"',
            "f.toml:1: 'name' holds a hidden character: U+202E RIGHT-TO-LEFT OVERRIDE; remove it",
        ),
        ('# a\u200b comment\nname = "n"', "f.toml:1: a hidden character: U+200B ZERO WIDTH SPACE; remove it"),
        ('name = "a\\nb"', "f.toml:1: 'name' holds a hidden character: U+000A"),
        (
            'name = "n"\n[[part]]\nid="p"\n[part.values]\nwhen = 2020-01-01',
            "holds a date, which JSON cannot represent",
        ),
        ('name = "n"\n[[part]]\nid="p"\n[part.values]\nx = nan', "holds nan, which JSON cannot represent"),
        (
            'name = "n"\n[[part]]\nid="p"\nvalues.x = [9007199254740992]',
            "f.toml:4: 'x' holds a number of 2**53 or more",
        ),
        (
            'name = "n"\n[[part]]\nid="p"\nvalues.x = "\\u200b"',
            "f.toml:4: 'x' holds a hidden character: U+200B",
        ),
        ('name = "n"\n"na\\u006de" = 1', "f.toml:2: not TOML"),
        ("name = " + "1" * 5000, "f.toml:1: not TOML"),
    ],
)
def test_each_mistake_is_reported_with_file_line_and_fix(text: str, message: str) -> None:
    """The message also has what was found and what was expected."""
    assert message in refusal(text)


def test_line_numbers_count_from_the_beginning_of_the_whole_file() -> None:
    """The TOML of an action begins below the file's first line, and errors must give lines of the file."""
    assert refusal('name = "n"\nnmae = 1', first_line=2).startswith("f.toml:3: ")
    assert refusal('name = "n"\n= 1', first_line=2).startswith("f.toml:3: ")


def test_strings_and_comments_that_look_like_keys_do_not_shift_the_line() -> None:
    """Brackets, quotes and equal signs inside strings do not shift the line."""
    text = (
        'name = """\n[part]\nid = 1\n""\n"""\n'  # refused for its line end, but only after the unknown key
        'tags = [ # ] = [\n \'a="\', \n "b]",\n]\n'
        '[deep."inner"]\nx = "y"\nbad = 1\n'
    )

    assert refusal(text.replace('"""\n[part]\nid = 1\n""\n"""', '"n"')).startswith("f.toml:8: unknown key 'bad'")
    assert "f.toml:1: 'name' holds a hidden character" in refusal(text)


BOMBS = {
    "large": 'name = "' + "x" * MAX_DOCUMENT_BYTES + '"',
    "ten-megabytes": 'name = "' + "x" * (10 << 20) + '"',
    "a-hundred-thousand-keys": "".join(f"k{n} = 1\n" for n in range(100_000)),
    "the-same-key": 'name = "n"\n' * 20_000,
    "the-same-table": "[deep]\n" * 30_000,
    "many-tables": 'name = "n"\n' + '[[part]]\nid = "p"\n' * 13_000 + "x = 1\n",
    "deep-headers": "".join(f"[{'.'.join(['a'] * 16)}.k{n}]\n" for n in range(5_000)),
    "hexadecimal": 'name = "n"\ncount = 0x' + "f" * 200_000,
    "arrays": "name = " + "[" * 100_000,
    "inline": "name = " + "{a=" * 50_000,
    "dotted": ".".join(["a"] * 100_000) + " = 1",
    "header": "[" + ".".join(["a"] * 100_000) + "]",
    "keys": "a = 1\n" + "".join(f"k{n} = 1\n" for n in range(20_000)),
    "escapes": 'name = "' + "\\" * 200_000,
    "quotes": "name = '''" + "''x" * 60_000,
    "double-quotes": 'x = """' + '""x' * 60_000,
    "escaped-openings": '"""' + '\n\\"""' * 50_000,
    "lone-quotes": "x = '''\n" + "'\n" * 100_000,
    "escaped-quotes": 'x = "' + '\\"' * 100_000 + "\n",
    "escaped-end": 'x = """' + '\\"""' * 60_000 + "\\",
}


@given(
    st.lists(st.sampled_from(['"a"', "'b=['", '"""c\n]"""', "'''d\n#\n,'''", '"\\"]"', '""']), max_size=6), st.data()
)
def test_each_element_of_an_array_has_its_line(elements: list[str], data: st.DataObject) -> None:
    """Line ends, comments and strings that look like structure may stand between. Lines count from the document's start."""
    text, lines = 'name = "n"\ntags = [', []
    for element in elements:
        text += data.draw(st.sampled_from(["", " ", "\n", '\n  # , [ "x"\n', "\n\n"]))
        lines.append(10 + text.count("\n"))
        text += element + data.draw(st.sampled_from([",", " ,", "\n,", " # ]\n,"]))
    with contextlib.suppress(AileronError):  # a string of several lines is no plain text, and refused
        assert read(f"{text}\n]\n", first_line=10).element_lines("tags") == tuple(lines)
    table = read_document(
        f"{text}\n]\n", {**SCHEMA, "tags": Field(Kind.VALUES)}, file="f", boundary=Boundary.ACTION, first_line=10
    )
    assert table.element_lines("tags") == tuple(lines)
    assert [table.refuse("tags", "x", at).failure.details["line"] for at in range(len(lines))] == lines


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_document_bomb_is_refused_quickly(text: str) -> None:
    """Documents made to exhaust the parser are refused within a second or two of processor time."""
    started = time.process_time()
    refusal(text)
    assert time.process_time() - started < 5  # seen: 0.3 s at most; quadratic handling of the dotted key takes minutes


def test_a_document_can_be_nested_up_to_the_limit() -> None:
    """Sixteen levels are fine, seventeen are not."""
    base = 'name = "n"\n[[part]]\nid = "p"\nvalues.x = '

    assert read(base + "[" * 16 + "]" * 16)
    assert "nested deeper than 16 levels" in refusal(base + "[" * 17 + "]" * 17)


@given(st.text(max_size=300))
def test_any_text_is_read_as_a_document_or_refused(text: str) -> None:
    """AileronError is the only exception, whatever the text."""
    with contextlib.suppress(AileronError):
        read(text)


_keys = st.text("abc-\"' .=[]#", min_size=1, max_size=4)


def _spelled(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@example(before=["="], blank=0)  # mismatched by possessive quantifiers before Python 3.11.5
@given(before=st.lists(_keys, max_size=5, unique=True), blank=st.integers(0, 3))
def test_an_unknown_key_is_reported_at_its_own_line(before: list[str], blank: int) -> None:
    """Quoted keys and multi-line values before it do not shift the line."""
    values = "".join(f"{_spelled(key)} = ['''\n=[\"\n''', 2] # ]\n" for key in before)
    text = f'name = "n"\n[[part]]\nid = "p"\n[part.values]\n{values}' + "\n" * blank + "[deep]\nbad = 1\n"
    assert {"name", "part", "deep"} == set(tomllib.loads(text))

    line = text[: text.index("bad = 1")].count("\n") + 1
    assert refusal(text).startswith(f"f.toml:{line}: unknown key 'bad' in [deep]")


def test_rows_of_a_document_schema_list_each_key_under_the_header_of_its_table() -> None:
    """The tests compare the reference pages with these rows."""
    assert [(row.table, row.key, row.field.kind.value, row.field.required) for row in rows(SCHEMA)] == [
        ("", "name", "string", True),
        ("", "count", "integer", False),
        ("", "tags", "array of strings", False),
        ("", "level", "string", False),
        ("[[part]]", "id", "string", True),
        ("[[part]]", "quick", "boolean", False),
        ("[[part]]", "values", "table of values", False),
        ("[deep.inner]", "x", "string", False),
    ]


@pytest.mark.parametrize("text", ["plain", "Grüße", "日本語", "עברית", "emoji 😀 ❤️", "a b", "non\u00a0breaking"])
def test_visible_text_is_found_to_have_no_hidden_characters(text: str) -> None:
    """Letters of any script, spaces and emoji pass."""
    assert hidden_at(text) is None


@pytest.mark.parametrize(
    "char",
    [
        *("\x00", "\x1b", "\x7f", "\x85", "\u200b", "\u202e"),
        *("\u2066", "\u2028", "\ufeff", "\u3164", "\ue000"),
    ],
)
def test_invisible_characters_are_found(char: str) -> None:
    """Controls, overrides, zero width, fillers and private use are found in names and in prose."""
    assert hidden_at(f"a{char}b") == 1
    assert hidden_at(f"a{char}b", prose=True) == 1


@pytest.mark.parametrize(
    "char", ["\U000e0041", "\U000e0100", "\ufe01", "\u2800", "\u061c", "\u2065", "\U0001d159", "\U00013441"]
)
def test_characters_that_could_hide_a_message_are_found(char: str) -> None:
    """Tags, variation selectors and blanks can encode text that only a program reads."""
    assert hidden_at(f"a{char}b") == 1
    assert hidden_at(f"a{char}b", prose=True) == 1


@pytest.mark.parametrize("char", ["\n", "\t", "\u200d", "\u200f"])
def test_prose_can_contain_line_breaks_and_joiners_and_a_name_cannot(char: str) -> None:
    """A name may not contain them."""
    assert hidden_at(f"a{char}b", prose=True) is None
    assert hidden_at(f"a{char}b") == 1
