"""Listing commits as JSON, newest first, and making new ones. A new commit depends only on its arguments, so equal
arguments give the same id.

Source: gitformat-commit in Documentation/user-manual of git. Not here: files (trees.py, changes.py).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from dulwich.objects import Commit
from packs import Objects

from aileron_connector import BadInput

__all__ = ["described", "line_of", "made_commit", "walked"]

MAX_MESSAGE_CHARACTERS: Final = 4000
"""Maximum number of characters of a message in an answer."""
MAX_MESSAGE_BYTES: Final = 32 << 10
"""Maximum number of bytes of a pushed message. All arguments together have at most 48 KiB."""
MAX_IDENTITY_CHARACTERS: Final = 200
MAX_DAYS_OF_ZONE: Final = 1


def described(commit: Commit) -> dict[str, Any]:
    """Return the commit as JSON.

    The keys are `id`, `parents`, `author`, `author_email`, `date`, `committer`, `committed`, `subject` and `message`.
    """
    author, email = _person(commit.author)
    message = commit.message.decode("utf-8", "replace")
    return {
        "id": commit.id.decode(),
        "parents": [parent.decode() for parent in commit.parents],
        "author": author,
        "author_email": email,
        "date": _moment(commit.author_time, commit.author_timezone),
        "committer": _person(commit.committer)[0],
        "committed": _moment(commit.commit_time, commit.commit_timezone),
        "subject": _subject(message),
        "message": message if len(message) <= MAX_MESSAGE_CHARACTERS else message[:MAX_MESSAGE_CHARACTERS] + "…",
    }


def line_of(commit: Commit) -> str:
    """Return a line like `0123abc4def0 subject (author <email>, 2026-03-01T10:00+01:00)` for a person who has to decide.

    The date includes the zone, because the same moment can have different dates in two zones. The committer chooses the
    zone. If the commit declares an encoding other than UTF-8, the line states it, since other programs then decode the
    message differently.
    """
    found = described(commit)
    encoding = (commit.encoding or b"UTF-8").decode("ascii", "backslashreplace")
    other = "" if encoding.upper() in ("UTF-8", "UTF8") else f", other programs read it as {encoding[:40]!a}"
    person = f"{found['author']} <{found['author_email']}>"
    return f"{found['id'][:12]} {found['subject']} ({person}, {_to_the_minute(found['date'])}{other})"


def walked(objects: Objects, tips: list[bytes]) -> Iterator[Commit]:
    """Yield the available commits from `tips` backwards, newest first. If the commits' dates are right, each commit
    comes after all of its children.
    """
    waiting: list[tuple[int, bytes, Commit]] = []
    seen: set[bytes] = set()

    def look(sha: bytes) -> None:
        if sha not in seen and sha in objects:
            commit = objects.commit(sha)
            heapq.heappush(waiting, (-commit.commit_time, sha, commit))
        seen.add(sha)

    for tip in tips:
        look(tip)
    while waiting:
        _, _, commit = heapq.heappop(waiting)
        yield commit
        for parent in commit.parents:
            look(bytes(parent))


def made_commit(
    tree: bytes, parent: bytes | None, message: str, author_name: str, author_email: str, date: str
) -> Commit:
    """Make a commit from exactly these values. Raises BadInput if git would not accept the commit."""
    text = message.strip()
    if not text or "\0" in text or len(text.encode()) > MAX_MESSAGE_BYTES:
        raise BadInput(f"message is empty, has a null, or more than {MAX_MESSAGE_BYTES >> 10} KiB", argument="message")
    moment = _read_date(date)
    zone = moment.utcoffset() or timedelta()
    commit = Commit()
    commit.tree = tree
    commit.parents = [] if parent is None else [parent]  # type: ignore[list-item]
    commit.author = commit.committer = _identity(author_name, author_email)
    commit.author_time = commit.commit_time = int(moment.timestamp())
    commit.author_timezone = commit.commit_timezone = int(zone.total_seconds())
    commit.message = text.encode() + b"\n"
    return commit


def _identity(name: str, email: str) -> bytes:
    if not re.fullmatch(r"[^<>\x00-\x1f\x7f]*[^<>\x00-\x20\x7f][^<>\x00-\x1f\x7f]*", name) or not name.isprintable():
        raise BadInput("author_name is empty, or has < or > or a control character", argument="author_name")
    if not re.fullmatch(r"[!-;=?-~]+@[!-;=?-~]+", email):
        raise BadInput("author_email is not a mail address", argument="author_email")
    if len(name) + len(email) > MAX_IDENTITY_CHARACTERS:
        raise BadInput(f"author_name and author_email have more than {MAX_IDENTITY_CHARACTERS} characters")
    return f"{name.strip()} <{email}>".encode()


def _read_date(date: str) -> datetime:
    words = "date is not RFC 3339 with a UTC offset in minutes, such as 2026-03-01T10:00:00+01:00"
    try:
        moment = datetime.fromisoformat(date)
    except ValueError as error:
        raise BadInput(words, argument="date") from error
    zone = moment.utcoffset()
    if (
        zone is None
        or zone.total_seconds() % 60
        or abs(zone) >= timedelta(days=MAX_DAYS_OF_ZONE)
        or moment.timestamp() < 0
    ):
        raise BadInput(words, argument="date")
    return moment


def _moment(seconds: int, zone_s: int) -> str:
    """Return a time in RFC 3339; a time outside of the calendar is returned in seconds."""
    try:
        return datetime.fromtimestamp(seconds, timezone(timedelta(seconds=zone_s))).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{seconds} seconds after {datetime.fromtimestamp(0, UTC):%Y-%m-%d}"


def _to_the_minute(moment: str) -> str:
    """Return a time in RFC 3339 without its seconds; any other text is returned unchanged."""
    return re.sub(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d):\d\d(?=[+-])", r"\1", moment)


def _person(raw: bytes) -> tuple[str, str]:
    text = raw.decode("utf-8", "replace")
    name, _, rest = text.partition("<")
    return name.strip()[:MAX_IDENTITY_CHARACTERS], rest.partition(">")[0][:MAX_IDENTITY_CHARACTERS]


def _subject(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")[:200]
