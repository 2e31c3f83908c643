"""The SDK's part of mail: unambiguous addresses, and header fields that no text can break."""

from __future__ import annotations

import email.policy
import re
from email.parser import BytesHeaderParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector import BadInput, mail

SEEN = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
NAMES = st.text(SEEN, max_size=60).map(lambda text: " ".join(text.split()))
PLAIN = st.from_regex(r"[a-z]{1,10}@[a-z]{1,10}\.example", fullmatch=True)


@given(st.lists(st.builds(mail.Address, NAMES, PLAIN), min_size=1, max_size=5))
def test_displayed_addresses_are_parsed_back_unchanged(people: list[mail.Address]) -> None:
    """A name that looks like an address, or has a comma, is in quotes."""
    assert mail.addresses(", ".join(map(str, people)), "to") == people


@given(st.text(max_size=200), st.lists(st.builds(mail.Address, NAMES, PLAIN), min_size=1, max_size=5))
def test_any_text_in_a_header_field_stays_within_that_field(text: str, people: list[mail.Address]) -> None:
    """The field's text cannot begin another field, and no line is too long for a server."""
    try:
        mail.check_line(text, "subject")
    except BadInput:
        return
    lines = [mail.text_field("Subject", text), mail.address_field("To", people)]
    data = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    assert BytesHeaderParser(policy=email.policy.compat32).parsebytes(data).keys() == ["Subject", "To"]
    assert max(map(len, data.split(b"\r\n"))) < 998


@pytest.mark.parametrize(
    ("text", "is_ascii", "is_utf8"),
    [
        ("noor@example.com", True, True),
        ("n.o-o+r@mail.example.com", True, True),
        ("jürgen@example.com", False, True),
        ("伊藤@example.com", False, True),
        ("noor@köln.example", False, False),
        ("noor@example", False, False),
        ("noor@@example.com", False, False),
        ("no or@example.com", False, False),
        ('"noor"@example.com', False, False),
        ("noor@[127.0.0.1]", False, False),
        ("noor\u202e@example.com", False, False),
        ("noor\n@example.com", False, False),
        ("a" * 65 + "@example.com", False, False),
        ("a@" + "b." * 130 + "example", False, False),
    ],
)
def test_only_unambiguous_addresses_are_mailboxes(text: str, is_ascii: bool, is_utf8: bool) -> None:
    """Letters outside ASCII are allowed only if requested, and never in a domain."""
    assert (mail.is_mailbox(text), mail.is_mailbox(text, utf8=True)) == (is_ascii, is_utf8)


@given(st.text(max_size=300))
def test_any_text_is_converted_to_one_printable_line_without_an_exception(value: str) -> None:
    """The function raises no exception and returns no control character."""
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", mail.readable(value, is_address=True))


@given(
    st.binary(max_size=100),
    st.text(max_size=20) | st.sampled_from(["utf-8", "utf-16", "hz", "zip", "idna", "iso-2022-jp"]),
)
def test_any_bytes_are_decoded_by_any_charset_without_an_exception(data: bytes, charset: str) -> None:
    """The function raises no exception."""
    assert isinstance(mail.decoded(data, charset), str)
