"""The Google connector's messages: a written one reads back as it was meant, a received one becomes text or a failure."""

from __future__ import annotations

import base64
import copy
import email.policy
import email.utils
import json
import re
from collections.abc import Callable
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron_connector import BadInput, ExternalApiError, markup
from tests.support.libraries import module_of

mail = module_of("google", "mail")
SEEN = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
LINES = st.text(SEEN, max_size=200).map(lambda text: " ".join(text.split()))
NAMES = st.text(SEEN, max_size=60).map(lambda text: " ".join(text.split()))
ATOMS = st.from_regex(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?){1,3}", fullmatch=True)
ADDRESSES = st.builds(lambda local, host: f"{local}@{host}", ATOMS, HOSTS)
MAILBOXES = st.builds(lambda name, address: mail.Address(name, address), NAMES, ADDRESSES)
BODIES = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t"), max_size=400)


def read_back(data: bytes) -> EmailMessage:
    """Return a message as another program reads it."""
    return BytesParser(EmailMessage, policy=email.policy.default).parsebytes(data)


def mailboxes(data: bytes, name: str) -> list[tuple[str, str]]:
    """Return the mailboxes of a field, by the standard library's older functions: its newer ones put spaces between
    encoded words.
    """
    raw = BytesParser(policy=email.policy.compat32).parsebytes(data)[name]
    found = email.utils.getaddresses([] if raw is None else [re.sub(r"\r?\n(?=[ \t])", "", raw)])
    return [(str(make_header(decode_header(shown))), address) for shown, address in found]


def people(*to: Any, **others: Any) -> Any:
    """Return the people whom a message names."""
    return mail.People(list(to), **others)


# Writing


@given(st.lists(MAILBOXES, min_size=1, max_size=8), st.lists(MAILBOXES, max_size=3), LINES, BODIES)
@example([mail.Address('a, "b" <c@d.ee>\\', "x@y.zz")] * 3, [], "=?utf-8?q?hidden?=", "")
@example(
    [mail.Address("Müller, " * 12 + "Ä", "x@y.zz")] * 5, [mail.Address("=?x?=", "x@y.zz")], "ü" * 400, "\n.\nFrom x\n"
)
def test_a_message_reads_back_as_it_was_written(to: list[Any], bcc: list[Any], subject: str, body: str) -> None:
    """The standard library's parser finds every name, address and word; and every line fits (RFC 5322 section 2.1.1)."""
    data = mail.compose(people(*to, bcc=bcc), subject=subject, body=body)
    message = read_back(data)

    assert mailboxes(data, "To") == [tuple(address) for address in to]
    assert mailboxes(data, "Bcc") == [tuple(address) for address in bcc]
    assert message["Subject"] == subject
    assert message.get_content().replace("\r\n", "\n").removesuffix("\n") == body.removesuffix("\n")
    head = data.partition(b"\r\n\r\n")[0]
    assert max(map(len, head.split(b"\r\n"))) <= 998
    assert max(len(line) for line in data.split(b"\r\n")) <= 998
    assert data.isascii()
    assert re.search(rb"[^\r]\n|\r[^\n]", data) is None
    for word in re.findall(rb"=\?utf-8\?\S*", head):
        assert len(word) <= 75  # RFC 2047 section 2


