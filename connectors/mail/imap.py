"""Client for one mailbox over IMAP: folders, searches, messages and their parts, copies and drafts.

    with imap.opened() as box:
        folder = box.look_into("INBOX")
        found = folder.search(Criteria(unread=True), before_uid=None)

The supervisor logs in; the user name and password that are sent here are ignored. Reading opens a folder with EXAMINE and fetches
parts with BODY.PEEK, so that no message is marked as read. Every answer is bounded.

A message is named by folder, UIDVALIDITY and UID as in an IMAP URL (RFC 5092), so that an id never means another message:
`INBOX;UIDVALIDITY=1700000000/;UID=42`.

Runs in the jail, over `imaplib`. Source: RFC 3501, RFC 6154 (special use), RFC 4315 (APPENDUID), RFC 6851 (MOVE).
Not here: parsing answers (answers.py), the text of a message (reading.py), sending (sending.py).
"""

from __future__ import annotations

import contextlib
import datetime
import imaplib
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import failing
import places
from answers import AnswerError, Fetched, Part, as_wire, fetched, folder_name, values_in

from aileron_connector import BadInput, ExternalApiError
from aileron_connector.mail import one_line

__all__ = ["Criteria", "Folder", "Listed", "MessageId", "Opened", "opened", "read_id"]

WAIT_S: Final = 25.0
"""Seconds to wait for each answer. A search of all texts in a large folder takes a while."""
MAX_ANSWER_BYTES: Final = 24 << 20
"""Maximum number of bytes in the answer to one command: an attachment of ATTACHMENTS_BYTES as base64, and the data around it."""
MAX_FOLDERS: Final = 1000
MAX_FOLDER_CHARACTERS: Final = 500
MAX_WINDOW: Final = 20_000
"""Maximum number of messages that one SEARCH command covers. Even if all of them match, the response line is shorter
than imaplib's limit of a million bytes.
"""
MAX_WINDOWS: Final = 100
"""Maximum number of searches for one listing; enough for two million messages."""
MAX_CRITERION_CHARACTERS: Final = 500
LISTED: Final = "UID FLAGS INTERNALDATE RFC822.SIZE BODYSTRUCTURE BODY.PEEK[HEADER.FIELDS (FROM TO CC SUBJECT DATE)]"
MAX_HEADER_BYTES: Final = 128 << 10
_ID: Final = re.compile(
    r"(?P<folder>[^;/\s]{1,2000});UIDVALIDITY=(?P<validity>[1-9]\d{0,9})/;UID=(?P<uid>[1-9]\d{0,9})"
)
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_USUAL_NAMES: Final = {
    "drafts": ("drafts", "inbox.drafts", "draft", "entwürfe", "brouillons"),
    "sent": ("sent", "inbox.sent", "sent items", "sent messages", "sent mail", "gesendet", "envoyés"),
}
"""Usual folder names, for servers that do not state the use of their folders (RFC 6154)."""
_USES: Final = frozenset({"all", "archive", "drafts", "flagged", "junk", "sent", "trash", "important"})


class MessageId(NamedTuple):
    """Permanent id of a message: folder, UIDVALIDITY and UID. If the server renumbers the folder, its UIDVALIDITY
    changes, so an old id matches no message.
    """

    folder: str
    validity: int
    uid: int

    def __str__(self) -> str:
        return f"{urllib.parse.quote(self.folder, safe='')};UIDVALIDITY={self.validity}/;UID={self.uid}"


def read_id(text: str, argument: str = "message_id") -> MessageId:
    """Parse the id of a message. Raises BadInput if the id is not valid."""
    found = _ID.fullmatch(text)
    if found is None:
        words = f"{argument} {text[:80]!r} is not an id as search_messages gives it"
        raise BadInput(words, argument=argument)
    return MessageId(urllib.parse.unquote(found["folder"]), int(found["validity"]), int(found["uid"]))


