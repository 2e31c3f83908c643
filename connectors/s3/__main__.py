"""Connector for the objects of S3 and of services that speak its protocol. It lists, reads, stores and deletes objects.

Runs inside the jail. The connector asks the host to send and sign requests; the connector never has the key. The objects were
written by other people and are passed on as data; no part of an object goes into the log.

Rules
- A result is one page: the next page of a listing begins at `next_cursor`, the next page of an object at `next_offset`.
  For each page, an object is read from its beginning: the host searches whole responses for secrets, and so never
  requests a byte range.
- Only one object, given by its exact key, is stored or deleted: no wildcards, and no prefix.
- The stored content comes from a call's arguments. It has no bound here, because the supervisor bounds all arguments of a
  step (48 KiB).
- With `etag`, S3 refuses to read, replace or delete an object that has changed since.

Source: Amazon S3's API reference: ListObjectsV2, GetObject, HeadObject, PutObject, DeleteObject. Not handled: buckets and their
settings, multipart uploads, copies, tags, access control lists, presigned URLs.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import urllib.parse
from typing import Any, Final, Literal

import answers
import api
from api import Place

from aileron_connector import BadInput, ExternalApiError, http, log, op, run

MAX_PAGE: Final = 500
"""Maximum number of objects in one listing. With keys of 1,024 bytes and percent-encoded dates they fit into 1 MiB."""
MAX_LISTING_BYTES: Final = 4 << 20
"""Maximum number of bytes of S3's listing: 500 keys of 1,024 bytes, each three times as long if it is percent-encoded, and
S3's other data.
"""
MAX_SLICE_BYTES: Final = 512 << 10
"""Maximum number of bytes of an object in one page. In base64 they take 700 KiB, which fits into a frame of 1 MiB."""
MAX_OFFSET: Final = 256 << 20
"""Largest offset of a page. For each page the object is read from its beginning to the page's end, and an operation has a
minute.
"""
_MIN_SLICE: Final = 16
"""Minimum number of bytes in a page. A character of four bytes fits into it."""
_MAX_HEADER: Final = 1024
_TYPE: Final = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}(?:; ?[a-z]{1,32}=[A-Za-z0-9_.-]{1,64}){0,4}"
)
_ETAG: Final = re.compile(r'"?[\x21\x23-\x7e]{1,256}"?')
_TOKEN: Final = re.compile(r"[\x20-\x7e]{1,4096}")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d:\d\d:\d\d) GMT", re.ASCII)
"""Pattern for an IMF-fixdate (RFC 9110 section 5.6.7). Importing the standard library's parser would take longer than all
other imports here.
"""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


# Listing


@op
def list_objects(
    bucket: str | None = None,
    prefix: str = "",
    delimiter: str | None = None,
    max_results: int = 100,
    cursor: str | None = None,
) -> dict[str, Any]:
    """List objects in the order of their keys. With a `delimiter` such as `/`, deeper objects are summarized under `folders`."""
    if not 1 <= max_results <= MAX_PAGE:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_PAGE}", argument="max_results")
    if cursor is not None and _TOKEN.fullmatch(cursor) is None:
        raise BadInput("cursor is not a next_cursor of an earlier answer", argument="cursor")
    query = [("encoding-type", "url"), ("list-type", "2"), ("max-keys", str(max_results))]
    asked = (("continuation-token", cursor), ("delimiter", delimiter or None), ("prefix", prefix or None))
    query += [(name, _sendable(name, value)) for name, value in asked if value is not None]
    task = "list the objects"
    with api.ask(task, "GET", Place.of(bucket), query, needs="s3:ListBucket") as answer:
        found = _listing(answer, task)
    is_cut = found.value("IsTruncated") == "true"
    return {
        "objects": [_listed(element, task) for element in found.all("Contents")[:max_results]],
        "folders": [_decoded(element.value("Prefix") or "") for element in found.all("CommonPrefixes")[:max_results]],
        "next_cursor": found.value("NextContinuationToken") if is_cut else None,
    }


def _sendable(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{name} has half a surrogate pair, which UTF-8 cannot say", argument=name) from None
    if len(text) > _MAX_HEADER and name != "continuation-token":
        raise BadInput(f"{name} has {len(text)} characters; at most {_MAX_HEADER}", argument=name)
    return text


def _listing(answer: http.Response, task: str) -> answers.Element:
    try:
        found = answers.parsed(answer.read(MAX_LISTING_BYTES))
    except ExternalApiError as error:
        raise ExternalApiError(f"cannot {task}: {error.message}", status=answer.status) from error
    if found.name != "ListBucketResult":
        raise ExternalApiError(f"cannot {task}: the service's answer is not a listing of S3", status=answer.status)
    return found


def _listed(element: answers.Element, task: str) -> dict[str, Any]:
    key, size = element.value("Key"), element.value("Size") or ""
    if key is None or not _is_number(size):
        raise ExternalApiError(f"cannot {task}: an object in the service's answer has no key, or no size")
    return {
        "key": _decoded(key),
        "size": int(size),
        "modified": element.value("LastModified"),
        "etag": element.value("ETag"),
        "storage_class": element.value("StorageClass"),
    }


def _decoded(text: str) -> str:
    return urllib.parse.unquote_plus(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


# Reading


@op
def head_object(key: str, bucket: str | None = None, version_id: str | None = None) -> dict[str, Any]:
    """Return the metadata of one object without its content; `exists` is false if the object does not exist."""
    place, query = Place.of(bucket, key), _version(version_id)
    answer = api.maybe_ask("look at the object", "HEAD", place, query, needs="s3:GetObject and s3:ListBucket")
    if answer is None:
        return {"exists": False, "object": None}
    with answer:
        return {"exists": True, "object": _described(key, answer)}


@op
def get_object(
    key: str,
    bucket: str | None = None,
    version_id: str | None = None,
    offset: int = 0,
    max_bytes: int = 256 << 10,
    etag: str | None = None,
) -> dict[str, Any]:
    """Read one page of an object's content, beginning at `offset`, as text if it is UTF-8, else as base64."""
    if not 0 <= offset <= MAX_OFFSET:
        raise BadInput(f"offset {offset} is not from 0 to {MAX_OFFSET}", argument="offset")
    if not _MIN_SLICE <= max_bytes <= MAX_SLICE_BYTES:
        raise BadInput(f"max_bytes {max_bytes} is not from {_MIN_SLICE} to {MAX_SLICE_BYTES}", argument="max_bytes")
    headers = [] if etag is None else [("If-Match", _checked_etag(etag))]
    place, query = Place.of(bucket, key), _version(version_id)
    with api.ask("read the object", "GET", place, query, headers, needs="s3:GetObject") as answer:
        described = _described(key, answer)
        content, is_last = _slice(answer, offset, max_bytes)
    text, used = _as_text(content, is_last=is_last)
    next_offset = None if is_last else offset + used
    page = {"encoding": "base64", "content": base64.b64encode(content).decode()}
    if text is not None:
        page = {"encoding": "text", "content": text}
    return {**page, "offset": offset, "next_offset": next_offset, "object": described}


