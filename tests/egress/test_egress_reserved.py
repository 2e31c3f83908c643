"""The provider's token endpoints: no spelling of them is sent, and every other path is."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron.egress import Meter, RequestIntent
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.reserved import check_reserved, is_reserved
from aileron.egress.tcp import StreamRequest
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import HOST, World, plain_url, reason_of, use
from tests.support.upstream import Script, Upstream, answer

MakeUpstream = Callable[[Script], Upstream]

TOKEN = "/oauth2/v2.0/token"
RESERVED = (
    "https://accounts.example" + TOKEN,
    "https://accounts.example:8443/device",
    "https://accounts.example/revoke",
)


def refused(path: str, *, host: str = "https://accounts.example") -> bool:
    """Return whether this path is reserved for the provider."""
    return is_reserved(parse_url(host + path), RESERVED)


SPELLINGS = [
    TOKEN, "/revoke", TOKEN + "/", TOKEN + "?x=1", TOKEN + "?", "/OAuth2/V2.0/Token", "//oauth2//v2.0///token//",
    "/oauth2/v2.0/%74oken", "/oauth2/v2.0/%74%6F%6b%65%6E", "/%6fauth2%2fv2.0%2ftoken", "/oauth2/v2%2e0/token",
    "/oauth2/v2.0/%2574oken", "/oauth2%252fv2.0%252Ftoken", "/oauth2/v2.0/%252574oken", "/oauth2/v2.0/%25%37%34oken",
    "/oauth2/v2.0/token;x=1", "/oauth2;a/v2.0;b/token;c", "/oauth2/v2.0/token%3bx", "/oauth2/v2.0/token%253Bx=/y",
    "/oauth2%5cv2.0%5Ctoken", "/oauth2/v2.0%255ctoken", "/oauth2/v2.0/token%5c", "/oauth2/v2.0/token;%5c%252e%252e",
    "/x/%252e%252e/oauth2/v2.0/token", "/oauth2/%252e/v2.0/token", "/oauth2/v2.0/token/x/%252e%252e",
    "/x%2f..%2foauth2/v2.0/token", "/x%2f%2e%2e%2foauth2/v2.0/token", "/x%5c..%5coauth2/v2.0/token",
    "/oauth2/v2.0/token/x%2f..", "/oauth2/v2.0/token%2f.", "/x%2f..;a%2foauth2/v2.0/token",
    "/oauth2/v2.0/token%3fx=1", "/oauth2/v2.0/token%23", "/oauth2/v2.0/token%00", "/oauth2/v2.0/token%00.png",
    "/oauth2/v2.0/token%2500", "/oauth2/v2.0/token%20", "/oauth2/v2.0/token.", "/oauth2/v2.0/token%09",
    "/oauth2/v2.0/token.json", "/oauth2/v2.0/token.xml/",
    "/oauth2%c0%afv2.0%e0%80%aftoken", "/oauth2/v2.0/%c1%b4oken", "/oauth2/v2.0/%25u0074oken",
    "/oauth2/v2.0/%ef%bd%94oken", "/oauth2%ef%bc%8fv2.0/token", "/oauth2/v2.0/to%e2%84%aaen",
    "/x/%ef%bc%8e%ef%bc%8e/oauth2/v2.0/token", "/oauth2/v2.0/token%ef%bc%9bx",
    "/anything/%25252525", "/" + "%41" * 683,
]  # fmt: skip


@pytest.mark.parametrize("path", SPELLINGS)
def test_known_spellings_of_a_token_endpoint_are_refused(path: str) -> None:
    """The path is reserved only at the provider's host and port."""
    assert refused(path)

    assert not refused(path, host="https://api.example")
    assert not refused(path, host="https://accounts.example:444")


@pytest.mark.parametrize(
    "path",
    ["/", "/oauth2", "/oauth2/v2.0", "/oauth2/v2.0/tokens", "/oauth2/v2.0/tokeninfo", "/oauth2/v2.0/token/info", "/v2.0/token",
     "/oauth2/v20/token", "/oauth2/v2.0/t%25oken", "/oauth2/v2.0/x/%252e%252e/%252e%252e/token", "/a/oauth2/v2.0/token",
     "/oauth2/v2.0/token-%2f", "/a%2Fb", "/caf%C3%A9/100%25", "/device", "/users/me;v=1/x", "/" + "a" * 4000, "/%41" * 500],
)  # fmt: skip
def test_other_paths_of_the_provider_s_host_pass(path: str) -> None:
    """A provider may serve its API from the host of its token endpoint."""
    assert not refused(path)