class Criteria(NamedTuple):
    """Criteria of a search. A message has to match all of them."""

    text: str | None = None
    sender: str | None = None
    to: str | None = None
    subject: str | None = None
    since: datetime.date | None = None
    before: datetime.date | None = None
    unread: bool | None = None

    def in_ascii(self) -> list[str]:
        """Return the criteria as IMAP search keys, but only those whose values need no charset. Raises BadInput for
        values that are not valid.
        """
        words = [piece for key, value in self._texts() if value.isascii() for piece in (key, _quoted(value))]
        dates = (("SINCE", self.since), ("BEFORE", self.before))
        words += [
            piece for key, day in dates if day for piece in (key, f"{day.day}-{_MONTHS[day.month - 1]}-{day.year:04}")
        ]
        if self.unread is not None:
            words.append("UNSEEN" if self.unread else "SEEN")
        return words

    def beyond_ascii(self) -> list[tuple[str, bytes]]:
        """Return, as IMAP search keys with UTF-8 values, the criteria whose values are not ASCII. Each needs a search
        of its own, because imaplib can send only one literal with a command.
        """
        return [(key, value.encode()) for key, value in self._texts() if not value.isascii()]

    def _texts(self) -> Iterator[tuple[str, str]]:
        named = {"TEXT": ("text", self.text), "FROM": ("sender", self.sender)}
        named |= {"TO": ("to", self.to), "SUBJECT": ("subject", self.subject)}
        for key, (argument, value) in named.items():
            if value is None:
                continue
            if not value.strip() or len(value) > MAX_CRITERION_CHARACTERS or re.search(r"[\x00-\x1f\x7f]", value):
                words = f"{argument} is empty, longer than {MAX_CRITERION_CHARACTERS} characters, or has a control character"
                raise BadInput(words, argument=argument)
            yield key, value


class Listed(NamedTuple):
    """A folder: its name, its special use in RFC 6154 (such as `sent`, or empty), and whether it can hold messages."""

    name: str
    use: str
    can_open: bool


class _Connection(imaplib.IMAP4_SSL):
    """An imaplib connection that limits the bytes of the responses to a command. imaplib itself reads any number of
    responses of any length.
    """

    taken = 0

    def read(self, size: int) -> bytes:
        self._take(size)
        return super().read(size)

    def readline(self) -> bytes:
        line = super().readline()
        self._take(len(line))
        return line

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken > MAX_ANSWER_BYTES:
            raise self.abort(f"an answer of more than {MAX_ANSWER_BYTES} bytes")


@contextlib.contextmanager
def opened() -> Iterator[Opened]:
    """Log in to the account's mailbox, and log out when the block ends. Exceptions of imaplib become failures of the
    connector.
    """
    with failing.translated("the mail server (IMAP)"):
        host = places.receiving()
        connection = _Connection(host.host, host.port, timeout=WAIT_S)
        try:
            connection.login("placeholder", "placeholder")
            yield Opened(connection, connection.capability()[1])
        finally:
            with contextlib.suppress(imaplib.IMAP4.error, OSError):
                connection.logout()


