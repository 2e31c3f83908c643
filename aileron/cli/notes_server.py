"""The notes server that `aileron demo-server` starts: a small service with an API key, for a first connector.

Runs in the command until it is interrupted, only on loopback, without TLS. It trusts no client: a request without the key gets
401 and changes nothing.

Rules
- Everything is in memory and bounded: MAX_NOTES notes of MAX_TEXT characters, MAX_BODY_BYTES of a request.
- Each request is reported to `log` with its status, never with a header or a body, because they contain the key and the note.

    GET /notes?limit=N      the newest notes, newest first
    POST /notes             {"text": "…"}; the new note, 201
    GET /notes/ID           one note
    PUT /notes/ID           {"text": "…"}; the changed note
    DELETE /notes/ID        204, and the note is gone
    GET /openapi.json       its description, as OpenAPI 3.1; needs no key
    POST /mcp               the same as tools of the Model Context Protocol (notes_tools.py)

Source: docs/reference/cli.md. Not here: what the command prints (commands/demo_server.py).
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from hypercorn.asyncio import serve as serve_http
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aileron.cli.notes_tools import answered

__all__ = ["MAX_NOTES", "MAX_TEXT", "NotesServer", "serve"]

MAX_NOTES: Final = 100
"""Maximum number of notes: the whole list fits into one answer of a connector."""
MAX_TEXT: Final = 500
"""Maximum number of characters of a note. With MAX_NOTES notes, that is at most 200 KB of memory."""
MAX_BODY_BYTES: Final = 4096
"""Maximum size of a request body in bytes: a note of MAX_TEXT characters in JSON, with room for escapes."""

Log = Callable[[str, str, int], None]
"""Callback for each request: method, path and query, status."""


class _NewNote(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /notes."""

    text: str


class _Note(msgspec.Struct, frozen=True):
    """A note as it is served."""

    id: int
    text: str


class _Refused(Exception):
    """Exception for a request that is refused, with its error status and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class NotesServer:
    """The notes service as an ASGI application. `key` is the API key that every request must carry, except for /openapi.json."""

    def __init__(self, key: str, log: Log) -> None:
        self._authorization = f"Bearer {key}".encode()
        self._log = log
        self._notes = [_Note(1, "Water the plants"), _Note(2, "Call Jo")]
        self._last_id = len(self._notes)
        note_path, notes_path = "/notes/{id:int}", "/notes"
        self.app = Starlette(
            routes=[
                Route(notes_path, self._answering(self._list), methods=["GET"]),
                Route(notes_path, self._answering(self._add), methods=["POST"]),
                Route(note_path, self._answering(self._read), methods=["GET"]),
                Route(note_path, self._answering(self._change), methods=["PUT"]),
                Route(note_path, self._answering(self._delete), methods=["DELETE"]),
                Route("/openapi.json", self._describe, methods=["GET"]),
                Route("/mcp", self._answering(self._speak), methods=["POST"]),
            ],
            exception_handlers={HTTPException: self._answer_unknown},
        )

    def _answering(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap `handle` so that the key is checked first, refusals are returned as JSON, and every request is logged."""

        async def answer(request: Request) -> Response:
            try:
                self._check_key(request)
                response = await handle(request)
            except _Refused as refused:
                response = JSONResponse({"error": str(refused)}, refused.status)
            self._log(request.method, _path_of(request), response.status_code)
            return response

        return answer

    async def _answer_unknown(self, request: Request, error: Exception) -> Response:
        """Respond to a request for an unknown path or method, and log the request, because the author of a first connector has
        probably mistyped the path or the method.
        """
        assert isinstance(error, HTTPException)  # which it is registered for
        self._log(request.method, _path_of(request), error.status_code)
        return JSONResponse({"error": error.detail}, error.status_code)

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self._authorization):
            raise _Refused(401, "an API key is required: Authorization: Bearer KEY")

    async def _list(self, request: Request) -> Response:
        limit = request.query_params.get("limit", str(MAX_NOTES))
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_NOTES):
            raise _Refused(400, f"limit must be a number from 1 to {MAX_NOTES}")
        return _json(self._notes[::-1][: int(limit)])

    async def _add(self, request: Request) -> Response:
        return _json(self._added(await _text_of(request)), 201)

    def _added(self, text: str) -> _Note:
        if len(self._notes) >= MAX_NOTES:
            raise _Refused(507, f"there are already {MAX_NOTES} notes; delete one first")
        self._last_id += 1
        note = _Note(self._last_id, text)
        self._notes.append(note)
        return note

    async def _read(self, request: Request) -> Response:
        return _json(self._find(request))

    async def _change(self, request: Request) -> Response:
        note = self._find(request)
        changed = _Note(note.id, await _text_of(request))
        self._notes[self._notes.index(note)] = changed
        return _json(changed)

    async def _delete(self, request: Request) -> Response:
        self._notes.remove(self._find(request))
        return Response(status_code=204)

    async def _speak(self, request: Request) -> Response:
        tools = {"list_notes": self._list_tool, "add_note": self._add_tool, "delete_note": self._delete_tool}
        status, message = answered(await _body_of(request), tools)
        return _json(message, status)

    def _list_tool(self, arguments: Mapping[str, object]) -> Any:
        limit = arguments.get("limit", MAX_NOTES)
        if type(limit) is not int or not 1 <= limit <= MAX_NOTES:
            raise ValueError(f"limit must be a number from 1 to {MAX_NOTES}")
        return {"notes": self._notes[::-1][:limit]}

    def _add_tool(self, arguments: Mapping[str, object]) -> Any:
        try:
            return self._added(_checked(str(arguments.get("text", ""))))
        except _Refused as refused:
            raise ValueError(str(refused)) from None

    def _delete_tool(self, arguments: Mapping[str, object]) -> None:
        found = [note for note in self._notes if note.id == arguments.get("id")]
        if not found:
            raise ValueError("no such note")
        self._notes.remove(found[0])

    async def _describe(self, request: Request) -> Response:
        self._log(request.method, _path_of(request), 200)
        return _json(_DOCUMENT)

    def _find(self, request: Request) -> _Note:
        wanted = request.path_params["id"]
        for note in self._notes:
            if note.id == wanted:
                return note
        raise _Refused(404, "no such note")


