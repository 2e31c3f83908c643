"""Encoding and decoding of frames, the messages between a jailed connector and its host.

A frame is two 4-byte big-endian lengths (header, body), the header (a MessagePack map, one message of frame_messages.py), and
the raw body. Runs on both sides of the jail and trusts neither. No I/O: callers read and write.

Rules
- Lengths are checked when the prefix is complete, before anything else of the frame is stored or allocated. If the body is
  too long, the header is still read, because it distinguishes an output that exceeds a limit from a broken protocol.
- Any key order, integer width and float width is accepted. Duplicate keys at any depth, unknown or missing fields, wrong
  types, bin and ext types, NaN and infinities, keys that are not strings, invalid UTF-8, values nested deeper than
  MAX_DEPTH, bytes after the map, and a body where none belongs raise FrameError.
- After a FrameError a decoder is unusable: every later call raises the error again.
- next_frame() returns None if no frame is complete yet. Before you call feed() again, call next_frame() until it
  returns None.

    prefix_and_header, body = encode(Chunk(id=1), b"...")
    decoder = Decoder(FromJail)
    decoder.feed(prefix_and_header)
    decoder.feed(body)
    frame = decoder.next_frame()

Source: docs/reference/frames.md, version 1; https://github.com/msgpack/msgpack/blob/master/spec.md.
Not here: which frame may follow which (session.py).
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, get_args, get_origin

import msgspec

from aileron_sandbox.frames.frame_messages import (
    Chunk,
    FrameFailure,
    FromJail,
    HttpRequest,
    Message,
    Result,
    ToJail,
    WebSocketMessage,
)

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_DEPTH",
    "MAX_HEADER_BYTES",
    "Decoder",
    "Frame",
    "FrameError",
    "FrameTooLargeError",
    "check_json",
    "encode",
]

MAX_HEADER_BYTES: Final = 64 << 10
"""Maximum size of a header, 64 KiB: several times what HTTP servers allow for all headers of a request (h11 and
nginx: 16 and 32 KiB).
"""
MAX_BODY_BYTES: Final = 1 << 20
"""Maximum size of a body, 1 MiB. An ordinary user's largest pipe has this size (pipe-max-size), so one chunk can be one write."""
MAX_DEPTH: Final = 64
"""Maximum nesting of lists and maps. Responses of real services stay below 20 levels; CPython's own limit is about 1,000."""
MAX_OUTPUT_VALUES: Final = 1 << 17
"""Maximum number of values in an output sent as the body. One byte can be an empty map of 64 bytes in memory: without
this bound 1 MiB from a jail would be 70 MiB in the host. With it, at most 9 MiB. 1 MiB of floats, the largest number of
values in a useful output, is just within the bound.
"""

_PREFIX_BYTES: Final = 8
_MAX_WALK_DEPTH: Final = MAX_DEPTH + 2
"""Maximum nesting of a complete header. MAX_DEPTH applies to values, which are one or two levels inside of a header
(check_json).
"""
_MAX_BUFFERED_BYTES: Final = 2 * (_PREFIX_BYTES + MAX_HEADER_BYTES + MAX_BODY_BYTES)
"""Maximum number of bytes that a decoder buffers: one incomplete frame, and one read of the size of the largest pipe."""
_SMALL_CHUNK_BYTES: Final = 4096
"""Size in bytes below which received pieces are merged, so that single bytes from a peer do not take a Python object each."""
_TOO_DEEP: Final = f"values are nested deeper than {MAX_DEPTH} levels"

_ENCODER: Final = msgspec.msgpack.Encoder()
_VALUE_DECODER: Final = msgspec.msgpack.Decoder()
_OWN_DECODER: Final = msgspec.msgpack.Decoder(Message)
_DECODER_ERRORS: Final = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_SCALARS: Final = frozenset({str, int, bool, type(None)})


def _is_closed(annotation: Any) -> bool:
    """Return whether msgspec accepts for this type only values that JSON can express."""
    if get_origin(annotation) is Annotated:
        return _is_closed(get_args(annotation)[0])
    return annotation in _SCALARS or get_origin(annotation) is Literal or annotation == str | None


_LOOSE_FIELDS: Final = {
    kind: tuple(field.name for field in msgspec.structs.fields(kind) if not _is_closed(field.type))
    for kind in get_args(Message)
}


class FrameError(Exception):
    """Error: the bytes are not a frame, or the message cannot be encoded as a frame. The sender is at fault, and the
    conversation must end.
    """


class FrameTooLargeError(FrameError):
    """Error: the message is valid but does not fit into one frame. A decoder raises it if the output of a result is too
    large.
    """