@pytest.mark.parametrize("endpoint", ["/o%2Fauth/tok%65n", "/o/auth;v=2/token"])
@pytest.mark.parametrize(
    "path", ["/o%2Fauth/tok%65n", "/o/auth/token", "/O%252fauth/token", "/o/auth;v=2/token", "/o/auth;v=3/token/"]
)
def test_a_token_endpoint_declared_in_an_unusual_spelling_is_also_refused_in_plain_spelling(
    endpoint: str, path: str
) -> None:
    """A manifest may spell the address in any way, and nobody knows how the server reads it."""
    reserved = ("https://accounts.example" + endpoint,)

    assert is_reserved(parse_url("https://accounts.example" + path), reserved)
    assert not is_reserved(parse_url("https://accounts.example/o/auth/tokens"), reserved)


def test_a_token_endpoint_is_reserved_at_its_own_port_for_every_scheme() -> None:
    """The device's endpoint has a port of its own; plain http to an endpoint's port counts as the endpoint."""
    assert refused("/device", host="https://accounts.example:8443")
    assert refused("/device", host="http://accounts.example:8443")
    assert refused(TOKEN, host="http://accounts.example:443")
    assert not refused(TOKEN, host="http://accounts.example")


# Every way to write one character of a path, and what may stand between its parts, for servers that read kindly.
_AS_IT_IS: Callable[[str], str] = str
_WAYS: list[Callable[[str], str]] = [
    _AS_IT_IS,
    lambda char: char.swapcase(),
    lambda char: f"%{ord(char):02x}",
    lambda char: f"%{ord(char):02X}",
    lambda char: f"%25{ord(char):02x}",
    lambda char: f"%2525{ord(char):02X}",
    lambda char: quote(chr(ord(char) + 0xFEE0)),  # fullwidth
]
_SLASHES = [
    "/",
    "//",
    "%2f",
    "%2F",
    "%252f",
    "%5c",
    "%255C",
    "/%252e/",
    "%2f.%2f",
    "/x%2f..%2f",
    "/x/%252e%252e/",
    ";a=b/",
]
_TAILS = [
    "",
    "/",
    "//",
    ";x",
    ";x=%2f",
    "%3b",
    "%3fx=y",
    "%00",
    "%00.jpg",
    "%23",
    "%20",
    ".",
    ".json",
    "/%252e",
    "%2f.",
    "?x=/y",
]


@st.composite
def spelled(draw: st.DrawFn, path: str) -> str:
    """Draw a path whose parts are each written in some way."""
    parts: list[str] = []
    for segment in path[1:].split("/"):
        parts.append(draw(st.sampled_from([slash for slash in _SLASHES if parts or not slash.startswith(";")])))
        parts.append("".join(draw(st.sampled_from(_WAYS))(char) for char in segment))
    text = "".join(parts) + draw(st.sampled_from(_TAILS))
    return text if text.startswith("/") else "/" + text


@pytest.mark.abuse_case("O5")
@given(path=spelled(TOKEN))
@settings(max_examples=500)
def test_every_spelling_of_a_token_endpoint_is_refused(path: str) -> None:
    """The mixtures cover encodings, widths, cases, separators and tails; `refused` would raise if the URL itself were refused."""
    assert refused(path)


@given(
    original=st.sampled_from(["/oauth2/v2.0/tokenz", "/oauth2/v2.0", "/oauth2/v2.0/jwks", "/o/v2.0/token", "/revoked"]),
    data=st.data(),
)
@settings(max_examples=500)
def test_every_spelling_of_a_path_other_than_the_token_endpoint_passes(original: str, data: st.DataObject) -> None:
    """This is the control of the test above: the same mixtures, but another path."""
    assert not refused(data.draw(spelled(original)))


@given(path=st.text("/%25;.\\cfFeEtoken2u0A?#", max_size=40))
@settings(max_examples=500)
def test_the_decision_about_a_path_does_not_depend_on_the_order_of_token_endpoints(path: str) -> None:
    """Any path is tried that the URL parser accepts."""
    try:
        url = parse_url("https://accounts.example/" + path)
    except RefusedError:
        return
    assert is_reserved(url, RESERVED) == is_reserved(url, RESERVED[::-1])


