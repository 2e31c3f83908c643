"""HTTP requests through the host, which checks each request, adds the credential, sends it, and streams the response back.

    with http.request("GET", "https://api.example.com/items", credential="api_key") as answer:
        items = answer.raise_for_status().json()

`credential` is the kind your manifest declares; the key itself never comes here. If the manifest puts the key in the
path, write `{key}` there: `https://api.telegram.org/bot{key}/getMe`. A redirect is returned like any other response: to
follow it, send another request. A response that is not read to its end must be closed (`with` does that).

Runs inside the jail; the host decides which requests are sent. Not here: retries, which the action declares.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from aileron_connector import loop
from aileron_connector.carried import read_json
from aileron_connector.failures import ExternalApiError, NetworkError, Refused
from aileron_sandbox import frames

__all__ = ["DEFAULT_READ_LIMIT_BYTES", "Headers", "Response", "hosts", "idempotency_key", "refusal", "request"]

DEFAULT_READ_LIMIT_BYTES: Final = 8 << 20
"""Default maximum size in bytes of a body that is read completely. When it is parsed, it fits into the 64 MiB that a
connector has by default.
"""

_KEY_DIGITS: Final = 32
"""Number of hex digits of an idempotency key: 128 bits, as in a UUID. Every service accepts that many; some accept at most
36 characters.
"""

Body = bytes | bytearray | memoryview | Iterable[bytes] | None


def hosts() -> list[frames.GrantedHost]:
    """Return the destinations that this invocation may reach. Each has `.host`, `.port`, `.plain`, `.login` and `.url` (the
    origin).
    """
    return list(loop.current().hosts)


def idempotency_key() -> str:
    """Return 32 hex digits by which a service recognizes a repeated request. They serve as an `Idempotency-Key` or a Matrix
    transaction id.

    Each attempt of a step has the same key, and no other step or run has that key. An operation that sends several such
    requests must make a different key for each, for example by appending a word. Raises RuntimeError outside an operation.
    """
    from hashlib import sha256  # imported late: most operations need no key

    return sha256(b"aileron idempotency key\0" + loop.current().invoke.invocation.encode()).hexdigest()[:_KEY_DIGITS]


def request(
    method: str,
    url: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    body: Body = None,
    credential: str | None = None,
    *,
    give_up_at: float | None = None,
) -> Response:
    """Send a request, wait for the head of the response (status and headers), and return the response.

    With a `credential`, the host replaces `{key}` in the path with the key, as `path` in the manifest says. `body` is bytes, or
    an iterable of bytes that is sent piece by piece. Raises NetworkError if the service is unreachable, Refused (host's
    failure class) if the host will not send it. After `give_up_at`, in seconds of `time.monotonic()`, waiting for the head or
    for more of the body raises TimeoutError.
    """
    conversation = loop.current()
    if isinstance(body, str):
        raise TypeError("a body is bytes; encode the text first")
    asked = url if credential is None else url.replace("{key}", "%7Bkey%7D")
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    what = f"{method} {url.partition('?')[0]}"
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body)
        if len(body) > frames.MAX_BODY_BYTES:
            body = [body]
    if body is None or isinstance(body, bytes):
        request_id = conversation.open(method, asked, pairs, credential, body, is_streamed=False)
    else:
        request_id = conversation.open(method, asked, pairs, credential, None, is_streamed=True)
        _upload(conversation, request_id, body)
    return _answer(conversation, request_id, what, give_up_at)


class Headers:
    """The headers of a response. Lookups ignore case."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs: Final = pairs

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of the header field `name`, or `default`."""
        return next(iter(self.get_all(name)), default)

    def get_all(self, name: str) -> list[str]:
        """Return every value of the header field `name`, in order."""
        return [value for known, value in self._pairs if known.lower() == name.lower()]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __contains__(self, name: str) -> bool:
        return bool(self.get_all(name))

    def __repr__(self) -> str:
        return f"<Headers {[name for name, _ in self._pairs]}>"


class Response:
    """The response to one request. Its status and headers are available at once, its body as it arrives."""

    def __init__(
        self,
        conversation: loop.Conversation,
        request_id: int,
        head: frames.HttpHead,
        what: str,
        give_up_at: float | None = None,
    ) -> None:
        self.status: Final = head.status
        self.headers: Final = Headers(head.headers)
        self._conversation: Final = conversation
        self._id: Final = request_id
        self._what: Final = what
        self._give_up_at: Final = give_up_at
        self._is_done = False
        self._whole: bytes | None = None

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body in pieces, as the host sends them. Raises Refused or NetworkError if the body breaks off."""
        while not self._is_done:
            message, piece = self._conversation.next_answer(self._id, _left(self._give_up_at))
            if isinstance(message, frames.Refused):
                self.close()
                raise refusal(message.error)
            if isinstance(message, frames.Chunk) and message.end:
                self.close()
            if piece:
                yield piece

    def read(self, limit_bytes: int = DEFAULT_READ_LIMIT_BYTES) -> bytes:
        """Read the complete body, and store it for later calls. Raises ExternalApiError if the body is larger than
        `limit_bytes`.
        """
        if self._whole is None:
            pieces, size = [], 0
            for piece in self.iter_bytes():
                size += len(piece)
                if size > limit_bytes:
                    self.close()
                    raise ExternalApiError(f"the answer to {self._what} is larger than {limit_bytes} bytes")
                pieces.append(piece)
            self._whole = b"".join(pieces)
        return self._whole

    def text(self, limit_bytes: int = DEFAULT_READ_LIMIT_BYTES) -> str:
        """Read the body as text in the charset that its header names, else as UTF-8. Bytes that do not decode become U+FFFD."""
        return self.decoded(self.read(limit_bytes))

    def decoded(self, data: bytes) -> str:
        """Decode `data`, a part of the body, in the charset that the response's header names, else as UTF-8."""
        content_type = self.headers.get("content-type", "") or ""
        charset = content_type.lower().partition("charset=")[2].partition(";")[0].strip(' "') or "utf-8"
        try:
            return data.decode(charset, "replace")
        except (LookupError, ValueError):  # the service chooses the charset, and some of Python's codecs cannot replace
            return data.decode("utf-8", "replace")

    def json(self, limit_bytes: int = DEFAULT_READ_LIMIT_BYTES) -> Any:
        """Read the body as JSON. Raises ExternalApiError if the body is not JSON.

        Lone surrogates become U+FFFD, and numbers that no frame can represent become text.
        """
        data = self.read(limit_bytes)
        try:
            return read_json(data)
        except msgspec.DecodeError as error:
            raise ExternalApiError(f"the answer to {self._what} is not JSON", status=self.status) from error

    def raise_for_status(self, words: str | None = None) -> Self:
        """Return this response if its status is below 400. Otherwise raise ExternalApiError with the status and Retry-After.

        `words` replace the usual message. In case of an error, the body is dropped.
        """
        if self.status < 400:
            return self
        self.close()
        raise ExternalApiError(
            words or f"{self._what} returned status {self.status}",
            status=self.status,
            retry_after_s=self.retry_after_s,
        )

    @property
    def retry_after_s(self) -> int | None:
        """Seconds after which the service allows a retry. None if it gave no number: a date would need the service's clock."""
        value = self.headers.get("retry-after", "") or ""
        return int(value) if value.isdecimal() and len(value) < 7 else None

    def close(self) -> None:
        """Drop the unread rest of the response, and tell the host to stop sending it."""
        if not self._is_done:
            self._is_done = True
            self._conversation.forget(self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Response {self.status} to {self._what}>"


def _left(give_up_at: float | None) -> float | None:
    return None if give_up_at is None else max(0.0, give_up_at - time.monotonic())


def _answer(conversation: loop.Conversation, request_id: int, what: str, give_up_at: float | None) -> Response:
    try:
        message, _ = conversation.next_answer(request_id, _left(give_up_at))
    except TimeoutError:
        conversation.forget(request_id)
        raise
    if isinstance(message, frames.Refused):
        conversation.forget(request_id)
        raise refusal(message.error)
    assert isinstance(message, frames.HttpHead)  # the session allows no other first frame
    return Response(conversation, request_id, message, what, give_up_at)


def _upload(conversation: loop.Conversation, request_id: int, body: Iterable[bytes]) -> None:
    """Send all pieces of a request's `body`. If the service responds before the end, the rest is not sent. If `body`
    raises, the request is cancelled.
    """
    try:
        for piece in body:
            view = memoryview(piece).cast("B")
            for at in range(0, len(view), frames.MAX_BODY_BYTES):
                if not conversation.upload(request_id, view[at : at + frames.MAX_BODY_BYTES]):
                    return
        conversation.upload(request_id, b"", end=True)
    except BaseException:
        conversation.forget(request_id)
        raise


def refusal(error: frames.FrameFailure) -> Refused:
    """Return the exception to raise for the error in a `refused` frame."""
    if error.failure_class == "network_error":
        return NetworkError(error.message, details=error.details)
    return Refused(error.failure_class, error.message, details=error.details)
