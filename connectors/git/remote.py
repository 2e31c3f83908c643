"""Client for one repository on a server, over the stream that the supervisor opened. It lists refs, fetches packs and pushes.

The supervisor logs in and has the server execute `git-upload-pack` or `git-receive-pack`; dulwich speaks git's protocol on the
stream. This code has no key. The server is not trusted: the number of bytes that it sends is bounded, and a breach of the
protocol becomes a failure with a message.

Source: gitprotocol-pack(5), gitprotocol-v2(5). Not here: a pack's contents (packs.py).
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from dulwich.client import SSHGitClient, SSHVendor
from dulwich.errors import GitProtocolError, HangupException, ObjectFormatException, SendPackError
from dulwich.objects import ObjectID
from dulwich.pack import pack_objects_to_data
from dulwich.refs import Ref

from aileron_connector import BadInput, ConnectorError, ExternalApiError, hosts, tcp

__all__ = ["MAX_PACK_BYTES", "NO_COMMIT", "PackOf", "Remote", "TooLarge", "is_id", "said"]

_Name = TypeVar("_Name", bound=bytes)

MAX_PACK_BYTES: Final = 16 << 20
"""Maximum size of one compressed pack in bytes. A pack is held in memory, and the jail of this connector has 256 MiB."""
MAX_REFS_BYTES: Final = 8 << 20
"""Maximum number of bytes that a server may send in addition to packs; enough for about 100,000 refs."""
NO_COMMIT: Final = b"0" * 40
"""Object id that stands for "no commit" in git's protocol."""
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9._/@:+,=~-]{0,511}")
_ID: Final = re.compile(r"[0-9a-f]{40}")
_NO_ACCESS: Final = re.compile(
    r"not found|not be found|does not appear to be a git repository|permission|access denied|not authori[sz]ed",
    re.IGNORECASE,
)
"""Pattern of messages with which git and forges report a repository that does not exist or that this key cannot access.
The messages do not say which of the two is the case.
"""
_CURE: Final = "check the name of the repository, and that the key has been given access to it"
_NOT_THE_PROTOCOL: Final = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ObjectFormatException,
    zlib.error,
)
"""Exceptions that dulwich raises if a server breaks the protocol."""

logging.getLogger("dulwich").setLevel(logging.ERROR)  # no warnings: a server's answer shows what it cannot do


class TooLarge(ConnectorError):
    """Error: the data is larger than this connector can store in memory."""

    def __init__(self, what: str, limit: str, fix: str) -> None:
        super().__init__("external_api_error", f"too large: {what}, and at most {limit} fit; {fix}")


class PackOf:
    """The result of a fetch: the pack's bytes, the server's refs, the ref of HEAD, and those `known` ids that the server
    has too.
    """

    def __init__(self, pack: bytes, refs: dict[bytes, bytes], head: bytes | None, shared: frozenset[bytes]) -> None:
        self.pack: Final = pack
        self.head: Final = head
        self.refs: Final = refs
        self.shared: Final = shared