@given(st.text(max_size=80), st.sampled_from(["to", "subject", "name", "reply_to"]))
@example("x\r\nBcc: eve@example.com", "subject")
@example("x\nBcc: eve@example.com", "to")
@example("x\u2028Bcc: eve@example.com", "name")
@example('"x\r\n y" <a@b.cc>', "reply_to")
def test_no_argument_can_add_a_header_field(text: str, where: str) -> None:
    """The message has the requested fields, once each, or is refused."""
    values = {"to": "ann@example.com", "reply_to": "bob@example.com", "subject": "s"}
    values["to" if where == "name" else where] = f"{text} <ann@example.com>" if where == "name" else text
    try:
        found = mail.People(
            to=mail.addresses(values["to"], "to"), reply_to=mail.addresses(values["reply_to"], "reply_to")
        )
        data = mail.compose(found, subject=values["subject"], body="text")
    except (BadInput, UnicodeEncodeError):
        return
    assert set(read_back(data).keys()) <= {
        *("To", "Reply-To", "Subject", "Content-Type", "Content-Transfer-Encoding", "MIME-Version")
    }
    assert len(read_back(data).keys()) == len(set(read_back(data).keys()))
    assert read_back(data).get_content() == "text\r\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ann@example.com", [("", "ann@example.com")]),
        (" Ann  B <ann@example.com> , bob@example.com,", [("Ann B", "ann@example.com"), ("", "bob@example.com")]),
        ('"Müller, Jürgen" <j@example.com>', [("Müller, Jürgen", "j@example.com")]),
        ('"a \\"b\\" c"<j@example.com>', [('a "b" c', "j@example.com")]),
        ("Ann (Work) <ann@example.com>", [("Ann (Work)", "ann@example.com")]),
        ("<ann+tag@xn--mller-kva.example>", [("", "ann+tag@xn--mller-kva.example")]),
        ("", []),
        (None, []),
        (["a@b.cc", "d@e.ff, g@h.ii"], [("", "a@b.cc"), ("", "d@e.ff"), ("", "g@h.ii")]),
    ],
)
def test_addresses_are_read_as_people_write_them(text: Any, found: list[tuple[str, str]]) -> None:
    """They have names, quotes, commas in quotes, and a comma too many."""
    assert [tuple(address) for address in mail.addresses(text, "to")] == found


@pytest.mark.parametrize(
    "text",
    [
        "ann",
        "ann@localhost",
        "ann@example.com; bob@example.com",
        "ann@example.com bob@example.com",
        "ann@example.com <eve@example.com>",
        "<ann@example.com> eve@example.com",
        "<ann@example.com><eve@example.com>",
        "Ann <ann@example.com",
        'Ann" <ann@example.com>',
        '"ann b"@example.com',
        "ann@[127.0.0.1]",
        "ann@example..com",
        ".ann@example.com",
        "ann@-example.com",
        "ann@exämple.com",
        "änn@example.com",
        "team: ann@example.com;",
        "ann@example.com (eve@example.com)",
        f"{'a' * 65}@example.com",
        f"{'n' * 129} <ann@example.com>",
        "@example.com",
        "Ann <>",
    ],
)
def test_an_ambiguous_address_is_refused(text: str) -> None:
    """The error quotes it; the positive control is the test above."""
    with pytest.raises(BadInput) as caught:
        mail.addresses(text, "cc")
    assert "cc " in caught.value.message
    assert caught.value.details == {"argument": "cc"}


@pytest.mark.parametrize("bad", ["a\rb", "a\nb", "a\r\n b", "a\0b", "a\x1bb", "a\x85b", "a\u2028b", "a\x7fb"])
def test_a_control_character_in_a_field_is_refused(bad: str) -> None:
    """The character is not removed: the sender meant something by it."""
    calls: dict[str, Callable[[], object]] = {
        "subject": lambda: mail.compose(people(mail.Address("", "a@b.cc")), subject=bad, body=""),
        "to": lambda: mail.addresses(f"{bad} <a@b.cc>", "to"),
    }
    for name, call in calls.items():
        with pytest.raises(BadInput, match=f"{name} has a line break or another control character"):
            call()


def test_too_many_recipients_or_too_long_texts_are_refused() -> None:
    """The limits are for recipients, subject and body; exactly the limit is accepted."""
    address = mail.Address("", "a@b.cc")
    mail.compose(people(*[address] * 99, bcc=[address]), subject="s" * 500, body="b" * 200_000)
    for to, subject, body, words in (
        ([address] * 100, "s", "b", "more than 100 recipients"),
        ([address], "s" * 501, "b", "subject has more than 500"),
        ([address], "s", "b" * 200_001, "body has more than 200000"),
        ([address], "s", "a\0b", "body has a control character"),
    ):
        with pytest.raises(BadInput, match=words):
            mail.compose(people(*to, bcc=[address]), subject=subject, body=body)


