"""A file of cases: its keys, and the line of each mistake."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aileron.connector_tests.cases import Cases, parse_cases
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "connector-cases.md"
CASES = """\
hosts = ["notes.example.com:443"]

[[case]]
name = "the newest first"
op = "list_notes"
args = { limit = 2 }
output = { notes = [{ id = 1 }] }

[[case.exchange]]
method = "GET"
path = "/notes?limit=2"
credential = "api_key"
json = [{ id = 1 }]

[[case]]
name = "full"
op = "add_note"
failure = "external_api_error"
details = { status = 507 }

[[case.exchange]]
method = "POST"
path = "/notes"
host = "other.example.com:8443"
sends = { text = "x" }
status = 507
headers = { Retry-After = "3" }
body = "no room"
"""


def parsed(*replaced: tuple[str, str]) -> Cases:
    """Return CASES with replacements, parsed; each `old` must be there."""
    text = CASES
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse_cases(text, file="cases.toml")


def refusal(*replaced: tuple[str, str]) -> str:
    """Return the message with which the cases are refused."""
    with pytest.raises(AileronError) as caught:
        parsed(*replaced)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    return caught.value.failure.message


def test_every_key_of_a_case_is_read() -> None:
    """Every key is read, and missing keys have defaults."""
    cases = parsed()
    newest, full = cases.cases

    assert cases.hosts == (HostPort("notes.example.com", 443),)
    assert (newest.op, newest.args, newest.output, newest.failure) == (
        "list_notes",
        {"limit": 2},
        {"notes": [{"id": 1}]},
        None,
    )
    (asked,) = newest.exchanges
    assert (asked.status, asked.host, asked.sends) == (200, None, msgspec.UNSET)
    assert (asked.headers, asked.body) == ((("Content-Type", "application/json"),), b'[{"id": 1}]')
    assert (full.failure, full.details, full.output) == (
        FailureClass.EXTERNAL_API_ERROR,
        {"status": 507},
        msgspec.UNSET,
    )
    (asked,) = full.exchanges
    assert (asked.host, asked.headers, asked.body) == (
        HostPort("other.example.com", 8443),
        (("Retry-After", "3"),),
        b"no room",
    )
    assert asked.sends == {"text": "x"}


def test_a_header_may_appear_twice() -> None:
    """The two values form an array."""
    case = parsed(('{ Retry-After = "3" }', '{ Set-Cookie = ["a=1", "b=2"] }')).cases[1]

    assert case.exchanges[0].headers == (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))


def test_null_can_be_expected_with_the_key_output_json() -> None:
    """TOML has no null."""
    case = parsed(("output = { notes = [{ id = 1 }] }", """output_json = '{"next": null}'""")).cases[0]

    assert case.output == {"next": None}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("op = ", "opp = ", "cases.toml:5: unknown key 'opp' in [[case]]; did you mean 'op'?"),
        ('op = "list_notes"\n', "", "missing key 'op'"),
        ('"list_notes"', '"List"', "cases.toml:5: op 'List'"),
        ("output = { notes = [{ id = 1 }] }\n", "", "one of output, output_json and failure"),
        ("args", 'failure = "bad_input"\nargs', "one of output, output_json and failure"),
        ("args", "details = {}\nargs", "cases.toml:6: details are those of a failure"),
        ("output = { notes = [{ id = 1 }] }", "output_json = '{'", "cases.toml:7: output_json is not a string of JSON"),
        (
            "external_api_error",
            "external_apierror",
            "unknown failure 'external_apierror'; did you mean 'external_api_error'?",
        ),
        ('"full"', '"the newest first"', "two cases are called 'the newest first'"),
        ('"GET"', '"get"', "cases.toml:10: method 'get'"),
        ('"/notes?', '"https://notes.example.com/notes?', "cases.toml:11: path"),
        ("status = 507\nheaders", "status = 99\nheaders", "status 99 is not from 200 to 599"),
        ("json", "unreachable = true\njson", "json of what cannot be reached"),
        ("json", 'body = ""\njson', "body beside json"),
        ('body = "no room"', "body = 3", "body is not a string"),
        ('"3"', "3", "header 'Retry-After' is not printable ASCII"),
        ('"3"', '["3", 4]', "header 'Retry-After' is not printable ASCII"),
        ("other.example.com:8443", "other.example.com", "has no port"),
        (
            "[[case.exchange]]",
            '[[case.stream]]\ntalk = ["hello"]\n[[case.exchange]]',
            "cases.toml:10: line 1, 'hello',",
        ),
        ("[[case.exchange]]", "[[case.stream]]\n[[case.exchange]]", "missing key 'talk'"),
        ("notes.example.com:443", "*:443", "wildcards"),
    ],
)
def test_a_mistake_in_a_case_file_is_reported_with_its_line(old: str, new: str, message: str) -> None:
    """The schema is closed, and contradictions are refused."""
    assert message in refusal((old, new))


def test_a_case_file_without_cases_is_an_error() -> None:
    """Such a file would pass although it tests nothing."""
    with pytest.raises(AileronError, match="missing key 'case'"):
        parse_cases("", file="cases.toml")
    with pytest.raises(AileronError, match="0 cases"):
        parse_cases("case = []", file="cases.toml")
