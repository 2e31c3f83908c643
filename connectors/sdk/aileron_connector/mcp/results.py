"""Conversion of a tool's result to an operation's output: text, data, images and links, as JSON that fits a frame.

    output({"content": [{"type": "text", "text": "done"}]}, tool, schemas)      # {"text": "done"}

Runs in the jail. The server is not trusted: its content is bounded, becomes data, and never goes into the log.

Rules
- `isError` raises ExternalApiError with the text.
- Structured content becomes the output unchanged, and is checked against the tool's output schema as an answer
  (aileron_connector/check.py). By the specification, the text next to it has the same content, and so is left out.
- The call has had its effects. Therefore content that does not fit the schema, the protocol or a frame (carried.py) is
  returned nevertheless, and `does_not_fit` says where and why.
- Without structured content, the texts become `text`. Other parts are listed in `content`: images and audio as base64, links as
  links, which are not followed here.
- Text that is too large for a frame is cut. Structured content that is too large is returned as the cut text of its JSON. If
  `content` is too large, members at its end are left out. `left_out` is the number of missing characters or members.

Source: Model Context Protocol 2025-11-25 and 2026-07-28, Tools (Tool Result). Not here: calling the tool (client.py).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from aileron_connector.carried import MARK, carried, marked
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.failures import ExternalApiError
from aileron_connector.mcp.document import Tool
from aileron_connector.mcp.rpc_messages import one_line
from aileron_sandbox.frames import MAX_BODY_BYTES, FrameTooLargeError, JSONObject, Result, encode

__all__ = ["output"]

_MAX_ERROR: Final = 1_500
"""Maximum number of characters of a failed tool's text. A failure's message has at most 2,000."""
_MAX_BLOCKS: Final = 1_000
_MAX_FIELD: Final = 2_000
_MAX_TEXT_BYTES: Final = MAX_BODY_BYTES // 2
"""Maximum size of truncated text in bytes: half of a frame, because JSON may take two bytes for one."""
_BY_PROTOCOL: Final = " (by the protocol)"
_OURS: Final = frozenset({"text", "content", "left_out"})
"""Keys that this module puts into an output. Structured content with one of them is put under `structured` if there is
other content.
"""
_LINKED: Final = ("uri", "name", "title", "description", "size")


def output(result: JSONObject, tool: Tool, schemas: Schemas) -> Any:
    """Convert a tool's result to the operation's output. Raises ExternalApiError if the tool failed, or needs further
    input before it answers.
    """
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise ExternalApiError(
            f"the tool wants more before it answers ({one_line(str(kind), 40)}), which is not supported"
        )
    content = result.get("content", [])
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = "\n".join([str(block["text"]) for block in blocks if _is_text(block)])
    if result.get("isError") is True:
        words = one_line(text, _MAX_ERROR)
        raise ExternalApiError(f"the tool failed{f': {words}' if words else ''}", details={"reason": "tool_error"})
    if not isinstance(content, list) or len(blocks) < len(content):
        return _marked({"content": content}, [f"content is not a list of objects{_BY_PROTOCOL}"])
    misfits: list[str] = []
    parts = [part for part in blocks if not _is_text(part)]
    rest = [_block(part, misfits) for part in parts[:_MAX_BLOCKS]]
    if len(parts) > _MAX_BLOCKS:
        misfits.append(f"content has {len(parts)} parts that are no text, of which {_MAX_BLOCKS} are given")
    structured = result.get("structuredContent")
    if structured is not None:
        return _structured(structured, rest, [*_misfits(structured, tool, schemas), *misfits])
    told: JSONObject = {"text": text} if text or not rest else {}
    return _marked(told | ({"content": rest} if rest else {}), misfits)


def _misfits(value: Any, tool: Tool, schemas: Schemas) -> list[str]:
    problem = maybe_problem(value, tool.answered, schemas, reading="answer")
    return [] if problem is None else [f"{problem.place or 'the whole'} {problem.words} (by the tool's output schema)"]


def _structured(value: Any, rest: list[JSONObject], misfits: list[str]) -> Any:
    if not rest:
        return _marked(value, misfits)
    told = value if isinstance(value, dict) and not _OURS & value.keys() else {"structured": value}
    return _marked({**told, "content": rest}, misfits)


def _marked(value: Any, misfits: list[str]) -> Any:
    """Return the output `value`, changed so that it fits into one frame. Its key `does_not_fit` lists `misfits`, the
    parts that do not fit the schema, and the parts that were changed.
    """
    told = carried(value)
    return _fitted(marked(told.value, [*misfits, *told.changes]))


def _is_text(block: JSONObject) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _block(block: JSONObject, misfits: list[str]) -> JSONObject:
    """Convert a content block that is not text, such as an image or a link, to JSON."""
    kind = block.get("type")
    if kind in ("image", "audio"):
        return {"type": kind, **_binary(block, "data", misfits)}
    if kind == "resource_link":
        return {"type": "resource_link", **_fields(block, _LINKED), **_mime(block)}
    if kind == "resource" and isinstance(inner := block.get("resource"), dict):
        return {"type": "resource", **_fields(inner, ("uri",)), **_content(inner, misfits)}
    return {"type": "unknown", "kind": one_line(str(kind), 60)}


def _content(inner: JSONObject, misfits: list[str]) -> JSONObject:
    if isinstance(inner.get("text"), str):
        return {**_mime(inner), "text": inner["text"]}
    return _binary(inner, "blob", misfits)


def _binary(block: JSONObject, key: str, misfits: list[str]) -> JSONObject:
    data = block.get(key)
    try:
        size = len(base64.b64decode(data, validate=True)) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        size = None
    if size is None:
        misfits.append(f"an image, a sound or a file is not base64{_BY_PROTOCOL}")
        return {**_mime(block), "data": data}
    return {**_mime(block), "bytes": size, "base64": data}


def _mime(block: JSONObject) -> dict[str, str]:
    kind = block.get("mimeType")
    return {"content_type": one_line(kind, 100)} if isinstance(kind, str) else {}


def _fields(block: JSONObject, names: tuple[str, ...]) -> JSONObject:
    return {
        name: value[:_MAX_FIELD] if isinstance(value, str) else value
        for name in names
        if isinstance(value := block.get(name), str | int | float)
    }


# One frame


def _fitted(told: Any) -> Any:
    if _fits(told):
        return told
    if not isinstance(told, dict):
        return _cut(told)
    content = told.get("content", [])
    low, high = 0, len(content) - 1 if isinstance(content, list) else -1  # binary search for the most members that fit
    fitting: JSONObject | None = None
    while low <= high:
        middle = (low + high) // 2
        smaller = {**told, "content": content[:middle], "left_out": len(content) - middle}
        if _fits(smaller):
            fitting, low = smaller, middle + 1
        else:
            high = middle - 1
    return _cut(told) if fitting is None else fitting


def _cut(told: Any) -> Any:
    """Return the beginning of the output `told`, which is too large, as text. This text is taken from `text` if the
    output has nothing else, or else from its JSON.
    """
    is_text = isinstance(told, dict) and isinstance(told.get("text"), str) and told.keys() <= {"text", MARK}
    text = told["text"] if is_text else msgspec.json.encode(told).decode()
    kept = text.encode("utf-8", "replace")[:_MAX_TEXT_BYTES].decode("utf-8", "ignore")
    misfits = [told[MARK]] if is_text and MARK in told else []
    if not is_text:
        misfits = [
            f"the result is too large, and is given as the beginning of its JSON, which has {len(text)} characters"
        ]
    return marked({"text": kept, "left_out": len(text) - len(kept)}, misfits)


def _fits(told: Any) -> bool:
    try:
        encode(Result(output=told))
    except FrameTooLargeError:
        return False
    return True