def test_a_reply_continues_its_thread() -> None:
    """The reply references the answered message and its references. Invalid message ids are dropped; long threads keep
    both ends.
    """
    parent = mail.Parent.of(
        message(
            {
                "Message-ID": "<3@x.yy>\r\nBcc: eve@example.com",
                "References": "<1@x.yy> <2@x.yy> <no id> <a@b>,<1@x.yy>",
            }
        )
    )
    assert parent.references == ("<1@x.yy>", "<2@x.yy>", "<a@b>", "<3@x.yy>")
    sent = read_back(mail.compose(people(mail.Address("", "a@b.cc")), subject="Re: x", body="", parent=parent))
    assert (sent["In-Reply-To"], sent["References"]) == ("<3@x.yy>", "<1@x.yy> <2@x.yy> <a@b> <3@x.yy>")
    assert "Bcc" not in sent
    long = mail.Parent.of(message({"References": " ".join(f"<{number}@x>" for number in range(100))}))
    assert (len(long.references), long.references[0], long.references[-1]) == (20, "<0@x>", "<99@x>")


# Reading


def message(fields: dict[str, str] | None = None, /, **payload: Any) -> Any:
    """Return a message as Gmail describes it."""
    headers = [{"name": name, "value": value} for name, value in (fields or {}).items()]
    told = {"id": "1", "threadId": "t", "payload": {"headers": headers, **payload}}
    return msgspec.json.decode(json.dumps(told), type=mail.Message)


