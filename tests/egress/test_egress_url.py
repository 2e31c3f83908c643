"""The URL parser: which parts it returns, what it refuses and why, and that a second parser agrees."""

from __future__ import annotations

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.refusal import MAX_REFUSAL, Reason, RefusedError
from aileron.egress.url import MAX_URL_CHARS, Url, parse_url

pytestmark = pytest.mark.abuse_case("E3")


@pytest.mark.abuse_case("E24")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://api.example.com", Url("https", "api.example.com", 443, "/", None)),
        ("https://api.example.com/", Url("https", "api.example.com", 443, "/", None)),
        ("https://api.example.com?x=1", Url("https", "api.example.com", 443, "/", "x=1")),
        ("HTTPS://API.Example.COM:8443/A", Url("https", "api.example.com", 8443, "/A", None)),
        ("http://127.0.0.1/x", Url("http", "127.0.0.1", 80, "/x", None)),
        ("https://h/a%2Fb//c;x=1/%252e%252e/..z/...", Url("https", "h", 443, "/a%2Fb//c;x=1/%252e%252e/..z/...", None)),
        ("https://h/?filter[name]=a%20b&y=:@/?", Url("https", "h", 443, "/", "filter[name]=a%20b&y=:@/?")),
        ("https://h/p?", Url("https", "h", 443, "/p", "")),
        ("https://xn--bcher-kva.example/", Url("https", "xn--bcher-kva.example", 443, "/", None)),
    ],
)
def test_a_plain_url_is_split_into_its_parts(text: str, expected: Url) -> None:
    """Scheme and host are lower-cased, ports defaulted, and path and query left byte for byte."""
    assert parse_url(text) == expected


REFUSALS = [
    (Reason.URL_LENGTH, "https://h/" + "a" * MAX_URL_CHARS),
    *[(Reason.URL_CHARACTERS, f"https://api.example.com{c}/") for c in (" ", "\t", "\r\n", "\0", "\x7f", "\\", "é", "\u3002")],
    (Reason.URL_CHARACTERS, " https://h/"),
    (Reason.URL_CHARACTERS, "https://api.exampl\u0435.com/"),
    *[(Reason.URL_SCHEME, text) for text in ("", "h", "//h/", "https:/h", "https:h", "ftp://h/", "file:///etc/passwd")],
    *[(Reason.URL_SCHEME, text) for text in ("javascript://h", "ws://h/", "https+x://h", "h/https://h")],
    *[(Reason.URL_USERINFO, text) for text in ("https://a@h/", "https://a:b@h/", "https://api.example.com@evil.io/")],
    (Reason.URL_USERINFO, "https://api.example.com:443@evil.io/"),
    *[(Reason.URL_FRAGMENT, text) for text in ("https://h/#", "https://h#@evil.io/", "https://h/p?q#f")],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("", ".", "h.", "a..b", "-a", "a-", "a_b", "*.example.com")],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("h%00", "h%2eexample.com", "h,evil.io", "h;evil.io", "h&x", "a" * 64)],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("127.1", "0x7f.1", "2130706433", "0177.0.0.1")],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("127.0.0.01", "1.2.3.256")],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("0x7f000001", "1.2.3.0x4", "[::1]", "[::1]:443")],
    *[(Reason.URL_HOST, f"https://{host}/") for host in ("[fe80::1%25eth0]", "a.1")],
    (Reason.URL_HOST, "https://" + "a." * 126 + "ab/"),
    *[(Reason.URL_PORT, f"https://h:{port}/") for port in ("", "0", "65536", "+443", "-1", "0443", "443x", "443:443", "%34")],
    (Reason.URL_CHARACTERS, "https://h: 443/"),
    *[(Reason.URL_PATH, f"https://h/{path}") for path in ("..", ".", "v1/../admin", "%2e%2e/x", "a/.%2E", "..;x/y", "%2e;a=b")],
    *[(Reason.URL_PATH, f"https://h/{path}") for path in ("%", "%g0", "a%2", '"', "<", ">", "^", "`", "{x}", "|", "[a]")],
    *[(Reason.URL_QUERY, f"https://h/?{query}") for query in ("%", "%zz", '"', "<", "^", "`", "{x}", "|")],
]  # fmt: skip


@pytest.mark.abuse_case("E1", "E2", "E4", "E24")
@pytest.mark.parametrize(("reason", "text"), REFUSALS, ids=[f"{reason}-{text[:40]!r}" for reason, text in REFUSALS])
def test_an_ambiguous_url_is_refused_with_its_reason(reason: Reason, text: str) -> None:
    """Each is a spelling that two parsers could read differently, and the error names the rule."""
    with pytest.raises(RefusedError) as caught:
        parse_url(text)

    assert caught.value.reason is reason


_PIECES = st.sampled_from(
    ["https://", "http://", "HTTPS://", "api.example.com", "127.0.0.1", "[::1]", "0x7f.1", ":443", ":", "@", "/", "//", "\\",
     "?", "#", "%2e", "%00", "..", ";", "a", "é", "\t", " ", "\r\n", "&x=1", "evil.io", "."]
)  # fmt: skip
_TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(_PIECES, max_size=8).map("".join),
    st.lists(_PIECES, max_size=8).map(lambda pieces: "https://" + "".join(pieces)),
)


@given(_TEXTS)
def test_any_text_is_refused_or_parsed_as_urllib_does(text: str) -> None:
    """RefusedError is the only error, and an accepted URL means the same to the standard library."""
    try:
        url = parse_url(text)
    except RefusedError:
        return

    other = urllib.parse.urlsplit(text)
    assert (other.scheme, other.hostname) == (url.scheme, url.host)
    assert (other.port or {"https": 443, "http": 80}[url.scheme]) == url.port
    assert (other.path or "/", other.query) == (url.path, url.query or "")
    assert (other.username, other.password, other.fragment) == (None, None, "")
    assert url.target in text or text.endswith(url.target[1:])


@given(_TEXTS)
def test_parsing_a_parsed_url_again_changes_nothing(text: str) -> None:
    """A URL that is written out again parses to itself: it has one reading."""
    try:
        url = parse_url(text)
    except RefusedError:
        return

    assert parse_url(f"{url.scheme}://{url.authority}{url.target}") == url


@given(_TEXTS)
def test_a_refusal_never_quotes_path_or_query(text: str) -> None:
    """A message may name the host; what comes after it could hold anything."""
    with pytest.raises(RefusedError) as caught:
        parse_url(f"{text}/sesame?token=sesame|")

    assert "sesame" not in str(caught.value)


def test_a_refusal_quotes_only_the_beginning_of_a_long_host() -> None:
    """A connector must not control the length of a message. An ordinary host is quoted completely."""
    with pytest.raises(RefusedError, match=r"'api\.exam_ple\.com' is not") as short:
        parse_url("https://api.exam_ple.com/")
    with pytest.raises(RefusedError) as long:
        parse_url(f"https://{'a' * 5_000}/")

    assert short.value.reason is long.value.reason is Reason.URL_HOST
    assert len(str(long.value)) < 400
    assert len(str(RefusedError(Reason.HOST_NOT_GRANTED, "x" * 5_000))) == MAX_REFUSAL
