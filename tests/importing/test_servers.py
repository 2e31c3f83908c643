"""Requests go to one host that a person can read, or the import fails."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.importing.reading import DocumentError
from aileron.importing.servers import chosen, origin_of, remarks
from aileron.model.names import HostPort
from tests.importing.documents import document, imported, one_operation, reason_of

FOUND_AT = "https://docs.example.com/api/openapi.json"


@pytest.mark.parametrize(
    ("url", "found_at", "origin"),
    [
        ("https://api.example.com", None, "https://api.example.com"),
        ("https://api.example.com/v1/", None, "https://api.example.com/v1"),
        ("https://API.example.com:8443/v1", None, "https://api.example.com:8443/v1"),
        ("http://localhost:8765", None, "http://localhost:8765"),
        ("/v2", FOUND_AT, "https://docs.example.com/v2"),
        ("v2", FOUND_AT, "https://docs.example.com/api/v2"),
        ("../v2", FOUND_AT, "https://docs.example.com/v2"),
        ("//other.example.com/v2", FOUND_AT, "https://other.example.com/v2"),
        ("https://{region}.example.com/{stage}", None, "https://eu.example.com/v1"),
    ],
)
def test_a_servers_url_becomes_a_host_and_a_path(url: str, found_at: str | None, origin: str) -> None:
    """Variables are filled in, and a relative address starts where the document was found."""
    variables = {"region": {"default": "{area}"}, "area": {"default": "eu"}, "stage": {"default": "v0"}}
    there = chosen([{"url": url, "variables": variables}], found_at, None, {"stage": "v1"})

    assert there is not None
    assert there.url == origin


@pytest.mark.parametrize(
    "url", ["/v1", "", "//api.example.com", "ftp://api.example.com", "file:///etc/passwd", "javascript:x"]
)
def test_a_server_without_a_usable_host_gives_no_origin(url: str) -> None:
    """The importer then asks the author for a host."""
    assert chosen([{"url": url}], None, None, {}) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://good.example@evil.example",
        "https://good.example\\@evil.example",
        "https://good.example:pass@evil.example/",
        "https://evil.example\\.good.example",
        "https://evil.example%2egood.example",
        "https://gооd.example",
        "https://good.example。evil",
        "https://[::1]/v1",
        "https://[",
        "https://h..example",
        "https://h.example./x",
        "https://0x7f.1",
        "https://2130706433",
        "https://127.1",
        "https://h.example:99999",
        "https://h.example:443:443",
        "https://h.example?x=1",
        "https://h.example#x",
        "https://h.example/../x",
        "https://h.example/./x",
        "https://h.example/%2e%2e/x",
        "https://h.example/a//b",
        "https://h.example/\u202ex",
        "https://h.example/{",
        "x" * 1001,
    ],
)
def test_an_unusual_server_address_is_refused(url: str) -> None:
    """A person must be able to see from the address where requests go."""
    with pytest.raises(DocumentError):
        chosen([{"url": url}], FOUND_AT, None, {})
    with pytest.raises(DocumentError):
        origin_of(url)


@pytest.mark.parametrize("url", ["//[", "https://[", "{a}"])
def test_an_invalid_server_url_is_an_error_even_if_the_author_gives_a_host(url: str) -> None:
    """The author's host replaces only the URL's host; its path is still used."""
    with pytest.raises(DocumentError):
        chosen([{"url": url}], None, HostPort.parse("api.example.com:443"), {})


@pytest.mark.parametrize(
    "server", [None, 1, "x", [], {}, {"url": 1}, {"url": None}, {"url": "{a}", "variables": {"a": 1}}]
)
def test_an_invalid_server_is_an_error(server: Any) -> None:
    """A server entry may have any type."""
    with pytest.raises(DocumentError):
        chosen([server], None, None, {})


@pytest.mark.computes_for(5)
@pytest.mark.parametrize("default", ["{a}" * 80, "{a}" * 300_000, "x" * 200])
def test_the_expansion_of_server_variables_is_bounded(default: str) -> None:
    """Each of a thousand variables in the address can expand to thousands."""
    server = {"url": "https://" + "{a}" * 300, "variables": {"a": {"default": default}}}
    with pytest.raises(DocumentError):
        chosen([server], None, None, {})


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://api.example.com", []),
        ("https://xn--80ak6aa92e.com", ["an international name (аррӏе.com)"]),
        ("https://10.0.0.1", ["in a private network"]),
        ("https://169.254.169.254", ["in a private network"]),
        ("https://metadata.internal", ["in a private network"]),
        (
            "https://localhost",
            ["egress.private localhost:443\n  or, if it has no TLS: aileron config add egress.private_plain"],
        ),
        ("http://localhost:8765", ["fix: aileron config add egress.private_plain localhost:8765"]),
        ("https://intranet", ["in a private network"]),
        ("http://api.example.com", ["no TLS"]),
    ],
)
def test_a_suspicious_host_is_reported(url: str, words: list[str]) -> None:
    """The author sees it before a key is bound to that host."""
    told = remarks(origin_of(url))

    assert len(told) == len(words)
    assert all(word in remark for word, remark in zip(words, told, strict=True))


def test_an_allowed_host_is_not_reported_as_refused() -> None:
    """A host that is allowed only with TLS is still reported if its URL has none."""
    plain, private = origin_of("http://localhost:8765"), origin_of("https://10.0.0.1")

    assert remarks(plain, plain={plain.host}) == []
    assert remarks(private, private={private.host}) == []
    assert remarks(private, plain={private.host}) == []
    assert len(remarks(plain, private={plain.host})) == 1


def test_an_address_guessed_from_the_documents_url_is_marked_as_a_guess() -> None:
    """The importer guesses the address that the document came from. One from the document or the author is no guess."""
    bare = {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {"/a": {"get": {}}}}
    at = "https://api.example.com/docs/openapi.json"

    guessed = imported(bare, found_at=at)
    assert (guessed.origins[0].url, guessed.is_guessed_address) == ("https://api.example.com", True)
    assert not imported({**bare, "servers": [{"url": "/v1"}]}, found_at=at).is_guessed_address
    assert not imported(bare, found_at=at, server="https://api.example.com/v2").is_guessed_address


def test_the_separate_host_of_an_operation_is_in_the_manifest() -> None:
    """Author and installer see the host there, and requests of other operations do not go to it."""
    paths = {"/a": {"get": {}}, "/b": {"servers": [{"url": "https://evil.example/x"}], "get": {}}}
    made = imported(document(paths))

    assert [str(origin.host) for origin in made.origins] == ["api.example.com:443", "evil.example:443"]
    assert b'hosts = ["api.example.com:443", "evil.example:443"]' in made.files["manifest.toml"]


def test_a_host_that_the_author_gives_is_the_only_host_of_the_connector() -> None:
    """The document cannot add another: operations elsewhere are not imported, and the reason names their host."""
    paths = {"/a": {"get": {}}, "/b": {"servers": [{"url": "https://evil.example/x"}], "get": {"operationId": "b"}}}
    made = imported(document(paths), host=HostPort.parse("mine.example:443"))

    assert [str(origin.host) for origin in made.origins] == ["mine.example:443"]
    assert b"evil.example" not in b"".join(made.files.values())
    assert "evil.example:443" in reason_of(made, "b")


def test_the_relative_server_of_an_operation_overrides_the_server_of_the_document() -> None:
    """`/v2` of the operation is not `/v1` of the document."""
    paths = {"/a": {"get": {}}, "/b": {"get": {"operationId": "b", "servers": [{"url": "/v2"}]}}}

    assert "a server of its own" in reason_of(imported(document(paths)), "b")
    assert [origin.url for origin in imported(document(paths), found_at=FOUND_AT).origins] == [
        "https://api.example.com/v1",
        "https://docs.example.com/v2",
    ]


def test_the_number_of_hosts_is_bounded() -> None:
    """A person has to read them all."""
    paths = {f"/{n}": {"get": {"servers": [{"url": f"https://h{n}.example"}]}} for n in range(40)}
    with pytest.raises(DocumentError, match="hosts; a connector has at most"):
        imported(document(paths))
    assert len(imported(one_operation({})).origins) == 1
