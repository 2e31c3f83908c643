"""The single reading of a URL: nothing else in the product parses one, and two other families of parsers agree with ours.

The others are the standard library's (RFC 3986, lenient) and Ada (the WHATWG URL standard, which browsers and Node.js
follow): an attack on two parsers needs a text that one of them understands differently.
"""

from __future__ import annotations

import ast
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import ada_url
import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.egress import EgressRequest, Meter, RequestIntent
from aileron.egress.refusal import RefusedError
from aileron.egress.url import Url, parse_url
from aileron.model.names import HostPort
from aileron.model.plan import Budget
from tests.egress.conftest import HOST, World
from tests.support.upstream import Authority, Upstream, answer

ROOT = Path(__file__).resolve().parents[2]
_DEFAULT_PORTS = {"https": 443, "http": 80}

PARSERS = {
    "urlsplit",
    "urlparse",
    "urldefrag",
    "parse_url",
    "parse_connect_target",
    "URL",
    "Url",
    "split_url",
    "urllib3",
    "yarl",
    "httpx2",
}
"""Names of functions and classes that take URLs apart, in the standard library and in what the product could import."""

KNOWN = {
    ("aileron/egress/engine.py", "parse_url"): "the one place where a request's URL is parsed",
    ("aileron/egress/url.py", "Url"): "the parser itself",
    (
        "aileron/egress/tunnel/connect_head.py",
        "parse_connect_target",
    ): "the one place where what CONNECT asks for is parsed: the same parser",
    ("aileron/egress/rules.py", "Url"): "a type in signatures",
    ("aileron/egress/inject.py", "Url"): "a type in a signature",
    ("aileron/egress/outgoing.py", "Url"): "a type in a signature",
    ("aileron/egress/key_places.py", "Url"): "a type in signatures",
    ("aileron/egress/signing/aws_operation.py", "Url"): "a type in a signature",
    ("aileron/egress/credentials/kind.py", "Url"): "a type in signatures",
    ("aileron/egress/credentials/key.py", "Url"): "a type in a signature",
    ("aileron/egress/credentials/certificate.py", "Url"): "a type in a signature",
    ("aileron/egress/credentials/signatures.py", "Url"): "a type in signatures",
    ("aileron/egress/signing/aws_request.py", "Url"): "a type in signatures",
    (
        "aileron/egress/signing/refused.py",
        "parse_url",
    ): "whose answer it is, for the words of a failure: the same parser",
    ("aileron/egress/websocket.py", "parse_url"): "the one place where a WebSocket's URL is parsed: the same parser",
    (
        "aileron/egress/exchange.py",
        "URL",
    ): "httpcore2's, made of parts; a test below says that it gets no text to parse",
    (
        "aileron/daemon/notify/webhook.py",
        "parse_url",
    ): "where notifications go: the same parser, to know the destination beforehand",
    ("aileron/client.py", "urlsplit"): "AILERON_URL, in a command: an agent's own word for where its daemon is",
    (
        "aileron/gateway/upstreams.py",
        "urlsplit",
    ): "the gateway's settings, whose grammar config.py checked; no agent's word",
    ("aileron/gateway/sides.py", "URL"): "httpcore2's, made of parts",
    ("aileron/egress/reserved.py", "parse_url"): "the provider's addresses, to compare: the same parser",
    ("aileron/egress/reserved.py", "Url"): "a type in signatures",
    ("aileron/oauth/request.py", "parse_url"): "the provider's addresses, before they are asked: the same parser",
    ("aileron/oauth/request.py", "Url"): "a type in signatures",
    ("aileron/daemon/secrets/signins.py", "urlsplit"): "the host of a checked manifest's address, for the ledger",
    ("aileron/daemon/views.py", "urlsplit"): "the same, for people",
    (
        "aileron/daemon/packages/forge_web.py",
        "parse_url",
    ): "a forge's addresses, before they are asked: the same parser",
    ("aileron/daemon/secrets/lending.py", "parse_url"): "the same, to know what is sent to which host",
    ("aileron/connector_tests/stub.py", "parse_url"): "what an author's operation asks of a case: the same parser",
    ("aileron/connector_tests/bench.py", "parse_url"): "the author's own server on loopback: the same parser",
    ("aileron/vault/sendable.py", "urlsplit"): "the host of a checked manifest's token endpoint, as a binding has it",
    (
        "aileron/importing/fetching.py",
        "urlsplit",
    ): "what the author named, in their command: no agent's word, and no key",
    ("aileron/importing/mcp_listing.py", "urlsplit"): "the same, of an MCP server",
    (
        "aileron/importing/authorization.py",
        "parse_url",
    ): "addresses of metadata, before they are asked: the same parser",
    ("aileron/importing/authorization.py", "Url"): "a type in signatures",
    (
        "aileron/discovery/https.py",
        "parse_url",
    ): "where a stranger redirects to, before it is asked: the same parser",
    ("aileron/discovery/https.py", "Url"): "a server and a target, made of parts or by the same parser",
    ("aileron/discovery/calendars.py", "Url"): "made of parts, and a type in signatures",
    ("aileron/discovery/mail.py", "Url"): "made of parts, and a type in signatures",
    ("aileron/cli/add_url.py", "urlsplit"): "what a person typed, to tell what it leads to: no agent's word",
    ("aileron/importing/mcp_signin.py", "parse_url"): "the server's address, to compare: the same parser",
    ("aileron/importing/servers.py", "urlsplit"): "a document's server, of which a manifest's grammar checks the parts",
    ("aileron/importing/references.py", "urldefrag"): "an address within a document, which is never asked",
    ("aileron/importing/effects.py", "urlsplit"): "the query of a document's path, for its words",
    ("aileron/cli/commands/launch_cell.py", "urlsplit"): "the port of our own page, as the daemon says it",
    ("aileron/cli/signin.py", "urlsplit"): "the port of our own callback, for the person who forwards it",
}