@pytest.mark.parametrize("name", ["X-Original-URL", "x_rewrite_url", " X-Override-Url", "X-ORIGINAL-URI"])
def test_a_header_field_that_names_another_path_is_refused_at_the_provider(name: str) -> None:
    """Some frameworks route by such a header field; at other hosts it is an ordinary field."""
    with pytest.raises(RefusedError) as caught:
        check_reserved(parse_url("https://accounts.example/"), [(name, TOKEN)], RESERVED)
    assert caught.value.reason is Reason.PROVIDER_ENDPOINT

    check_reserved(parse_url("https://api.example/"), [(name, TOKEN)], RESERVED)
    check_reserved(parse_url("https://accounts.example/"), [("X-Original", TOKEN)], RESERVED)


def test_every_request_is_refused_if_the_token_endpoint_cannot_be_parsed() -> None:
    """The manifest's parser let it pass, so nobody knows which path is reserved."""
    url = parse_url("https://api.example/")

    assert is_reserved(url, ("https://Accounts.example./token",))
    with pytest.raises(RefusedError):
        check_reserved(url, [], ("ftp://accounts.example/token",))
    check_reserved(url, [], ())


# --- through the engine ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("credential", [None, "oauth2"])
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
async def test_no_request_of_a_connector_reaches_a_token_endpoint_of_the_provider(
    world: World, tls_upstream: MakeUpstream, credential: str | None, method: str
) -> None:
    """The request causes no lookup and no loan, with the credential or without; the rest of the host is served."""
    with tls_upstream(lambda _seen: answer(b"for all")) as upstream:
        host = HostPort(HOST, upstream.port)
        grant = Grant(
            hosts=(host,),
            private=frozenset({host}),
            credential=use("oauth2"),
            reserved=(f"https://{host}/oauth/token",),
        )
        error = await world.refusal(upstream, "/oauth%2FTOKEN", method=method, credential=credential, grant=grant)
        assert (world.vault.asked_ready, world.vault.lent, world.resolver.asked) == (0, 0, [])
        got = await world.ask(upstream, "/oauth/tokens", method=method, credential=credential, grant=grant)

    assert reason_of(error) == "provider_endpoint"
    assert "/oauth" not in str(error.failure)
    assert error.failure.details["requested"] == f"network:{host}"
    assert (got.body, len(upstream.requests)) == (b"for all", 1)


@pytest.mark.anyio
async def test_a_token_endpoint_on_loopback_is_refused_without_tls_too(world: World) -> None:
    """Tests start a provider there, without TLS."""
    with Upstream(lambda _seen: answer()) as upstream:
        host = HostPort(HOST, upstream.port)
        grant = Grant(
            hosts=(host,), private=frozenset({host}), plain=frozenset({host}), reserved=(f"http://{host}/token",)
        )
        error = await world.refusal(upstream, url=plain_url(upstream, "/token/"), grant=grant)
        got = await world.ask(upstream, url=plain_url(upstream, "/api"), grant=grant)

    assert (reason_of(error), got.status, len(upstream.requests)) == ("provider_endpoint", 200, 1)


@pytest.mark.anyio
async def test_a_stream_to_a_provider_is_refused(world: World, tls_upstream: MakeUpstream) -> None:
    """A stream could carry HTTP; one to a host without an endpoint of the provider opens."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        host = HostPort(HOST, upstream.port)

        async def stream(*reserved: str) -> None:
            grant = Grant(hosts=(host,), private=frozenset({host}), reserved=reserved)
            async with world.egress.streams.open(
                StreamRequest(HOST, upstream.port, tls=True), grant, Meter(Budget()), world.journal, 1e12
            ):
                pass

        with pytest.raises(AileronError) as caught:
            await stream(f"https://{host}/token")
        assert reason_of(caught.value) == "provider_endpoint"
        assert [denial.reason for denial in world.journal.denials] == ["provider_endpoint"]
        await stream(f"https://{HOST}/token")

    assert [row.method for row in world.journal.rows if isinstance(row, RequestIntent)] == ["TCP"]