class Opened:
    """An account's mailbox at the IMAP server, after the login."""

    def __init__(self, connection: _Connection, capabilities: list[Any]) -> None:
        self._connection: Final = connection
        self._capabilities: Final = frozenset(
            b" ".join(filter(None, capabilities)).decode("ascii", "replace").upper().split()
        )
        self._listed: list[Listed] | None = None

    def can(self, capability: str) -> bool:
        """Return whether the server announced this IMAP capability after the login."""
        return capability in self._capabilities

    def folders(self) -> list[Listed]:
        """Return all folders, sorted by name. Raises ExternalApiError if there are more than MAX_FOLDERS."""
        if self._listed is None:
            pattern = '"*" RETURN (SPECIAL-USE)' if self._says_uses else '"*"'
            answer = self.ask("list the folders", "list", '""', pattern)
            self._listed = sorted(_folder(fields) for fields in _lists_of_three(answer))
            if len(self._listed) > MAX_FOLDERS:
                raise ExternalApiError(f"cannot list the folders: there are more than {MAX_FOLDERS}")
        return self._listed

    @property
    def _says_uses(self) -> bool:
        return self.can("SPECIAL-USE") and (self.can("LIST-EXTENDED") or self.can("IMAP4REV2"))

    def maybe_folder_for(self, use: str) -> str | None:
        """Return the name of the folder for `drafts` or `sent`, or None. A folder that the server declares for that use
        takes precedence over one with a usual name.
        """
        listed = [folder for folder in self.folders() if folder.can_open]
        named = [folder.name for folder in listed if folder.use == use]
        usual = [folder.name for name in _USUAL_NAMES[use] for folder in listed if folder.name.lower() == name]
        return next(iter(named + usual), None)

    def counts(self, folder: str) -> tuple[int, int]:
        """Return the number of messages in a folder, and the number of its unread messages."""
        answer = self.ask("count the messages", "status", _wire(folder), "(MESSAGES UNSEEN)")
        values = values_in(answer)
        if len(values) < 2 or not isinstance(values[-1], list):
            raise AnswerError("an answer to STATUS has no numbers")
        pairs = dict(zip(values[-1][::2], values[-1][1::2], strict=False))
        return _number(pairs.get(b"MESSAGES")), _number(pairs.get(b"UNSEEN"))

    def look_into(self, folder: str) -> Folder:
        """Open a folder for reading only. Raises BadInput if the folder does not exist."""
        return self._select(folder, is_read_only=True)

    def change_in(self, folder: str) -> Folder:
        """Open a folder so that messages can be marked and moved. Raises BadInput if the folder does not exist."""
        return self._select(folder, is_read_only=False)

    def _select(self, folder: str, *, is_read_only: bool) -> Folder:
        self._connection.taken = 0
        kind, answer = self._connection.select(_wire(folder), is_read_only)
        if kind != "OK":
            raise BadInput(f"there is no folder {folder[:80]!r} that can be opened: {_said(answer)}", argument="folder")
        validity = self._connection.response("UIDVALIDITY")[1]
        numbers = [_number(value[0] if value else None) for value in (validity, answer)]
        if not numbers[0]:
            raise AnswerError("the folder has no UIDVALIDITY")
        return Folder(self, folder, numbers[0], numbers[1])

    def message(self, message_id: MessageId, *, to_change: bool = False) -> Folder:
        """Open the folder of a message. Raises BadInput if the server has renumbered the folder since the id was issued."""
        folder = self._select(message_id.folder, is_read_only=not to_change)
        if folder.validity != message_id.validity:
            words = "the folder was numbered anew since this id was given: search again"
            raise BadInput(words, argument="message_id")
        return folder

    def append(self, folder: str, flags: str, message: bytes) -> MessageId | None:
        """Append a message to a folder. Return the message's id if the server reports it (UIDPLUS), else None."""
        answer = self.ask("put the message into its folder", "append", _wire(folder), flags, None, message)
        found = re.search(rb"\[APPENDUID (\d{1,10}) (\d{1,10})\]", answer[-1] if answer and answer[-1] else b"")
        return MessageId(folder, int(found[1]), int(found[2])) if found else None

    def ask(self, task: str, method: str, *arguments: Any) -> list[Any]:
        """Run a command of imaplib and return its answer. Raises ExternalApiError (`cannot {task}: …`) with the server's
        words if the server refuses the command.
        """
        self._connection.taken = 0
        kind, answer = getattr(self._connection, method)(*arguments)
        if kind != "OK":
            raise ExternalApiError(f"cannot {task}: the mail server says: {_said(answer)}")
        return list(answer)

    def ask_with(self, literal: bytes, task: str, method: str, *arguments: Any) -> list[Any]:
        """Run a command as `ask` does, with `literal` at its end."""
        self._connection.literal = literal  # type: ignore[assignment]  # typeshed has str, but imaplib sends bytes
        return self.ask(task, method, *arguments)