def uses(names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (file, name) for every use of one of these names in the product's code."""
    for path in sorted([*(ROOT / "aileron").rglob("*.py"), *(ROOT / "sandbox").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if said in names:
                yield str(path.relative_to(ROOT)), said


@pytest.mark.abuse_case("E3")
def test_every_use_of_a_url_parser_is_listed() -> None:
    """A new use of a URL parser in the product needs an entry with a reason in KNOWN."""
    assert set(uses(PARSERS)) == set(KNOWN)


@pytest.mark.abuse_case("E3")
def test_the_http_client_is_given_the_parts_of_a_url_and_not_the_whole_url() -> None:
    """httpcore2 has a parser of its own, which a URL in one piece would use."""
    tree = ast.parse((ROOT / "aileron/egress/exchange.py").read_text(encoding="utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "URL"
    ]

    assert calls
    for call in calls:
        assert (call.args, {keyword.arg for keyword in call.keywords}) == ([], {"scheme", "host", "port", "target"})


# --- other parsers --------------------------------------------------------------------------------------------------

Reading = tuple[str, str, int, str, str]
"""Scheme, host, port, path and query as they go on the wire."""


def by_us(text: str) -> Reading:
    """Read a URL with Aileron's parser."""
    url: Url = parse_url(text)
    return url.scheme, url.host, url.port, url.path, url.query or ""


def by_urllib(text: str) -> Reading:
    """Read a URL with the standard library; it must have no user, password or fragment."""
    url = urllib.parse.urlsplit(text)
    assert (url.username, url.password, url.fragment) == (None, None, "")
    return url.scheme, url.hostname or "", url.port or _DEFAULT_PORTS[url.scheme], url.path or "/", url.query


def by_ada(text: str) -> Reading:
    """Read a URL as a browser does; it must have no user, password or fragment."""
    url = ada_url.URL(text)
    assert (url.username, url.password, url.hash) == ("", "", "")
    scheme = url.protocol.removesuffix(":")
    port = int(url.port) if url.port else _DEFAULT_PORTS[scheme]
    return scheme, url.hostname, port, url.pathname, url.search.removeprefix("?")


def as_browsers_write(reading: Reading) -> Reading:
    """Encode apostrophes in the query, as a browser does; Aileron leaves them, and servers treat both the same."""
    return *reading[:4], reading[4].replace("'", "%27")


_LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_ODD_HOSTS = st.sampled_from(
    ["127.1", "127.0.0.1", "0x7f.1", "0177.0.0.1", "2130706433", "1.2.3.256", "01.2.3.4", "a.0x1", "a.0x", "0x", "1e3", "a.1",
     "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1%25eth0]", "xn--bcher-kva.example", "xn--a.test", "xn--",
     "bücher.example", "api.exampl\u0435.com", "\u3002", "a\u3002b", "\uff11\uff12\uff17.1", "api.example.com.", ".", "a..b",
     "a_b.test", "-a", "h%00", "h%2ecom", "h%", "%6c", "a,b", "a;b", "a&b", "a=b", "a'b", "*.test", "a." * 126 + "a",
     "a." * 126 + "ab", "a" * 63, "a" * 64, "a@b", "a:b@c", "a@b@c", "api.example.com\\@evil.io", "api.example.com\t",
     "api.\nexample.com", " api.example.com", "api.example.com#@evil.io", "api.example.com?@evil.io", "a b",
     "api.example.com:80@c"]
)  # fmt: skip
_HOSTS = st.one_of(st.lists(_LABELS, min_size=1, max_size=4).map(".".join), st.ip_addresses().map(str), _ODD_HOSTS)
_PORTS = st.sampled_from(
    ["", ":443", ":80", ":1", ":65535", ":0", ":65536", ":", ":+443", ": 443", ":0443", ":443x", ":4_3"]
)
_REST = st.text(st.sampled_from("ab019-._~!$&'()*+,;=:@/?%[]2eEfF{}|^`\"<>#\\ \t\r\n\0é"), max_size=20)
_URLS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(
        ["https://", "http://", "HTTPS://", "hTTp://", "https:/", "https:", "//", "", "ws://", " https://"]
    ),
    _HOSTS,
    _PORTS,
    st.sampled_from(["", "/", "?", "/v1/", "/v1/../", "//", "/%2e%2e/", "\\", ";", "#"]),
    _REST,
)


@pytest.mark.abuse_case("E3")
@pytest.mark.parametrize("other", [by_urllib, by_ada])
@given(st.one_of(_URLS, st.text(max_size=40), st.text(max_size=20).map("https://".__add__)))
@example("https://api.example.com/v1?filter[a]=%27b'&x=;y")
@example("https://api.example.com:443?")
@example("HTTP://127.0.0.1:80//a/;b=1/%2f?//@:")
def test_an_accepted_url_is_parsed_the_same_by_other_parsers(other: Callable[[str], Reading], text: str) -> None:
    """Scheme, host, port, path and query are equal, unless Aileron refuses the URL."""
    try:
        ours = by_us(text)
    except RefusedError:
        return
    assert as_browsers_write(other(text)) == as_browsers_write(ours)


@pytest.mark.abuse_case("E3", "E4")
def test_the_comparison_with_other_url_parsers_finds_differences() -> None:
    """Positive control: the other two parsers disagree on these texts, and Aileron refuses each."""
    disagreements = {
        "https://api.example.com\\@evil.io/": ("evil.io", "api.example.com"),
        "https://api.example.com\\evil.io/": ("api.example.com\\evil.io", "api.example.com"),
        "https://0x7f.1/": ("0x7f.1", "127.0.0.1"),
        "https://2130706433/": ("2130706433", "127.0.0.1"),
        "https://0177.0.0.1/": ("0177.0.0.1", "127.0.0.1"),
        "https://\uff11\uff12\uff17.1/": ("\uff11\uff12\uff17.1", "127.0.0.1"),
        "https://a\u3002example.com/": ("a\u3002example.com", "a.example.com"),
        "https://b\u00fccher.example/": ("b\u00fccher.example", "xn--bcher-kva.example"),
        "https://h%2eexample.com/": ("h%2eexample.com", "h.example.com"),
    }
    for text, (standard, browser) in disagreements.items():
        assert (urllib.parse.urlsplit(text).hostname, ada_url.URL(text).hostname) == (standard, browser)
        with pytest.raises(RefusedError):
            parse_url(text)


@pytest.mark.abuse_case("E2")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "spelling", ["https://{host}:{port}/x", "HTTPS://{upper}:{port}/x", "hTTps://{upper}:{port}/x?y"]
)
async def test_host_field_sni_resolver_and_ledger_name_the_same_destination(
    world: World, authority: Authority, spelling: str
) -> None:
    """The spelling of the URL makes no difference."""
    names: list[str | None] = []
    context = authority.server_context(HOST)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with Upstream(lambda _seen: answer(b"ok"), context) as upstream:
        url = spelling.format(host=HOST, upper=HOST.upper(), port=upstream.port)
        grant = world.grant(HostPort(HOST, upstream.port))
        deadline = anyio.current_time() + 20
        async with world.egress.open(EgressRequest("GET", url), grant, Meter(Budget()), world.journal, deadline) as got:
            assert got.status == 200

    (intent, _report) = world.journal.rows
    assert isinstance(intent, RequestIntent)
    assert upstream.requests[0].values("host") == [f"{HOST}:{upstream.port}"] == [str(intent.destination)]
    assert (names, world.resolver.asked) == ([HOST], [HOST])


@pytest.mark.abuse_case("E2")
@pytest.mark.anyio
async def test_an_international_name_is_granted_and_looked_up_only_in_ascii(world: World, authority: Authority) -> None:
    """A URL or grant cannot contain a homograph: people see `xn--` names unchanged."""
    name = "xn--bcher-kva.example.test"
    world.resolver.table[name] = ["127.0.0.1"]
    with Upstream(lambda _seen: answer(b"ok"), authority.server_context(name)) as upstream:
        grant = world.grant(HostPort(name, upstream.port))
        error = await world.refusal(None, url=f"https://bücher.example.test:{upstream.port}/", grant=grant)
        assert error.failure.details["reason"] == "url_characters"
        assert world.resolver.asked == []

        got = await world.ask(None, url=f"https://{name}:{upstream.port}/", grant=grant)
        assert (got.body, world.resolver.asked) == (b"ok", [name])
    with pytest.raises(ValueError, match="not a lower-case host name"):
        HostPort.parse("bücher.example.test:443")
