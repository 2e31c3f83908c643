"""Client for the part of S3's REST API that this connector needs. Each request is about one bucket or object; refusals
become failures with an explanation.

    with api.ask("read the object", "GET", Place("notes", "2026/may.txt"), needs="s3:GetObject") as answer:
        ...

If the caller names a bucket, its name is the first part of the path. Otherwise the host name already stands for one bucket.
Redirects are not followed, because the signature is for one host and one region; the failure names the bucket's region instead.

S3's error code becomes `details.reason`; S3's message is dropped, because it quotes the request and the account.

Runs inside the jail and has no key: the host signs. If S3 refuses the signature, because of the key, the region or the
clock, the host handles that response itself.

Source: Amazon S3's API reference, "REST API", "Error responses", "Creating object key names". Not here: the operations
(__main__.py), retries (the host, as the action allows).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from answers import parsed

from aileron_connector import BadInput, ConnectorError, ExternalApiError, hosts, http

__all__ = ["Place", "ask", "maybe_ask"]

MAX_ERROR_BYTES: Final = 64 << 10
"""Maximum number of bytes of an error's body. An error of S3 has less than 1 KiB."""
MAX_KEY_BYTES: Final = 1024
"""S3's own limit for a key, in bytes of UTF-8."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CODE: Final = re.compile(r"[A-Za-z0-9.]{1,64}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_NOT_FOUND: Final = 404
_LOOK_FIRST: Final = "; it may be done all the same: look at the object before you ask again"
_OTHER_REGION: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraintException"}
)


class Place(NamedTuple):
    """A bucket, or an object in a bucket. If `bucket` is None, the bucket is the one that the host name stands for."""

    bucket: str | None
    key: str | None = None

    @classmethod
    def of(cls, bucket: str | None, key: str | None = None) -> Place:
        """Make a place from an operation's arguments. Raises BadInput if a bucket or key is not valid."""
        if bucket is not None and (_BUCKET.fullmatch(bucket) is None or ".." in bucket):
            words = f"bucket {bucket[:64]!r} is not the name of a bucket: 3 to 63 of a-z, 0-9, - and ."
            raise BadInput(words, argument="bucket")
        if key is not None:
            _check_key(key)
        return cls(bucket, key)

    @property
    def url(self) -> str:
        """URL of the bucket or object at the first granted host, with the percent-encoding that S3 signs."""
        path = "/".join(part for part in (self.bucket, _quoted(self.key)) if part is not None)
        return f"{hosts()[0].url}/{path}"


def _check_key(key: str) -> None:
    if not 1 <= len(key.encode("utf-8", "replace")) <= MAX_KEY_BYTES:
        raise BadInput(
            f"key has {len(key)} characters; it has to be 1 to {MAX_KEY_BYTES} bytes in UTF-8", argument="key"
        )
    if any(part in (".", "..") for part in (name.partition(";")[0] for name in key.split("/"))):
        words = f"key {key[:64]!r} has a part `.` or `..`, which would be another path on the way"
        raise BadInput(words, argument="key")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadInput("key has half a surrogate pair, which UTF-8 cannot say", argument="key") from None


def _quoted(key: str | None) -> str | None:
    return None if key is None else urllib.parse.quote(key, safe="/-._~")


def ask(
    task: str,
    method: str,
    place: Place,
    query: Sequence[tuple[str, str]] = (),
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    *,
    needs: str,
) -> http.Response:
    """Send a request to S3 and return the answer if its status is below 300. `needs` is the permission that the request
    requires.

    Raises ConnectorError for any other status, with a message that begins `cannot {task}: …`.
    """
    answer = _sent(method, place, query, headers, body)
    if answer.status < 300:
        return answer
    with answer:
        raise _refusal(answer, task, method, place, needs)


def maybe_ask(
    task: str, method: str, place: Place, query: Sequence[tuple[str, str]] = (), *, needs: str
) -> http.Response | None:
    """Send a request as `ask` does, but return None if the object does not exist."""
    answer = _sent(method, place, query, (), None)
    if answer.status == _NOT_FOUND:
        answer.close()
        return None
    if answer.status < 300:
        return answer
    with answer:
        raise _refusal(answer, task, method, place, needs)