class Folder:
    """A folder of the mailbox, opened for reading (EXAMINE) or for changes (SELECT)."""

    def __init__(self, box: Opened, name: str, validity: int, size: int) -> None:
        self._box: Final = box
        self.name: Final = name
        self.validity: Final = validity
        self.size: Final = size

    def id_of(self, uid: int) -> str:
        """Return the permanent id of the message with this UID in this folder."""
        return str(MessageId(self.name, self.validity, uid))

    def search(self, criteria: Criteria, before_uid: int | None) -> Iterator[list[int]]:
        """Yield the UIDs of messages that match the criteria, below `before_uid`, newest first, in one list per window
        of MAX_WINDOW messages.
        """
        words = [*criteria.in_ascii(), *(() if before_uid is None else ("UID", f"1:{before_uid - 1}"))]
        literals = criteria.beyond_ascii()
        if before_uid == 1:
            return
        for window in range(min(MAX_WINDOWS, -(-self.size // MAX_WINDOW))):
            last = self.size - window * MAX_WINDOW
            asked = [f"{max(1, last - MAX_WINDOW + 1)}:{last}", *words]
            found = [self._found(asked, key, value) for key, value in literals] or [self._found(asked)]
            yield sorted(set.intersection(*found), reverse=True)

    def _found(self, words: list[str], key: str | None = None, value: bytes = b"") -> set[int]:
        if key is None:
            answer = self._box.ask("search", "uid", "SEARCH", *words)
        else:
            answer = self._box.ask_with(value, "search", "uid", "SEARCH", "CHARSET", "UTF-8", *words, key)
        return {_number(word) for line in answer if isinstance(line, bytes) for word in line.split()} - {0}

    def fetch(self, uids: list[int], items: str) -> dict[int, Fetched]:
        """Fetch data items, such as `FLAGS`, of messages by UID. Messages that were deleted meanwhile are left out."""
        if not uids:
            return {}
        answer = self._box.ask("read messages", "uid", "FETCH", ",".join(map(str, uids)), f"({items})")
        merged: dict[int, Fetched] = {}
        for message in fetched(answer):
            uid = message.number("UID")
            merged[uid] = Fetched({**(merged[uid].items if uid in merged else {}), **message.items})
        return {uid: merged[uid] for uid in uids if uid in merged}

    def fetch_one(self, uid: int, items: str) -> Fetched:
        """Fetch data items, such as `FLAGS`, of one message. Raises BadInput if the message no longer exists."""
        found = self.fetch([uid], items).get(uid)
        if found is None:
            raise BadInput("there is no such message any more: search again", argument="message_id")
        return found

    def part(self, uid: int, part: Part, limit_bytes: int) -> bytes:
        """Fetch at most `limit_bytes` of a part's encoded bytes."""
        return self.fetch_one(uid, f"UID BODY.PEEK[{part.section}]<0.{limit_bytes}>").section(part.section)

    def mark(self, uid: int, change: str, flag: str) -> None:
        """Add a flag to a message (`change` is `+FLAGS`) or remove the flag (`-FLAGS`)."""
        self._box.ask("mark the message", "uid", "STORE", str(uid), f"{change}.SILENT", f"({flag})")

    def move(self, uid: int, folder: str) -> None:
        """Move a message in one step. If the server cannot do that, copy the message and then delete only the original."""
        if self._box.can("MOVE"):
            self._box.ask("move the message", "uid", "MOVE", str(uid), _wire(folder))
        elif self._box.can("UIDPLUS"):
            self._box.ask("copy the message", "uid", "COPY", str(uid), _wire(folder))
            self.mark(uid, "+FLAGS", r"\Deleted")
            self._box.ask("take the message out of its folder", "uid", "EXPUNGE", str(uid))
        else:
            raise ExternalApiError("cannot move the message: the mail server has neither MOVE nor UIDPLUS")


def _lists_of_three(answer: list[Any]) -> Iterator[list[Any]]:
    """Yield flags, separator and name of each folder in a LIST response, without the extended data that may follow the
    name (RFC 5258).
    """
    values, at = values_in(answer), 0
    while at + 3 <= len(values):
        yield values[at : at + 3]
        at += 3
        if at < len(values) and isinstance(values[at], list) and isinstance((*values, [])[at + 1], list):
            at += 1


def _folder(found: list[Any]) -> Listed:
    flags, _separator, name = found
    if not isinstance(flags, list) or not isinstance(name, bytes):
        raise AnswerError("an answer to LIST is not flags, a separator and a name")
    words = {flag.decode("ascii", "replace").lower().removeprefix("\\") for flag in flags if isinstance(flag, bytes)}
    use = next(iter(sorted(words & _USES)), "")
    return Listed(one_line(folder_name(name)), use, not words & {"noselect", "nonexistent"})


def _wire(folder: str) -> str:
    if not folder or len(folder) > MAX_FOLDER_CHARACTERS or re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", folder):
        words = f"folder is empty, longer than {MAX_FOLDER_CHARACTERS} characters, or has a control character"
        raise BadInput(words, argument="folder")
    return as_wire(folder)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(value: Any) -> int:
    return int(value) if isinstance(value, bytes) and re.fullmatch(rb"\d{1,10}", value) else 0


def _said(answer: Any) -> str:
    """Return the text of the server's answer on one line, with at most 200 characters."""
    last = answer[-1] if answer else b""
    return one_line(last.decode("utf-8", "replace"))[:200] if isinstance(last, bytes) else "nothing"
