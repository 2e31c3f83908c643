"""The document's bytes, from the named files, folders, or URL. Nothing else is opened or requested.

Rules
- A folder stands for the JSON and YAML files in it; symbolic links in it are not followed, and no files outside it are read.
- A URL is https, or http on this machine. Redirects are followed within its own origin. No credential is sent.
- Sizes, counts and durations are limited before anything is parsed.

Runs in the author's command. Not here: parsing the bytes (reading.py).
"""

from __future__ import annotations

import itertools
import os
import stat
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aileron.importing.reading import MAX_BYTES, MAX_FILES, DocumentError, Files, read_all
from aileron.tls import client_context

__all__ = ["is_url", "load", "speaks_caldav"]

_SUFFIXES: Final = (".json", ".yaml", ".yml")
_MAX_LOOKED_AT: Final = 100_000
"""Maximum number of directory entries, of any kind, in a folder and its subfolders."""
_DEADLINE_S: Final = 60.0
_MOST_S: Final = 20.0
"""Seconds to wait in one step: for a connection to be established, or for bytes to arrive."""
_OF_SERVERS: Final = (400, 401, 405, 406)
"""Status codes with which MCP servers respond to a plain GET."""
_MAX_REDIRECTS: Final = 3
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def is_url(source: str) -> bool:
    """Return whether a source is a document's URL rather than a file."""
    return "://" in source


def load(sources: Sequence[str], *, deadline_s: float = _DEADLINE_S) -> Files:
    """Read the files, folders or URL in `sources`; the first is the document, the others are files that it may refer to.

    `deadline_s` is the total number of seconds for a URL. Raises DocumentError if a source cannot be read.
    """
    first = sources[0]
    if is_url(first):
        if len(sources) > 1:
            raise DocumentError("a document with a URL is one file: its other files are not fetched")
        data = _fetched(first, deadline_s)
        name = Path(urllib.parse.urlsplit(first).path).name or "document"
        return read_all(name, {name: data})
    if any(is_url(source) for source in sources[1:]):
        raise DocumentError("the other files of a document cannot be URLs")
    return _read_files([Path(source) for source in sources])


# Files


def _read_files(paths: Sequence[Path]) -> Files:
    root, *more = paths
    if os.path.isdir(root):
        raise DocumentError(f"{root} is a folder; name the document as SOURCE, and the folder with --also")
    every = itertools.chain([root], *(_below(path) if os.path.isdir(path) else [path] for path in more))
    found = list(itertools.islice(every, MAX_FILES + 1))
    absolute = list(dict.fromkeys(Path(os.path.abspath(path)) for path in found))
    if len(absolute) > MAX_FILES:
        raise DocumentError(f"more than {MAX_FILES} files")
    base = Path(os.path.commonpath([path.parent for path in absolute]))
    room = MAX_BYTES
    files: dict[str, bytes] = {}
    for path in absolute:
        data = _read(path, room)
        room -= len(data)
        files[path.relative_to(base).as_posix()] = data
    return read_all(absolute[0].relative_to(base).as_posix(), files)


def _below(folder: Path) -> Iterator[Path]:
    looked_at = 0
    for where, folders, names in os.walk(folder):
        looked_at += 1 + len(names)
        if looked_at > _MAX_LOOKED_AT:
            raise DocumentError(f"{folder} has more than {_MAX_LOOKED_AT} files in it; name a folder of the document's")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            if name.endswith(_SUFFIXES) and not name.startswith(".") and not path.is_symlink():
                yield path


def _read(path: Path, most: int) -> bytes:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise DocumentError(f"{path} is not a file")
            data = opened.read(most + 1)
    except FileNotFoundError:
        raise DocumentError(f"no such file: {path}") from None
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or error}") from None
    if len(data) > most:
        raise DocumentError(f"{path}: more than {MAX_BYTES} bytes in all")
    return data


# A URL


def speaks_caldav(url: str, *, deadline_s: float = _MOST_S) -> bool:
    """Return whether the server at a URL says that it has calendars (RFC 4791 section 5.1). False if it cannot be asked."""
    import httpcore2

    from aileron.importing.deadline import Backend

    try:
        _check_url(url)
        with (
            httpcore2.ConnectionPool(
                ssl_context=client_context(None, ("http/1.1",)), network_backend=Backend(time.monotonic() + deadline_s)
            ) as pool,
            pool.stream("OPTIONS", url, headers=_headers(url)) as answer,
        ):
            said = [value.decode("latin-1") for name, value in answer.headers if name.lower() == b"dav"]
    except (DocumentError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        return False
    return "calendar-access" in {word.strip() for value in said for word in value.split(",")}


def _fetched(url: str, deadline_s: float) -> bytes:
    import httpcore2  # 60 ms, and most documents are files

    from aileron.importing.deadline import Backend

    until = time.monotonic() + deadline_s
    try:
        with httpcore2.ConnectionPool(
            ssl_context=client_context(None, ("http/1.1",)), max_connections=1, network_backend=Backend(until)
        ) as pool:
            for _ in range(_MAX_REDIRECTS + 1):
                _check_url(url)
                status, headers, data = _asked(pool, url)
                if status not in (301, 302, 303, 307, 308):
                    break
                url = _next(url, headers)
            else:
                raise DocumentError(f"{url}: more than {_MAX_REDIRECTS} redirects")
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        if time.monotonic() > until:
            raise DocumentError(f"{url}: not complete after {deadline_s:.0f} s") from None
        raise DocumentError(f"{url} cannot be fetched: {error or type(error).__name__}") from None
    if status != 200:
        server = f"; for an MCP server, give mcp+{url}" if status in _OF_SERVERS else ""
        raise DocumentError(f"{url} answered with status {status}; download the document and give the file{server}")
    return data


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise DocumentError(f"{url[:200]!r} is not a URL") from None
    if not url.isascii() or not url.isprintable() or " " in url or not host:
        raise DocumentError(f"{url[:200]!r} is not a URL: write other characters as %XX, and a host in its xn-- form")
    if parts.username is not None:
        raise DocumentError("the URL has a user or a password in it: download the document and give the file")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise DocumentError(
            f"{url[:200]}: expected https://…, or http:// on this machine; or download it and give the file"
        )


def _asked(pool: Any, url: str) -> tuple[int, dict[bytes, bytes], bytes]:
    most = dict.fromkeys(("connect", "read", "write", "pool"), _MOST_S)
    with pool.stream("GET", url, headers=_headers(url), extensions={"timeout": most}) as answer:
        data = bytearray()
        for piece in answer.iter_stream():
            data += piece
            if len(data) > MAX_BYTES:
                raise DocumentError(f"{url}: more than {MAX_BYTES} bytes")
        return answer.status, {name.lower(): value for name, value in answer.headers}, bytes(data)


def _headers(url: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Host", urllib.parse.urlsplit(url).netloc.encode()),
        (b"Accept", b"application/json, application/yaml, */*"),
        (b"User-Agent", b"aileron"),
    ]


def _next(url: str, headers: dict[bytes, bytes]) -> str:
    target = urllib.parse.urljoin(url, headers.get(b"location", b"").decode("latin-1"))
    here, there = urllib.parse.urlsplit(url), urllib.parse.urlsplit(target)
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        raise DocumentError(
            f"{url} redirects to {there.scheme}://{there.netloc[:100]}: name that address if you mean it"
        )
    return target