class Frame(NamedTuple):
    """A decoded frame. `body` is None if this message has no body, and may be empty if it has one."""

    message: Message
    body: bytes | None


def encode(message: Message, body: bytes | memoryview = b"") -> tuple[bytes, bytes | memoryview]:
    """Return a frame as two parts for writev(2): the prefix with the header, and the body, which is not copied.

    The output of a `Result` that is too large for a header becomes the body. Raises FrameError for a message that a
    decoder would refuse, and FrameTooLargeError for one that does not fit.
    """
    _check_values(message)
    header = _pack(message)
    if len(header) > MAX_HEADER_BYTES and isinstance(message, Result):
        body, header = _pack(message.output), _pack(Result(output=None))
        if _count_values(message.output) > MAX_OUTPUT_VALUES:
            raise FrameTooLargeError(f"output of more than {MAX_OUTPUT_VALUES} values")
    elif body and not _has_body(message):
        raise FrameError(f"a {_tag(message)} frame has no body")
    _check_types(header)
    if len(header) > MAX_HEADER_BYTES:
        raise FrameTooLargeError(f"header of {len(header)} bytes; at most {MAX_HEADER_BYTES}")
    body_bytes = body.nbytes if isinstance(body, memoryview) else len(body)
    if body_bytes > MAX_BODY_BYTES:
        raise FrameTooLargeError(f"body of {body_bytes} bytes; at most {MAX_BODY_BYTES}")
    return len(header).to_bytes(4, "big") + body_bytes.to_bytes(4, "big") + header, body


@functools.cache
def _decoder_of(incoming: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the shared decoder for `incoming`, a union of messages. The decoder keeps no state between calls, so one
    serves all sessions.
    """
    return msgspec.msgpack.Decoder(incoming)


for _direction in (ToJail, FromJail):
    _decoder_of(_direction)  # build the decoders on import: in a template, before children are forked


class Decoder:
    """A decoder from bytes to frames; `incoming` is the union of messages that may arrive (ToJail or FromJail)."""

    def __init__(self, incoming: Any) -> None:
        self._decoder: Final = _decoder_of(incoming)
        self._chunks: Final[list[bytes | bytearray]] = []
        self._taken = 0  # bytes of the first chunk that were consumed
        self._size = 0  # buffered bytes that were not consumed yet
        self._lengths: tuple[int, int] | None = None
        self._error: FrameError | None = None

    @property
    def missing_bytes(self) -> int:
        """Minimum number of bytes until the current frame is complete, as far as known; 0 if it is complete. Use it as
        the size of the next read.
        """
        return max(0, self._expected_bytes - self._size)

    @property
    def _expected_bytes(self) -> int:
        if self._lengths is None:
            return _PREFIX_BYTES
        header_bytes, body_bytes = self._lengths
        return header_bytes + (body_bytes if body_bytes <= MAX_BODY_BYTES else 0)

    @property
    def is_between_frames(self) -> bool:
        """True if the decoder holds no part of a frame. The stream may end only then."""
        return self._size == 0 and self._lengths is None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that were read, at most 1 MiB at a time. Raises FrameError after an earlier error, or if too many
        bytes were fed without taking frames out.
        """
        self._check_alive()
        if self._size + len(data) > _MAX_BUFFERED_BYTES:
            self._die(f"more than {_MAX_BUFFERED_BYTES} bytes fed and not taken out as frames")
        self._size += len(data)
        if self._chunks and len(data) < _SMALL_CHUNK_BYTES and len(self._chunks[-1]) < _SMALL_CHUNK_BYTES:
            self._merge(data)
        elif data:
            self._chunks.append(bytes(data))

    def next_frame(self) -> Frame | None:
        """Return the next frame, or None if it is not complete yet. Raises FrameError if the bytes cannot be a frame."""
        self._check_alive()
        try:
            return self._next_frame()
        except FrameError as error:
            self._error = error
            self._chunks.clear()
            raise

    def _next_frame(self) -> Frame | None:
        if self._lengths is None:
            if self._size < _PREFIX_BYTES:
                return None
            prefix = self._take(_PREFIX_BYTES)
            self._lengths = _checked_lengths(prefix)
        header_bytes, body_bytes = self._lengths
        if self._size < self._expected_bytes:
            return None
        self._lengths = None
        message = self._message(self._take(header_bytes))
        if body_bytes > MAX_BODY_BYTES:
            is_output = isinstance(message, Result)
            raise (FrameTooLargeError if is_output else FrameError)(
                f"body of {body_bytes} bytes; at most {MAX_BODY_BYTES}"
            )
        return _frame(message, self._take(body_bytes))

    def _message(self, header: bytes) -> Message:
        try:
            message: Message = self._decoder.decode(header)
        except _DECODER_ERRORS as error:
            raise FrameError(f"header: {_words(error)}") from error
        if _pack(message) != header:
            # What msgspec itself would have written needs no second look: it has no duplicate keys and no depth that
            # _check_values does not see. Other spellings are legal, but msgspec lets the last of duplicate keys win.
            _check_spelling(header, max_values=MAX_HEADER_BYTES)
        _check_values(message)
        return message

    def _merge(self, data: bytes | bytearray | memoryview) -> None:
        last = self._chunks[-1]
        if not isinstance(last, bytearray):
            last = self._chunks[-1] = bytearray(last)
        last += data

    def _take(self, count: int) -> bytes:
        """Remove and return the next `count` received bytes, which must be buffered. If a buffered piece has exactly
        this size, it is not copied.
        """
        if not count:
            return b""
        self._size -= count
        first, start = self._chunks[0], self._taken
        if type(first) is bytes and start + count <= len(first):  # mostly: a frame that came in one read
            self._taken = start + count
            if self._taken == len(first):
                self._taken = 0
                del self._chunks[0]
            return first[start : start + count]
        parts: list[bytes | bytearray | memoryview] = []
        while count:
            chunk = self._chunks[0]
            start, end = self._taken, min(self._taken + count, len(chunk))
            count -= end - start
            if end < len(chunk):
                self._taken = end
                parts.append(memoryview(chunk)[start:end] if parts else chunk[start:end])
            else:
                self._taken = 0
                parts.append(memoryview(self._chunks.pop(0))[start:] if start else self._chunks.pop(0))
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _check_alive(self) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error))

    def _die(self, why: str) -> NoReturn:
        self._error = FrameError(why)
        self._chunks.clear()
        raise self._error


