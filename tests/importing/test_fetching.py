"""The document's bytes come only from the named source: a real server or a real file system."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aileron.importing.fetching import is_url, load
from aileron.importing.found import described
from aileron.importing.reading import MAX_BYTES, MAX_FILES, DocumentError
from tests.support.upstream import CLOSE, Script, Seen, Upstream

DOCUMENT = b'{"openapi": "3.1.0"}'


class Server(Upstream):
    """A server that answers each request with bytes from the test, and then closes the connection."""

    def __init__(self) -> None:
        super().__init__(self._closing)
        self.answer: Script = lambda _seen: b""
        self.origin = f"http://127.0.0.1:{self.port}"

    def says(self, *parts: bytes) -> None:
        """Answer each request with these bytes."""
        self.answer = lambda _seen: parts

    @contextmanager
    def dripping(self, begin: bytes, drop: bytes) -> Iterator[None]:
        """Begin to answer each request so, and add a drop every now and then until the block ends."""
        stopped = threading.Event()

        def drip(_seen: Seen) -> Iterator[bytes]:
            yield begin
            while not stopped.wait(0.02):
                yield drop

        self.answer = drip
        yield
        stopped.set()

    def _closing(self, seen: Seen) -> Iterator[bytes | memoryview]:
        said = self.answer(seen)
        yield from [said] if isinstance(said, bytes) else said
        yield CLOSE


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server on this machine."""
    with Server() as http_server:
        yield http_server


def answered(body: bytes, status: str = "200 OK", *headers: bytes) -> bytes:
    """Return a whole response."""
    lines = [f"HTTP/1.1 {status}".encode(), b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


# A URL


def test_a_url_is_fetched_with_one_request_without_a_credential(server: Server) -> None:
    """The response's body is the document."""
    server.says(answered(DOCUMENT))

    assert load([f"{server.origin}/v1/api.json?x=1"]).document == {"openapi": "3.1.0"}
    (request,) = server.requests
    assert request.head.startswith(b"GET /v1/api.json?x=1 HTTP/1.1\r\n")
    assert not any(word in request.head.lower() for word in (b"authorization", b"cookie", b"accept-encoding"))


def test_a_redirect_to_another_origin_is_not_followed(server: Server) -> None:
    """The error names another target, which gets no request."""
    there = server.origin.encode()
    with Server() as other:
        targets = {
            "/a": b"/b",
            "/b": there + b"/c",
            "/d": other.origin.encode(),
            "/e": b"//evil.example/",
            "/f": b"file:///etc/passwd",
        }

        def redirect(seen: Seen) -> bytes:
            target = targets.get(seen.target)
            return answered(DOCUMENT) if target is None else answered(b"", "302 Found", b"Location: " + target)

        server.answer = redirect

        assert load([f"{server.origin}/a"]).document == {"openapi": "3.1.0"}
        for path, where in (("/d", other.origin), ("/e", "http://evil.example"), ("/f", "file://")):
            with pytest.raises(DocumentError, match=f"redirects to {where}"):
                load([server.origin + path])
        assert other.requests == []


def test_redirects_are_bounded(server: Server) -> None:
    """The server redirects to the same URL again and again."""
    server.says(answered(b"", "302 Found", b"Location: /"))

    with pytest.raises(DocumentError, match="more than 3 redirects"):
        load([server.origin])
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answered(b"no", "404 Not Found"), "answered with status 404; download the document and give the file$"),
        (answered(b"no", "405 Method Not Allowed"), "for an MCP server, give mcp\\+http://"),
        (answered(b"<html>"), "^document: not an OpenAPI document: it is no object$"),
        (answered(gzip.compress(DOCUMENT), "200 OK", b"Content-Encoding: gzip"), "not UTF-8"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", "cannot be fetched"),
        (b"SSH-2.0-x\r\n", "cannot be fetched"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "cannot be fetched"),
        (b"", "cannot be fetched"),
    ],
)
def test_a_response_that_is_not_an_api_document_is_an_error(server: Server, answer: bytes, words: str) -> None:
    """Compressed bodies are not decompressed. An HTML page parses as a YAML string, which describes no API."""
    server.says(answer)
    with pytest.raises(DocumentError, match=words):
        described(load([server.origin]))


def test_an_oversized_response_is_aborted(server: Server) -> None:
    """The connection closes before the server has sent twice the limit."""
    sent = 0

    def endless(_seen: Seen) -> Iterator[bytes]:
        nonlocal sent
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            sent += 65536
            yield b" " * 65536

    server.answer = endless
    with pytest.raises(DocumentError, match=f"more than {MAX_BYTES} bytes"):
        load([server.origin])
    assert sent < 2 * MAX_BYTES


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["in the head", "in the body"])
def test_a_slowly_dripping_response_ends_at_the_deadline(server: Server, head: bytes) -> None:
    """Each byte arrives before a read timeout, but the response never ends."""
    drop = b" " if head else b"H"
    with server.dripping(head, drop), pytest.raises(DocumentError, match=r"not complete after|cannot be fetched"):
        load([server.origin], deadline_s=0.3)