def part(kind: str, data: bytes = b"", charset: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one part of a message."""
    fields = [{"name": "Content-Type", "value": f'{kind}; charset="{charset}"'}] if charset else []
    body = {"size": len(data), "data": base64.urlsafe_b64encode(data).decode()}
    return {"mimeType": kind, "headers": fields, "body": body, **more}


def text_of(**payload: Any) -> tuple[str, str]:
    """Return the text and the form that it is from."""
    found = mail.text_of(message(**payload))
    return found.text, found.source


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("utf-8", "Grüße 🎉"),
        ("iso-8859-1", "Grüße"),
        ("windows-1252", "Grüße – “so”"),
        ("iso-2022-jp", "こんにちは"),
        ("shift_jis", "こんにちは"),
        ("gb18030", "你好"),
        ("koi8-r", "Привет"),
        ("utf-16", "Grüße"),
    ],
)
def test_a_body_is_decoded_by_its_charset(charset: str, text: str) -> None:
    """A text that was converted on the way and still names the old charset is read as UTF-8."""
    assert text_of(**part("text/plain", text.encode(charset), charset)) == (text, "plain")
    assert text_of(**part("text/plain", text.encode(), charset))[0] == text or charset == "utf-16"


@pytest.mark.parametrize("charset", ["nonsense", "zip", "rot13", "idna", "unicode_escape", "utf-7", "x" * 99, ""])
def test_an_unknown_charset_is_read_as_utf_8(charset: str) -> None:
    """The cases include codecs of Python's that are no charsets of mail."""
    assert text_of(**part("text/plain", b"a\\n+AGE- \xff", charset)) == ("a\\n+AGE- \ufffd", "plain")


def test_the_plain_text_alternative_is_preferred() -> None:
    """Parallel parts are all read, of alternatives only one; a part with a file name is an attachment."""
    plain, page = part("text/plain", b"plain"), part("text/html", b"<p>page</p>")
    both = {"mimeType": "multipart/alternative", "parts": [page, plain]}
    attached = {
        "mimeType": "application/pdf",
        "filename": "r\u00e9sum\u00e9.pdf",
        "body": {"attachmentId": "x", "size": 9},
    }
    note = part("text/plain", b"never read", filename="note.txt")
    inner = {"mimeType": "message/rfc822", "parts": [plain], "body": {"size": 4}}
    mixed = {"mimeType": "multipart/mixed", "parts": [both, part("text/plain", b"list footer"), attached, note, inner]}

    assert text_of(**mixed) == ("plain\nlist footer", "plain")
    assert text_of(mimeType="multipart/alternative", parts=[page, part("text/plain", b" \n")]) == ("page", "html")
    assert text_of(mimeType="multipart/mixed", parts=[attached]) == ("", "none")
    assert mail.text_of(message(**mixed)).attachments == [
        {"filename": "résumé.pdf", "mime_type": "application/pdf", "size": 9},
        {"filename": "note.txt", "mime_type": "text/plain", "size": 10},
        {"filename": "", "mime_type": "message/rfc822", "size": 4},
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<html><head><title>T</title><style>p{}</style><body><p>one<br>two</p><p>three", "one\ntwo\n\nthree"),
        ("a&nbsp;&lt;b&gt; &#128512; c\n d", "a <b> 😀 c d"),
        ("<a href='https://x.example/?a=1&amp;b=2'>here</a>", "here <https://x.example/?a=1&b=2>"),
        ("<a href='https://x.example/'>https://x.example/</a>", "https://x.example/"),
        ("<a href='javascript:alert(1)'>here</a><a>x</a>", "herex"),
        ("<script>alert(1)</script>x<!-- hidden --><img src=x onerror=y>y", "xy"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a b\n\nc"),
        ("</style>x<style>y</style></p>", "x"),
        ("<![x[ <b>y</b>", "y"),
        ("<p>" * 2000 + "deep", "deep"),
        ("<", "<"),
        ("1 < 2 <3", "1 < 2 <3"),
        ("x<svg><text>y</text><svg/><svg></svg></svg>z<svg/>", "xz"),
        ("x<title><b>y</title >z", "xz"),
        ("<img src='data:image/png;base64," + "A" * 9000 + "' alt='>'>x", "'>x"),
        ('<a title=">" href="mailto:a@b.cc">me</a>', "me <mailto:a@b.cc>"),
        ("x<!-- y", "x"),
    ],
)
def test_html_becomes_the_text_that_a_reader_would_see(page: str, text: str) -> None:
    """The comparison ignores the number of line breaks."""
    found = text_of(**part("text/html", page.encode(), "utf-8"))
    assert (re.sub(r"\n+", "\n", found[0]), found[1]) == (re.sub(r"\n+", "\n", text), "html")


@given(
    st.lists(
        st.sampled_from(
            "<a >|<b|<!--|-->|<![x[|<!DOCTYPE|<?x|?>|</a>|</p|&amp|&#x;|&#99999999;|<script>|</script|'|\"|text".split(
                "|"
            )
        )
    )
)
def test_any_html_is_converted_to_text_without_an_exception(pieces: list[str]) -> None:
    """The reader raises no exception."""
    assert isinstance(text_of(**part("text/html", "".join(pieces).encode(), "utf-8"))[0], str)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("=?utf-8?B?R3LDvMOfZQ==?= und =?iso-8859-1?q?K=FCsse?=", "Grüße und Küsse"),
        ("=?utf-8?q?Gr=C3?= =?utf-8?q?=BC=C3=9Fe?=", "Grüße"),
        ("Grüße\r\n\tund", "Grüße und"),
        ("=?x-none?q?a?= =?utf-8?b?!?= =?utf-8?b?AAA?=", None),
        ("=?utf-8?q?a=0D=0ABcc:_x?=", "a Bcc: x"),
        ("=?zip?b?eJxLBAA=?=", None),
    ],
)
def test_encoded_words_in_header_fields_are_decoded(value: str, shown: str | None) -> None:
    """Invalid encoded words stay as they are, and none becomes a second line."""
    found = mail.field(message({"subject": value}), "Subject")
    assert "\n" not in found
    assert shown is None or found == shown