def _slice(answer: http.Response, offset: int, size: int) -> tuple[bytes, bool]:
    """Read at most `size` bytes of an object from `offset` on. Return these bytes, and whether the object ends after
    them. The rest of the object is not read.
    """
    found, at = bytearray(), 0
    for piece in answer.iter_bytes():
        found += piece[max(offset - at, 0) :]
        at += len(piece)
        if len(found) > size:
            return bytes(found[:size]), False
    return bytes(found), True


def _as_text(content: bytes, *, is_last: bool) -> tuple[str | None, int]:
    """Decode a page as UTF-8. Return its text and the number of bytes decoded; the text is None if the page is not
    UTF-8. A character that is cut at the end is left for the next page.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(content, final=is_last)
    except UnicodeDecodeError:
        return None, len(content)
    return (None, len(content)) if "\0" in text else (text, len(content) - len(decoder.getstate()[0]))


def _described(key: str, answer: http.Response) -> dict[str, Any]:
    size, fields = _field(answer, "content-length") or "", answer.headers
    return {
        "key": key,
        # The length of compressed content is not that of the content that is read here.
        "size": int(size) if _is_number(size) and "content-encoding" not in fields else None,
        "modified": _time(_field(answer, "last-modified")),
        "etag": _field(answer, "etag"),
        "content_type": _field(answer, "content-type"),
        "version_id": _field(answer, "x-amz-version-id"),
        "storage_class": _field(answer, "x-amz-storage-class"),
        "metadata": {
            name.lower().removeprefix("x-amz-meta-"): value[:_MAX_HEADER]
            for name, value in fields
            if name.lower().startswith("x-amz-meta-")
        },
    }


def _field(answer: http.Response, name: str) -> str | None:
    value = answer.headers.get(name)
    return None if value is None else value[:_MAX_HEADER]


def _time(text: str | None) -> str | None:
    """Convert an HTTP date to RFC 3339, as in a listing. Return None if `text` is not an HTTP date."""
    found = _DATE.fullmatch(text or "")
    if found is None or found[2] not in _MONTHS:
        return None
    return f"{found[3]}-{_MONTHS.index(found[2]) + 1:02}-{found[1]}T{found[4]}Z"


def _version(version_id: str | None) -> list[tuple[str, str]]:
    if version_id is None:
        return []
    if _TOKEN.fullmatch(version_id) is None:
        raise BadInput("version_id is not one that S3 gave", argument="version_id")
    return [("versionId", version_id)]


def _checked_etag(etag: str) -> str:
    if _ETAG.fullmatch(etag) is None:
        raise BadInput(f"etag {etag[:64]!r} is not one that S3 gave", argument="etag")
    return f'"{etag.strip(chr(34))}"'


# Changing


@op
def put_object(
    key: str,
    content: str,
    bucket: str | None = None,
    encoding: Literal["text", "base64"] = "text",
    content_type: str | None = None,
    etag: str | None = None,
    only_new: bool = False,
) -> dict[str, Any]:
    """Store an object, replacing an existing object with this key. With `only_new`, store it only if no object has the key."""
    data = _stored(content, encoding)
    if content_type is not None and _TYPE.fullmatch(content_type) is None:
        raise BadInput(f"content_type {content_type[:64]!r} is not one such as text/plain", argument="content_type")
    if etag is not None and only_new:
        raise BadInput("only_new stores where there is nothing, which has no etag: leave one out", argument="etag")
    default = "text/plain; charset=utf-8" if encoding == "text" else "application/octet-stream"
    headers = [("Content-Type", content_type or default)]
    if only_new:
        headers.append(("If-None-Match", "*"))
    if etag is not None:
        headers.append(("If-Match", _checked_etag(etag)))
    place = Place.of(bucket, key)
    with api.ask("store the object", "PUT", place, (), headers, data, needs="s3:PutObject") as answer:
        stored = {"key": key, "size": len(data), "etag": _field(answer, "etag")}
        stored["version_id"] = _field(answer, "x-amz-version-id")
    log.info("object stored", bytes=len(data))
    return {"object": stored}


def _stored(content: str, encoding: str) -> bytes:
    try:
        return content.encode() if encoding == "text" else base64.b64decode(content, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise BadInput(f"content is not {'text' if encoding == 'text' else 'base64'}", argument="content") from None


@op
def delete_object(
    key: str, bucket: str | None = None, version_id: str | None = None, etag: str | None = None
) -> dict[str, Any]:
    """Delete an object. With `version_id`, permanently delete that version of the object. S3 does not say whether the
    object existed.
    """
    headers = [] if etag is None else [("If-Match", _checked_etag(etag))]
    place, query = Place.of(bucket, key), _version(version_id)
    with api.ask("delete the object", "DELETE", place, query, headers, needs="s3:DeleteObject") as answer:
        marker = _field(answer, "x-amz-delete-marker") == "true"
        deleted = {"key": key, "version_id": _field(answer, "x-amz-version-id"), "is_delete_marker": marker}
    log.info("object deleted")
    return {"deleted": deleted}


if __name__ == "__main__":
    run()