def test_slowly_dripping_headers_end_at_the_deadline(server: Server) -> None:
    """The header lines so far are all valid, but they never end."""
    with server.dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), pytest.raises(DocumentError, match="not complete after"):
        load([server.origin], deadline_s=0.3)


def test_an_unreachable_server_is_an_error(server: Server) -> None:
    """The failure names the address."""
    server.__exit__()
    with pytest.raises(DocumentError, match=f"{server.origin} cannot be fetched"):
        load([server.origin])


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/x",
        "file:///etc/passwd",
        "gopher://localhost/x",
        "ftp://localhost/x",
        "https://user@localhost/x",
        "https://user:pass@localhost/x",
        "http://localhost@evil.example/",
        "http://[",
        "https://[::1",
        "http://localhost:99999/",
        "http://localhost:x/",
        "https:///x",
        "http://localhost/a b",
        "http://localhost/\u202e",
        "http://localhost/\x1b[2J",
        "https://exämple.com/",
        "://",
    ],
)
def test_an_unusual_url_is_refused(url: str) -> None:
    """The cases have another scheme, a user, an invalid port or an invisible character. No request is sent."""
    assert is_url(url)
    with pytest.raises(DocumentError):
        load([url])


def test_a_url_and_local_files_cannot_be_given_together(server: Server, tmp_path: Path) -> None:
    """A document with a URL is one file, and the other files of a local document are local."""
    file = tmp_path / "a.json"
    file.write_bytes(DOCUMENT)

    with pytest.raises(DocumentError, match="is one file"):
        load([server.origin, str(file)])
    with pytest.raises(DocumentError, match="cannot be URLs"):
        load([str(file), server.origin])
    assert server.requests == []


# Files


def test_only_json_and_yaml_files_of_a_folder_are_read(tmp_path: Path) -> None:
    """The importer reads JSON and YAML files at any depth, but no hidden files and no links."""
    secret = tmp_path / "secret.json"
    secret.write_bytes(b'"secret"')
    folder = tmp_path / "api"
    (folder / "schemas" / ".git").mkdir(parents=True)
    for name in (
        "api.json",
        "schemas/a.yaml",
        "schemas/b.yml",
        "schemas/.hidden.json",
        "schemas/.git/c.json",
        "schemas/d.txt",
    ):
        (folder / name).write_bytes(DOCUMENT)
    (folder / "schemas" / "link.json").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)

    assert set(load([str(folder / "api.json"), str(folder)]).values) == {"api.json", "schemas/a.yaml", "schemas/b.yml"}
    assert set(load([str(folder / "api.json"), str(secret)]).values) == {"api/api.json", "secret.json"}  # named


def test_a_missing_document_or_special_file_is_an_error(tmp_path: Path) -> None:
    """Opening a FIFO, for example, does not block."""
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    for name, words in (
        ("fifo.json", "is not a file"),
        ("/dev/zero", "is not a file"),
        ("loop.json", "loop.json"),
        ("nothing.json", "no such file"),
        (".", "is a folder"),
        ("a" * 5000, "name too long"),
        ("fifo.json/x", "[Nn]ot a directory"),
    ):
        with pytest.raises(DocumentError, match=f"(?i){words}"):
            load([str(tmp_path / name)])


def test_a_fifo_in_a_folder_is_an_error(tmp_path: Path) -> None:
    """The FIFO's name looks like a document's, and opening it would block."""
    (tmp_path / "api.json").write_bytes(DOCUMENT)
    os.mkfifo(tmp_path / "fifo.json")

    with pytest.raises(DocumentError, match=r"fifo.json is not a file"):
        load([str(tmp_path / "api.json"), str(tmp_path)])


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    """A folder with too many files is refused before they are read."""
    (tmp_path / "many").mkdir()
    (tmp_path / "api.json").write_bytes(DOCUMENT)
    for number in range(MAX_FILES):
        (tmp_path / "many" / f"{number}.json").touch()

    with pytest.raises(DocumentError, match=f"more than {MAX_FILES} files"):
        load([str(tmp_path / "api.json"), str(tmp_path / "many")])


def test_the_total_size_of_all_files_is_bounded(tmp_path: Path) -> None:
    """The excess is not read."""
    for name in ("a.json", "b.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(MAX_BYTES)

    with pytest.raises(DocumentError, match=r"b\.json: more than"):
        load([str(tmp_path / "a.json"), str(tmp_path / "b.json")])


def test_a_file_name_that_is_not_utf_8_is_accepted(tmp_path: Path) -> None:
    """Linux allows such names."""
    (tmp_path / "api.json").write_bytes(DOCUMENT)
    (tmp_path / "\udcff #%.json").write_bytes(DOCUMENT)

    assert len(load([str(tmp_path / "api.json"), str(tmp_path)]).values) == 2