class Remote:
    """A repository, named by its path on the one server that this connector was built for."""

    def __init__(self, repository: str) -> None:
        """Check the repository's path. Raises BadInput if it could be unsafe in a command line."""
        if not _REPOSITORY.fullmatch(repository) or ".." in repository.split("/"):
            words = "repository is not a path of letters, digits and ._/@:+,=~- such as team/website.git"
            raise BadInput(words, argument="repository")
        granted = hosts()
        if len(granted) != 1:
            fix = "build it with `aileron connector build --login ssh://HOST:PORT`"
            words = f"this connector is for exactly one server, and {len(granted)} are granted: {fix}"
            raise ConnectorError("connector_runtime_error", words)
        self._path: Final = repository
        self._host: Final = granted[0]
        self.gives_any_object = False
        """True if the server sends any object by its id (version 2 of the protocol). Set by the first fetch."""

    def refs(self) -> tuple[dict[bytes, bytes], bytes | None]:
        """Return all refs with `HEAD` and peeled tags (`refs/tags/x^{}`), and the ref of HEAD if the server reports it."""
        client, _ = self._client(MAX_REFS_BYTES)
        with said():
            found = client.get_refs(self._path.encode())
            refs = {bytes(name): bytes(value) for name, value in found.refs.items() if value is not None}
        return _checked(refs), _head(found.symrefs)

    def fetch(
        self,
        wants: Callable[[dict[bytes, bytes]], list[bytes]],
        *,
        depth: int | None = None,
        leave_out: str | None = None,
        known: tuple[bytes, ...] = (),
        limit_bytes: int = MAX_PACK_BYTES,
    ) -> PackOf:
        """Fetch a pack with the objects whose ids `wants` returns; `wants` is called with the server's refs. Raises
        TooLarge, or ExternalApiError if the server does not send the pack.

        `leave_out` is a filter of git's (`blob:none`), which servers that speak version 2 of the protocol apply. `known` are ids
        of commits whose history need not be sent.
        """
        pack = bytearray()
        client, wire = self._client(MAX_REFS_BYTES + limit_bytes)
        walker = _Known(known)

        def keep(data: bytes) -> int:
            if len(pack) + len(data) > limit_bytes:
                fix = "ask for less history, or for another ref"
                raise TooLarge("the server sends more", f"{limit_bytes / (1 << 20):.3g} MiB", fix)
            pack.extend(data)
            return len(data)

        def choose(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            chosen.extend(map(ObjectID, _unique(wants(_checked(refs)))))
            return chosen

        chosen: list[ObjectID] = []
        spec = None if leave_out is None else leave_out.encode()
        with said():
            found = client.fetch_pack(self._path.encode(), choose, walker, keep, depth=depth, filter_spec=spec)
            refs = {bytes(name): bytes(value) for name, value in found.refs.items() if value is not None}
        wire.close()
        self.gives_any_object = client.protocol_version == 2
        return PackOf(bytes(pack), _checked(refs), _head(found.symrefs), frozenset(walker.shared))

    def push(self, change: Callable[[dict[bytes, bytes]], dict[bytes, bytes]], objects: list[Any]) -> None:
        """Move refs, with `objects` (of dulwich) as the pack. `change` gets the server's refs, and returns the refs to
        move with their new ids. It raises an exception if no ref may be moved.

        The server moves a ref only if it is still where `change` saw it. Raises ExternalApiError if the server refuses, or if
        it is unknown whether the server moved the refs.
        """
        wanted: dict[bytes, bytes] = {}

        def choose(refs: dict[Ref, ObjectID]) -> dict[Ref, ObjectID]:
            wanted.update(change(_checked(refs)))
            return {Ref(name): ObjectID(value) for name, value in wanted.items()}

        def pack(*_ids: Any, **_options: Any) -> Any:
            return pack_objects_to_data([(git_object, None) for git_object in objects], deltify=False)

        client, wire = self._client(MAX_REFS_BYTES)
        try:
            with said():
                found = client.send_pack(self._path.encode(), choose, pack)
        except (ConnectorError, OSError) as error:
            if not wanted or isinstance(error.__cause__, SendPackError):
                raise  # nothing was requested yet, or the server refused
            names = ", ".join(map(_shown, wanted))
            words = f"{_shown(error)}; whether {names} was moved is not known: look with list_refs"
            raise ExternalApiError(words) from error
        wire.close()
        told = found.ref_status or {}
        for name in wanted:
            if name not in told:
                words = f"the server did not say whether it has moved {_shown(name)}; look with list_refs"
                raise ExternalApiError(words)
            if told[name] is not None:
                raise ExternalApiError(f"the server refused to move {_shown(name)}: {_shown(told[name])}")

    def _client(self, limit_bytes: int) -> tuple[SSHGitClient, _Vendor]:
        vendor = _Vendor(limit_bytes)
        client = SSHGitClient(self._host.host, port=self._host.port, vendor=vendor, thin_packs=False, quiet=True)
        return client, vendor


def is_id(text: str) -> bool:
    """Return whether `text` is the full id of an object, that is, 40 hexadecimal digits in lower case."""
    return _ID.fullmatch(text) is not None


@contextmanager
def said() -> Iterator[None]:
    """Turn errors of dulwich in the block into failures with a message. Errors of the host's stream and of this
    connector are raised unchanged.

    If the remote command failed, its error output is the message, because git reports there that a repository does not exist.
    """
    try:
        yield
    except ConnectorError:
        raise
    except OSError as error:
        host = _of_the_host(error)
        if host is None:
            raise
        raise _said_by_host(host) from error
    except SendPackError as error:
        raise ExternalApiError(f"the server refused the push: {_shown(error)}") from error
    except (HangupException, GitProtocolError) as error:
        host = _of_the_host(error)
        raise (ExternalApiError(_words_of(error)) if host is None else _said_by_host(host)) from error
    except _NOT_THE_PROTOCOL as error:
        raise ExternalApiError(f"the server sent what git does not send ({type(error).__name__})") from error


def _of_the_host(error: BaseException) -> ConnectorError | None:
    """Return the ConnectorError that caused an error of dulwich, such as a failure that the daemon reported. None if
    there is none.
    """
    cause = error.__cause__
    while cause is not None and not isinstance(cause, ConnectorError):
        cause = cause.__cause__
    return cause


def _said_by_host(host: ConnectorError) -> ConnectorError:
    """Return the failure that the daemon reported, or an ExternalApiError with the server's message if the failure has one."""
    words = host.details.get("said")
    return ExternalApiError(_quoted(words)) if words else host


def _words_of(error: Exception) -> str:
    if isinstance(error, HangupException):
        return "the server ended the connection: there may be no such repository, or the key may not be let in to it"
    return _quoted(error)


def _quoted(words: object) -> str:
    said = f"the server says: {_shown(words)}"
    return f"{said}; {_CURE}" if _NO_ACCESS.search(said) else said


class _Vendor(SSHVendor):
    """Replacement for dulwich's SSH client. To execute a command, it opens a stream, and the supervisor executes the
    command on it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: Final = limit_bytes
        self._wire: _Wire | None = None

    def run_command(  # type: ignore[override]  # dulwich passes all else by name, and needs no more of a process
        self, host: str, command: bytes, username: Any = None, port: Any = None, **_options: Any
    ) -> _Wire:
        self._wire = _Wire(tcp.connect(host, port, command=command.decode()), self._limit_bytes)
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


class _Wire:
    """A stream of the host with the interface that dulwich needs. Reading raises TooLarge after `limit_bytes`."""

    def __init__(self, stream: tcp.Stream, limit_bytes: int) -> None:
        self._stream: Final = stream
        self._file: Final = stream.makefile("rb")
        self._limit_bytes: Final = limit_bytes
        self._left_bytes = limit_bytes

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(min(size, self._left_bytes + 1))
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            most = f"{self._limit_bytes / (1 << 20):.3g} MiB of one connection"
            raise TooLarge("the server sends more", most, "ask for less")
        return data

    def write(self, data: bytes) -> int:
        self._stream.sendall(data)
        return len(data)

    def can_read(self) -> bool:
        return False  # do not read between two `have` lines: there are few, and all are sent at once

    def close(self) -> None:
        self._file.close()
        self._stream.close()


class _Known:
    """Graph walker for dulwich: an iterator over the known commits. Those that the server has, too, are collected in
    `shared`.
    """

    shallow: frozenset[bytes] = frozenset()

    def __init__(self, known: tuple[bytes, ...]) -> None:
        self._left: Final = [ObjectID(sha) for sha in known]
        self._known: Final = frozenset(known)
        self.shared: Final[set[bytes]] = set()

    def __next__(self) -> ObjectID | None:
        return self._left.pop(0) if self._left else None

    next = __next__

    def ack(self, sha: bytes) -> None:
        if sha in self._known:
            self.shared.add(sha)

    def nak(self) -> None:
        """Ignore the server's report that it has none of the known commits."""


def _checked(refs: Mapping[_Name, bytes]) -> dict[bytes, bytes]:
    """Return only the refs with a valid id and a printable name; the others are ignored."""
    return {
        name: value
        for name, value in refs.items()
        if len(name) <= 512 and is_id(value.decode("ascii", "replace")) and _is_text(name) and value != NO_COMMIT
    }


def _head(symrefs: dict[Any, Any]) -> bytes | None:
    head = symrefs.get(b"HEAD")
    return bytes(head) if head is not None and _is_text(head) else None


def _is_text(name: bytes) -> bool:
    try:
        return name.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


def _unique(ids: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(ids))


def _shown(words: object) -> str:
    """Return a server's message as one short, printable line."""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
    return "".join(char if char.isprintable() else " " for char in text).strip()[:300] or "nothing"
