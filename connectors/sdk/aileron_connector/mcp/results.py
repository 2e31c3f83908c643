"""The output of a tool's result: text, data, images and links, as JSON that fits a frame.

    output({"content": [{"type": "text", "text": "done"}]}, tool, schemas)      # {"text": "done"}

Runs in the jail. The server is not trusted: what it says is bounded, becomes data, and never goes into the log.

Rules
- `isError` is ExternalApiError with the text.
- Structured content is the output as it is, held to the tool's output schema as an answer (aileron_connector/check.py). The text
  beside it says the same, by the specification, and is left out.
- Otherwise the texts are `text`. What is neither is listed in `content`: images and audio as base64, links as links, which nobody
  follows here.
- Text that does not fit a frame is cut; of `content`, what does not fit is left out at the end. `left_out` says how much:
  characters of text, members of content.

Source: Model Context Protocol 2025-11-25 and 2026-07-28, Tools (Tool Result). Not here: calling it (client.py).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.failures import ConnectorError, ExternalApiError
from aileron_connector.mcp.document import Tool
from aileron_connector.mcp.messages import one_line
from aileron_sandbox.frames import MAX_BODY_BYTES, FrameError, FrameTooLargeError, Result, encode

__all__ = ["output"]

_MAX_ERROR: Final = 1_500
"""Characters of what a tool says when it fails; the words of a failure have 2,000."""
_MAX_BLOCKS: Final = 1_000
_MAX_FIELD: Final = 2_000
_MAX_TEXT_BYTES: Final = MAX_BODY_BYTES // 2
"""Half of a frame for text that is cut: JSON may take two bytes for one."""
_CARRIED_OUT: Final = "; the call itself was carried out, so do not simply repeat it"
_OURS: Final = frozenset({"text", "content", "left_out"})
"""Keys of an output that mean something here."""
_LINKED: Final = ("uri", "name", "title", "description", "size")


def output(result: dict[str, Any], tool: Tool, schemas: Schemas) -> Any:
    """What the operation returns. ExternalApiError if the tool failed, or answered what it does not say that it answers."""
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise ExternalApiError(
            f"the tool wants more before it answers ({one_line(str(kind), 40)}), which is not supported"
        )
    blocks = result.get("content", [])
    if not isinstance(blocks, list) or not all(isinstance(one, dict) for one in blocks):
        raise _misfit("the tool's result has content that is no list")
    if len(blocks) > _MAX_BLOCKS:
        raise _misfit(f"the tool's result has {len(blocks)} parts; at most {_MAX_BLOCKS} can be returned")
    text = "\n".join([str(one["text"]) for one in blocks if _is_text(one)])
    if result.get("isError") is True:
        words = one_line(text, _MAX_ERROR)
        raise ExternalApiError(f"the tool failed{f': {words}' if words else ''}", details={"reason": "tool_error"})
    rest = [_block(one) for one in blocks if not _is_text(one)]
    structured = result.get("structuredContent")
    if structured is not None:
        return _structured(structured, rest, tool, schemas)
    told: dict[str, Any] = {"text": text} if text or not rest else {}
    return _fitted(told | ({"content": rest} if rest else {}))


def _structured(value: Any, rest: list[dict[str, Any]], tool: Tool, schemas: Schemas) -> Any:
    problem = maybe_problem(value, tool.answered, schemas, reading="answer")
    if problem is not None:
        raise _misfit(f"the tool's answer does not fit its schema: {problem.place or 'the whole'} {problem.words}")
    if not rest:
        return _checked(value)
    told = value if isinstance(value, dict) and not _OURS & value.keys() else {"structured": value}
    return _fitted({**told, "content": rest})


def _checked(value: Any) -> Any:
    if not _fits(value):
        raise _too_large()
    return value


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """One part that is no text, as data."""
    kind = block.get("type")
    if kind in ("image", "audio"):
        return {"type": kind, **_binary(block, "data")}
    if kind == "resource_link":
        return {"type": "resource_link", **_fields(block, _LINKED), **_mime(block)}
    if kind == "resource" and isinstance(block.get("resource"), dict):
        inner = block["resource"]
        return {"type": "resource", **_fields(inner, ("uri",)), **_content(inner)}
    return {"type": "unknown", "kind": one_line(str(kind), 60)}


def _content(inner: dict[str, Any]) -> dict[str, Any]:
    if isinstance(inner.get("text"), str):
        return {**_mime(inner), "text": inner["text"]}
    return _binary(inner, "blob")


def _binary(block: dict[str, Any], key: str) -> dict[str, Any]:
    data = block.get(key)
    try:
        size = len(base64.b64decode(data, validate=True)) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        size = None
    if size is None:
        raise _misfit("the tool's result has an image, a sound or a file that is no base64")
    return {**_mime(block), "bytes": size, "base64": data}


def _mime(block: dict[str, Any]) -> dict[str, str]:
    kind = block.get("mimeType")
    return {"content_type": one_line(kind, 100)} if isinstance(kind, str) else {}


def _fields(block: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: value[:_MAX_FIELD] if isinstance(value, str) else value
        for name in names
        if isinstance(value := block.get(name), str | int | float)
    }


# One frame


def _fitted(told: dict[str, Any]) -> Any:
    if _fits(told):
        return told
    content = told.get("content", [])
    low, high = 0, len(content) - 1  # the most members that fit, by halves
    fitting: dict[str, Any] | None = None
    while low <= high:
        middle = (low + high) // 2
        smaller = {**told, "content": content[:middle], "left_out": len(content) - middle}
        if _fits(smaller):
            fitting, low = smaller, middle + 1
        else:
            high = middle - 1
    if fitting is not None:
        return fitting
    if "text" not in told:
        raise _too_large()
    text = told["text"]
    kept = text.encode("utf-8", "replace")[:_MAX_TEXT_BYTES].decode("utf-8", "ignore")
    return _checked({"text": kept, "left_out": len(text) - len(kept)})


def _fits(told: Any) -> bool:
    try:
        encode(Result(output=told))
    except FrameTooLargeError:
        return False
    except FrameError as error:  # nested deeper than a frame may be, or an integer of more than 64 bits
        raise _misfit(f"the tool's result cannot be returned: {error}") from error
    return True


def _misfit(words: str) -> ExternalApiError:
    return ExternalApiError(f"{words}{_CARRIED_OUT}")


def _too_large() -> ConnectorError:
    return ConnectorError(
        "resource_limit_exceeded",
        f"the tool's result is larger than what can be returned{_CARRIED_OUT}",
        details={"limit": "output"},
    )
