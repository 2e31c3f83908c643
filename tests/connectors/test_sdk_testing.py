"""aileron_connector.testing: an author's operations without a daemon, and the transports' steps as seen through it."""

from __future__ import annotations

import hashlib
import http.client
import random
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron_connector import BadInput, audit, hosts, log, op, operation, progress, transports
from aileron_connector import http as asked
from aileron_connector.testing import Reply, Request, Unreachable, call, for_real
from tests.support.upstream import Authority, Upstream, answer

pytestmark = pytest.mark.usefixtures("own_operations")

ORIGIN = "https://notes.example.com"


def test_an_operation_gets_the_given_replies_in_order_and_its_requests_are_recorded() -> None:
    """The result has the output, the requests with the credential they named, and what the operation reported."""

    @op
    def add_notes(texts: list[str]) -> list[int]:
        numbers = []
        for at, text in enumerate(texts):
            progress(at, total=len(texts))
            with asked.request("POST", f"{hosts()[0].url}/notes", body=text.encode(), credential="api_key") as got:
                numbers.append(got.raise_for_status().json()["id"])
        log.info("added", count=len(numbers))
        audit("notes_added", count=len(numbers))
        return numbers

    done = call("add_notes", {"texts": ["a", "b"]}, answer=[Reply.of({"id": 1}), Reply.of({"id": 2}, status=201)])

    assert done.output == [1, 2]
    assert [(request.url, request.body, request.credential) for request in done.requests] == [
        (f"{ORIGIN}/notes", b"a", "api_key"),
        (f"{ORIGIN}/notes", b"b", "api_key"),
    ]
    assert [line.message for line in done.logs] == ["added"]
    assert [(fact.event, fact.fields) for fact in done.audits] == [("notes_added", {"count": 2})]
    assert [told.done for told in done.progress] == [0, 1]


def test_a_failed_operation_has_the_failure_that_its_caller_would_see() -> None:
    """Reading the output of a failed operation is an assertion error that says so."""

    @op
    def fail() -> None:
        raise BadInput("text is empty", argument="text")

    done = call("fail")

    assert (done.failure.failure_class, done.failure.details) == ("bad_input", {"argument": "text"})
    with pytest.raises(AssertionError, match="bad_input: text is empty"):
        _ = done.output


def test_replies_must_match_the_requests_in_number() -> None:
    """A reply too few or too many is the test's mistake, and the error says which."""

    @op
    def get_twice() -> None:
        for _ in range(2):
            asked.request("GET", ORIGIN + "/").close()

    with pytest.raises(AssertionError, match=r"request 2, GET .* has no reply left"):
        call("get_twice", answer=[Reply()])
    with pytest.raises(AssertionError, match="2 requests were made, but there are 3 replies"):
        call("get_twice", answer=[Reply()] * 3)
    assert call("get_twice", answer=[Reply()] * 2).output is None


def test_an_unreachable_service_and_an_undeclared_host_are_refused() -> None:
    """The failures have the classes of the host's refusals."""

    @op
    def get(url: str) -> int:
        with asked.request("GET", url) as got:
            return got.status

    unreachable = call("get", {"url": ORIGIN + "/"}, answer=[Unreachable("it is down")])
    elsewhere = call("get", {"url": "https://elsewhere.example.com/"})

    assert (unreachable.failure.failure_class, unreachable.failure.message) == ("network_error", "it is down")
    assert elsewhere.failure.failure_class == "capability_denied"


def test_an_exception_of_an_answer_function_reaches_the_test() -> None:
    """A function that answers a request can therefore contain assertions about that request."""

    @op
    def get() -> int:
        with asked.request("GET", ORIGIN + "/wrong") as got:
            return got.status

    def check(request: Request) -> Reply:
        assert request.url.endswith("/right"), request.url
        return Reply()

    with pytest.raises(AssertionError, match="/wrong"):
        call("get", answer=check)


def test_a_real_server_is_reached_without_a_jail(tmp_path: Path) -> None:
    """A library in the operation reaches it; the test credential replaces the placeholder, and other requests are unchanged."""

    @op
    def whoami() -> list[Any]:
        url, key = f"{hosts()[0].url}/me?x=1", transports.placeholder("api_key")
        library = requests.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=10)
        return [library.text, httpx.get(url).text, urllib.request.urlopen(url).read().decode()]

    authority = Authority(tmp_path)
    tls = __import__("ssl").create_default_context(cafile=authority.ca_file)
    with Upstream(
        lambda seen: answer(" ".join(seen.values("authorization")).encode()), authority.server_context("localhost")
    ) as upstream:
        origin = f"https://localhost:{upstream.port}"
        done = call("whoami", answer=for_real({"Authorization": "Bearer test"}, tls=tls), hosts=[origin])
        outside = requests.get(f"{origin}/outside", verify=str(authority.ca_file), timeout=10).text

    assert done.output == ["Bearer test", "", ""]
    assert [request.credential for request in done.requests] == ["api_key", None, None]
    assert outside == ""
    assert [seen.target for seen in upstream.requests] == ["/me?x=1"] * 3 + ["/outside"]