def _answers(schema: Mapping[str, object], status: str = "200", *, can_miss: bool = False) -> dict[str, object]:
    """Return the responses of an operation, for the OpenAPI description. With `can_miss`, they include 404 for a note
    that does not exist.
    """
    content = {"application/json": {"schema": schema}}
    told: dict[str, object] = {status: {"description": "As asked.", "content": content}}
    return {**told, "404": {"description": "There is no such note."}} if can_miss else told


_A_NOTE: Final = {"$ref": "#/components/schemas/Note"}
_ITS_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The number of the note.",
    "schema": {"type": "integer", "minimum": 1},
    "example": 1,
}
_ITS_TEXT: Final = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["text"],
                "additionalProperties": False,
                "properties": {
                    "text": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": MAX_TEXT,
                        "description": "What the note says.",
                        "example": "Buy milk",
                    }
                },
            }
        }
    },
}
_DOCUMENT: Final[dict[str, object]] = {
    "openapi": "3.1.0",
    "info": {"title": "Notes", "version": "1.0.0", "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
    "security": [{"key": []}],
    "paths": {
        "/notes": {
            "get": {
                "operationId": "listNotes",
                "summary": "List notes",
                "description": "The newest notes, the newest first.",
                "tags": ["notes"],
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "description": "How many at most.",
                        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_NOTES, "default": MAX_NOTES},
                    }
                ],
                "responses": _answers({"type": "array", "items": _A_NOTE}),
            },
            "post": {
                "operationId": "addNote",
                "summary": "Add a note",
                "tags": ["notes"],
                "requestBody": _ITS_TEXT,
                "responses": _answers(_A_NOTE, "201"),
            },
        },
        "/notes/{id}": {
            "parameters": [_ITS_ID],
            "get": {
                "operationId": "getNote",
                "summary": "Read a note",
                "tags": ["notes"],
                "responses": _answers(_A_NOTE, can_miss=True),
            },
            "put": {
                "operationId": "changeNote",
                "summary": "Change a note",
                "tags": ["notes"],
                "requestBody": _ITS_TEXT,
                "responses": _answers(_A_NOTE, can_miss=True),
            },
            "delete": {
                "operationId": "deleteNote",
                "summary": "Delete a note",
                "tags": ["notes"],
                "responses": {
                    "204": {"description": "The note is gone."},
                    "404": {"description": "There is no such note."},
                },
            },
        },
    },
    "components": {
        "schemas": {
            "Note": {
                "type": "object",
                "required": ["id", "text"],
                "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
            }
        },
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}
"""OpenAPI description of the server.

It contains no address, because a client that reads the description knows the server's address.
"""


async def serve(app: Starlette, listener: socket.socket, stopped: Callable[[], Awaitable[None]]) -> None:
    """Serve `app` on the socket of `listener` until `stopped` returns. The caller must not use `listener` afterwards."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = 0.5  # seconds; an answer takes a millisecond
    await serve_http(app, config, shutdown_trigger=stopped, mode="asgi")  # type: ignore[arg-type] # two types of ASGI


async def _text_of(request: Request) -> str:
    try:
        text = msgspec.json.decode(await _body_of(request), type=_NewNote).text
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _Refused(400, 'the body must be JSON: {"text": "…"}') from None
    return _checked(text)


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise _Refused(413, f"a request is limited to {MAX_BODY_BYTES} bytes")
    except ClientDisconnect:
        raise _Refused(400, "the request ended before its body was complete") from None
    return bytes(body)


def _checked(said: str) -> str:
    text = said.strip()
    if not 1 <= len(text) <= MAX_TEXT:
        raise _Refused(400, f"text must have 1 to {MAX_TEXT} characters")
    return text


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _path_of(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path