def test_a_display_name_that_spells_an_address_is_not_returned_as_an_address() -> None:
    """Decoded, the name would stand before the real address, and look like it."""
    trick = "=?utf-8?q?boss=40example=2Ecom=3E=2C_Eve?= <eve@evil.example>"
    found = message({"From": trick, "To": "=?utf-8?q?J=C3=BCrgen?= <j@example.com>"})

    assert mail.field(found, "from") == '"boss@example.com>, Eve" <eve@evil.example>'
    assert mail.field(found, "to") == "Jürgen <j@example.com>"


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<a href='", "<a x=", "</", "&", "<script>", "<svg>", "<a href=x>", '<a "']
)
def test_html_that_is_slow_to_parse_is_read_within_the_time_limit(piece: str) -> None:
    """The page has as many of these pieces as a part may have: a quadratic reader takes minutes, and fails by the
    test's time limit.
    """
    assert isinstance(markup.text_from(piece * (mail.MAX_HTML_CHARACTERS // len(piece))), str)


@given(st.text(max_size=300))
def test_any_header_field_becomes_one_line(value: str) -> None:
    """The reader raises no exception and returns no control character."""
    found = mail.field(message({"Subject": value, "From": value}), "From")
    assert not any(ord(char) < 32 or char in "\x85\u2028\u2029" for char in found)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGE = {
    "id": "1",
    "threadId": "t",
    "labelIds": ["UNREAD"],
    "snippet": "a &amp; b",
    "payload": {
        "mimeType": "multipart/mixed",
        "headers": [{"name": "From", "value": "=?utf-8?q?=C3=A4?= <a@b.cc>"}, {"name": "Subject", "value": "s"}],
        "parts": [
            {"mimeType": "text/html", "body": {"size": 1, "data": "PGE-"}, "headers": []},
            {"mimeType": "text/plain", "filename": "x", "body": {"size": 3, "attachmentId": "y"}},
        ],
    },
}


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each dict or list in the value, with each of its keys."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


@given(st.data())
def test_a_message_with_any_value_changed_is_read_or_refused(data: st.DataObject) -> None:
    """A single value in it is replaced by any other: the result is JSON or one of two failures, and nothing else."""
    told = copy.deepcopy(MESSAGE)
    inside, key = data.draw(st.sampled_from(_places(told)))
    inside[key] = data.draw(ANY)
    try:
        found = msgspec.json.decode(json.dumps(told), type=mail.Message)
        json.dumps(
            [mail.as_json(found), mail.as_json(found, is_listed=True), mail.text_of(found), mail.Parent.of(found)]
        )
    except (msgspec.DecodeError, ExternalApiError):
        pass


def test_long_texts_and_fields_say_where_they_were_cut() -> None:
    """The limits are for text and fields; too many parts are a failure."""
    found = mail.text_of(message(**part("text/plain", b"x" * 100_001)))
    assert (len(found.text), found.is_cut) == (100_000, True)
    assert not mail.text_of(message(**part("text/plain", b"x" * 100_000))).is_cut
    assert mail.field(message({"To": "a@b.cc, " * 5000}), "To").endswith("… (cut: it has 40000 characters)")
    with pytest.raises(ExternalApiError, match="more than 200 parts"):
        mail.text_of(message(mimeType="multipart/mixed", parts=[part("text/plain", b"x")] * 200))


@pytest.mark.parametrize("data", ["a", "a*==", "ä", "YQ=\nYQ", "YQ==YQ=="])
def test_a_body_that_is_not_base64url_is_a_failure(data: str) -> None:
    """The body is not read in part either."""
    with pytest.raises(ExternalApiError, match="not base64url"):
        mail.text_of(message(mimeType="text/plain", body={"data": data}))
    assert text_of(mimeType="text/plain", body={"data": "YWI_"}) == ("ab?", "plain")