def check_json(value: Any) -> None:
    """Raise FrameError unless `value` is made of JSON's types alone, nested at most MAX_DEPTH containers deep.

    The types are None, bool, str, int, finite float, list, tuple, and dict with string keys. Subclasses are refused.
    The encoder, not this check, refuses strings with lone surrogates and integers outside of -2**63 to 2**64-1.
    """
    _count_values(value)


def _count_values(value: Any) -> int:
    """Count the values in `value`, including `value` itself and the keys of maps. Raises FrameError like check_json."""
    # Level by level, not recursively: depth costs no stack, and the types of a level are collected at C speed.
    level: list[Any] = [value]
    count = depth = 0
    while level:
        count += len(level)
        if count > MAX_BODY_BYTES:  # a value takes at least a byte; this also stops at a list that contains itself
            raise FrameTooLargeError(f"more than {MAX_BODY_BYTES} values")
        below: list[Any] = []
        for kind in set(map(type, level)) - _SCALARS:
            members: list[Any] = [member for member in level if type(member) is kind]
            if kind is float:
                if not all(map(math.isfinite, members)):
                    raise FrameError("NaN and infinities are not JSON values")
            elif depth == MAX_DEPTH:
                raise FrameError(_TOO_DEEP)
            elif kind is dict:
                count += sum(map(len, members))
                _check_keys(members)
                below.extend(value for mapping in members for value in mapping.values())
            elif kind is list or kind is tuple:
                below.extend(value for items in members for value in items)
            else:
                raise FrameError(f"a value of type {kind.__name__} is not a JSON value")
        level = below
        depth += 1
    return count


def _check_keys(mappings: list[dict[Any, Any]]) -> None:
    for mapping in mappings:
        if not set(map(type, mapping)) <= {str}:
            raise FrameError("a key of a map is not a string")


def _check_values(message: Message) -> None:
    """Raise FrameError if a field of the message has a value that JSON cannot express. Only fields whose type admits such
    values are checked.
    """
    for name in _LOOSE_FIELDS[type(message)]:
        value = getattr(message, name)
        if (type(value) is dict and value) or type(value) is float or name == "output":
            check_json(value)
        elif type(value) is FrameFailure:
            check_json(value.details)


def _checked_lengths(prefix: bytes) -> tuple[int, int]:
    header_bytes = int.from_bytes(prefix[:4], "big")
    body_bytes = int.from_bytes(prefix[4:], "big")
    if not 1 <= header_bytes <= MAX_HEADER_BYTES:
        raise FrameError(f"header of {header_bytes} bytes; expected 1 to {MAX_HEADER_BYTES}")
    return header_bytes, body_bytes


def _frame(message: Message, body: bytes) -> Frame:
    if _has_body(message):
        return Frame(message, body)
    if not body:
        return Frame(message, None)
    if isinstance(message, Result) and message.output is None:
        return Frame(Result(output=_output(body)), None)
    raise FrameError(f"this {_tag(message)} frame may not have a body")