def test_a_key_in_a_path_becomes_its_placeholder() -> None:
    """A library's path has the literal placeholder, an SDK path has `{key}`; both need a named api_key credential."""
    key = transports.placeholder("api_key")

    @op
    def me() -> list[int]:
        other = transports.placeholder("oauth2")
        with pytest.raises(Exception, match="kind oauth2"):
            requests.get(f"{ORIGIN}/bot{other}/me", timeout=10)
        library = requests.get(f"{ORIGIN}/bot{key}/me?x=1", timeout=10).status_code
        with asked.request("GET", ORIGIN + "/bot{key}/me", credential="api_key") as got:
            assert repr(got) == "<Response 200 to GET " + ORIGIN + "/bot{key}/me>"
        with asked.request("GET", ORIGIN + "/bot{key}/me") as plain:
            return [library, got.status, plain.status]

    done = call("me", answer=[Reply(), Reply(), Reply()])

    assert done.output == [200, 200, 200]
    assert [(request.url.removeprefix(ORIGIN), request.credential) for request in done.requests] == [
        ("/bot%7Bkey%7D/me?x=1", "api_key"),
        ("/bot%7Bkey%7D/me", "api_key"),
        ("/bot{key}/me", None),
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(0, 3 << 20),
    chunked=st.booleans(),
    status=st.sampled_from([200, 204, 500]),
)
def test_a_library_s_request_is_the_same_however_its_bytes_are_split(
    seed: int, size: int, chunked: bool, status: int
) -> None:
    """http.client writes pieces of any size: they are one request with its whole body, and the answer is whole."""
    chance = random.Random(seed)
    body = chance.randbytes(size)
    pieces, at = [], 0
    while at < size:
        step = chance.choice([1, 7, 4096, 100_000, 1 << 20])
        pieces.append(body[at : at + step])
        at += step

    def send() -> list[Any]:
        connection = http.client.HTTPSConnection("notes.example.com", timeout=5)
        connection.putrequest("PUT", "/upload?a=b")
        connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
        connection.putheader("X-Twice", "1")
        connection.putheader("X-Twice", "2")
        connection.endheaders()
        for piece in pieces:
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            connection.send(b"0\r\n\r\n")
        got = connection.getresponse()
        return [got.status, hashlib.sha256(got.read()).hexdigest(), got.headers.get_all("x-seen")]

    operation.OPERATIONS.pop("send", None)
    op(send)
    said = b"" if status == 204 else body
    done = call("send", answer=[Reply(status, said, (("x-seen", "a"), ("x-seen", "b")))])

    assert done.output == [status, hashlib.sha256(said).hexdigest(), ["a", "b"]]
    (request,) = done.requests
    assert (request.method, request.url, request.body) == ("PUT", ORIGIN + "/upload?a=b", body)
    assert [value for name, value in request.headers if name == "X-Twice"] == ["1", "2"]


def test_outside_an_invocation_a_placeholder_is_an_ordinary_string() -> None:
    """A placeholder for a kind that cannot exist is an error."""
    assert transports.placeholder("api_key") == "aileron-credential-api_key-goes-here"
    with pytest.raises(ValueError, match="not a kind of credential"):
        transports.placeholder("not a kind")


def test_a_request_with_two_framings_is_not_sent() -> None:
    """requests makes one for a generator with a Content-Length, and would then send neither framing."""

    @op
    def send() -> str:
        try:
            requests.post(ORIGIN, data=iter([b"a"]), headers={"Content-Length": "1"}, timeout=5)
        except requests.ConnectionError as error:
            return str(error)
        return "sent"

    done = call("send")

    assert "both Content-Length and Transfer-Encoding" in done.output
    assert done.requests == ()


def test_an_error_status_raises_the_librarys_own_error() -> None:
    """The error is urllib.request's HTTPError, with its body."""

    @op
    def get() -> list[Any]:
        try:
            urllib.request.urlopen(ORIGIN + "/x")
        except urllib.error.HTTPError as error:
            with error:
                return [error.code, error.reason, error.read().decode()]
        return []

    assert call("get", answer=[Reply(404, b"none")]).output == [404, "Not Found", "none"]


def test_a_proxy_is_refused_with_the_reason() -> None:
    """A jail has no proxy, so a request must not appear to use one."""

    @op
    def get() -> str:
        connection = http.client.HTTPSConnection("proxy.example.com")
        connection.set_tunnel("notes.example.com")
        try:
            connection.request("GET", "/")
        except OSError as error:
            return str(error)
        return "sent"

    assert "the host sends all requests" in call("get").output