def _sent(
    method: str,
    place: Place,
    query: Sequence[tuple[str, str]],
    headers: Sequence[tuple[str, str]],
    body: bytes | None,
) -> http.Response:
    asked = urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="-._~")
    url = f"{place.url}?{asked}" if asked else place.url
    return http.request(method, url, headers, body, credential="aws_sigv4")


# Refusals


class _Said(NamedTuple):
    code: str
    region: str | None


def _refusal(answer: http.Response, task: str, method: str, place: Place, needs: str) -> ConnectorError:
    said = _said(answer)
    if (mistake := _mistake(said.code, place)) is not None:
        return BadInput(f"cannot {task}: {mistake.words} [{said.code}]", argument=mistake.argument)
    words = _in_words(answer.status, said, needs)
    if method in ("PUT", "DELETE") and answer.status >= 500:
        words += _LOOK_FIRST
    details: dict[str, Any] = {"reason": said.code}
    if said.region is not None:
        details["region"] = said.region
    message = f"cannot {task}: {words} [{said.code}]"
    return ExternalApiError(message, status=answer.status, retry_after_s=answer.retry_after_s, details=details)


def _said(answer: http.Response) -> _Said:
    """Return S3's error code and the bucket's region from a refusal. Without a code in its body, such as for HEAD, the code
    is `status N`.
    """
    code, region = "", answer.headers.get("x-amz-bucket-region")
    try:
        error = parsed(answer.read(MAX_ERROR_BYTES))
        code, region = error.value("Code") or "", region or error.value("Region")
    except ExternalApiError:
        pass  # the status is enough
    is_region = region is not None and _REGION.fullmatch(region) is not None
    return _Said(code if _CODE.fullmatch(code) else f"status {answer.status}", region if is_region else None)


class _Mistake(NamedTuple):
    """A mistake that the caller can correct: the wrong argument, and the explanation for the caller."""

    argument: str
    words: str


_MISTAKES: Final = {
    "NoSuchBucket": _Mistake("bucket", "there is no such bucket"),
    "NoSuchKey": _Mistake("key", "there is no such object"),
    "NoSuchVersion": _Mistake("version_id", "there is no such version of the object"),
    "InvalidBucketName": _Mistake("bucket", "that is not the name of a bucket"),
    "KeyTooLongError": _Mistake("key", "the key is longer than 1024 bytes"),
}


def _mistake(code: str, place: Place) -> _Mistake | None:
    """Return the caller's mistake that an error code of S3 stands for, or None. A wrong bucket is not the caller's
    mistake if the host name determines the bucket.
    """
    found = _MISTAKES.get(code)
    return None if found is not None and found.argument == "bucket" and place.bucket is None else found


_OTHERS: Final = {
    "PreconditionFailed": "the object is not as you said (it has changed, or exists already)",
    "ConditionalRequestConflict": "somebody else is changing the object at this moment",
    "InvalidObjectState": "the object is archived: it has to be restored first",
    "MethodNotAllowed": "it is not possible for this object, such as for a version that is a delete marker",
    "NoSuchBucket": "there is no bucket at this host",
    "EntityTooLarge": "the object is larger than the service takes",
    "InvalidArgument": "the service does not accept an argument",
}


def _in_words(answered: int, said: _Said, needs: str) -> str:
    """Return an explanation of S3's refusal (status `answered`, error `said`) and, if known, how to fix its cause.
    `needs` is the permission that the request requires.
    """
    if said.code in _OTHER_REGION or 300 <= answered < 400:
        where = "another region" if said.region is None else f"the region {said.region}"
        fix = "build it with that as --region and for the host there, and install it"
        return f"the bucket is in {where}, and this connector signs for its own; {fix}"
    if said.code in _OTHERS:
        return _OTHERS[said.code]
    if answered == 403:
        doubt = "" if said.code == "AccessDenied" else ", or the access key is not accepted"
        return f"the policy of the access key, or of the bucket, does not allow it (it needs {needs}){doubt}"
    if answered == 412:
        return _OTHERS["PreconditionFailed"]
    if answered == 429 or said.code == "SlowDown":
        return "too many requests for now"
    return "the service has a problem of its own" if answered >= 500 else f"the service answered {answered}"