def _output(body: bytes) -> Any:
    _check_spelling(body, max_values=MAX_OUTPUT_VALUES)  # first: it bounds what decoding allocates
    try:
        value = _VALUE_DECODER.decode(body)
    except _DECODER_ERRORS as error:
        raise FrameError(f"output: {_words(error)}") from error
    check_json(value)
    return value


def _has_body(message: Message) -> bool:
    return isinstance(message, Chunk | WebSocketMessage) or (
        isinstance(message, HttpRequest) and message.body == "inline"
    )


def _pack(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # a lone surrogate is a ValueError
        raise FrameError(f"no MessagePack form: {_words(error)}") from error


def _check_types(header: bytes) -> None:
    # msgspec checks types when it decodes, not when a struct is made: the maker of a wrong message should hear of it.
    try:
        _OWN_DECODER.decode(header)
    except _DECODER_ERRORS as error:
        raise FrameError(f"not a message: {_words(error)}") from error


def _tag(message: Message) -> str:
    return str(message.__struct_config__.tag)


def _words(error: Exception) -> str:
    """Return msgspec's error message, which may quote the peer, as at most 200 printable characters."""
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    return ascii(str(error))[1:-1][:200]


def _check_spelling(data: bytes, *, max_values: int) -> None:
    """Raise FrameError if the bytes have duplicate keys, too deep nesting or too many values, or are anything but one
    complete MessagePack value.

    This walks the bytes and builds no values. A stack has the open containers: for each, the number of items still to
    come and, for a map, the keys seen so far. UTF-8, NaN and the exact depth are not checked here: the caller checks
    the decoded value.
    """
    at = values = 0
    awaited, keys = 1, None  # the value itself is the one item of no container
    stack: list[tuple[int, set[bytes] | None]] = []
    try:
        while awaited or stack:
            if not awaited:
                awaited, keys = stack.pop()
                continue
            values += 1
            if values > max_values:
                raise FrameTooLargeError(f"more than {max_values} values")
            kind = data[at]
            is_key = keys is not None and awaited % 2 == 0
            awaited -= 1
            if size := _SCALAR_SIZE[kind]:
                if is_key:
                    raise FrameError("a key of a map is not a string")
                at += size
                continue
            family, count, start = _length(data, at)
            at = start + count if family == _STRING else start
            if is_key:
                _note_key(family, data[start:at], keys)
            elif family != _STRING:
                if len(stack) >= _MAX_WALK_DEPTH:
                    raise FrameError(_TOO_DEEP)
                stack.append((awaited, keys))
                awaited, keys = (2 * count, set()) if family == _MAP else (count, None)
    except IndexError as error:
        raise FrameError("the value is cut off") from error
    if at != len(data):
        raise FrameError("the value does not end where its frame does")


def _length(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the type (string, list or map), the number of bytes or items, and the start of the content of the string,
    list or map at offset `at`.
    """
    kind = data[at]
    if kind < 0xC0:
        if kind >= 0xA0:
            return _STRING, kind & 0x1F, at + 1
        return (_MAP if kind < 0x90 else _LIST), kind & 0x0F, at + 1
    if kind not in _LONG:
        raise FrameError(f"MessagePack type 0x{kind:02x} (bin, ext or none) is not allowed")
    family, width = _LONG[kind]
    start = at + 1 + width
    if start > len(data):
        raise IndexError
    return family, int.from_bytes(data[at + 1 : start], "big"), start


def _note_key(family: int, key: bytes, keys: set[bytes] | None) -> None:
    if family != _STRING or keys is None:
        raise FrameError("a key of a map is not a string")
    if key in keys:
        raise FrameError(f"duplicate key {key[:64]!a}")
    keys.add(key)


_STRING, _LIST, _MAP = range(3)
_LONG: Final = {  # first byte → family, bytes of its length
    0xD9: (_STRING, 1), 0xDA: (_STRING, 2), 0xDB: (_STRING, 4),
    0xDC: (_LIST, 2), 0xDD: (_LIST, 4),
    0xDE: (_MAP, 2), 0xDF: (_MAP, 4),
}  # fmt: skip


def _scalar_size(kind: int) -> int:
    """Return the size in bytes of the number, boolean or nil that begins with the byte `kind`; 0 for anything else."""
    if kind < 0x80 or kind >= 0xE0 or kind in {0xC0, 0xC2, 0xC3}:
        return 1
    return {
        0xCA: 5, 0xCB: 9,
        0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9,
        0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9,
    }.get(kind, 0)  # fmt: skip


_SCALAR_SIZE: Final = bytes(map(_scalar_size, range(256)))
