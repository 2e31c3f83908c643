"""Sheets, entries and records as rows of a terminal: rich `Text`, laid out for a width in cells.

Pure. What comes in is harmless already (review/); here it is folded, never interpreted: no markup, no links. A tone is a style
and the sign that the line has anyway, so that a terminal without colours, or a reader of the plain text, has the same.

Rules
- Nothing is cut without a word: a fact longer than MAX_ROWS says how much more there is, until all of it is asked for.

Not here: where it stands on the screen (app.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text

from aileron.model.visible import BAR, as_text, visible
from aileron.review.record import Left, Record
from aileron.review.sheet import Fact, Line, Section, Sheet, Tone
from aileron.tui.waiting import Entry, seconds_left

__all__ = [
    "MAX_ROWS",
    "body_rows",
    "duration",
    "entry_row",
    "essential_rows",
    "event_row",
    "folded",
    "grant_row",
    "joined",
    "local_time",
    "record_rows",
    "request_rows",
    "session_row",
    "system_text",
]

MAX_ROWS: Final = 200
"""Of one fact: eight small screens."""
_COLUMN: Final = 10
_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.ALARM: "bold red",
    Tone.CHANGED: "bold yellow",
    Tone.QUOTED: "",
    Tone.SOFT: "dim",
}
_SIGNS: Final = {
    "pending_approval": " ",
    "approved": "✓",
    "completed": "✓",
    "running": "▶",
    "denied": "✗",
    "failed": "✗",
    "expired": "⌛",
    "cancelled": "–",
    "unknown": "?",
}


def essential_rows(sheet: Sheet, width: int) -> list[Text]:
    """What is never scrolled away: the verdict, the facts that matter most, the alarms."""
    rows = [_toned(sheet.verdict, f"{sheet.title}  ")]
    for fact in sheet.essentials:
        rows += _fact_rows(fact, width, is_whole=True)
    for alarm in sheet.alarms:
        rows += _line_rows(alarm, width, "")
    return rows


def body_rows(sections: Iterable[Section], width: int, *, is_whole: bool) -> tuple[list[Text], bool]:
    """All the rest in order, and whether something of it is not among these rows."""
    rows: list[Text] = []
    is_cut = False
    for section in sections:
        if section.is_said:
            rows += _box(section, width)
            continue
        rows.append(Text(section.title.upper(), style="bold"))
        for fact in section.facts:
            some = _fact_rows(fact, width, is_whole=is_whole)
            if not is_whole and len(some) > MAX_ROWS:
                left = sum(len(line.text) for line in fact.lines) - sum(len(row.plain) for row in some[:MAX_ROWS])
                some = [
                    *some[:MAX_ROWS],
                    Text(f"  … about {max(left, 1):,} more characters: f shows all", style="bold"),
                ]
                is_cut = True
            rows += some
        rows.append(Text())
    return rows, is_cut


def entry_row(entry: Entry, width: int, *, is_marked: bool = False, count: int = 1) -> Text:
    """One question in the list: a sign, what, who, and how long it waits yet, in one row."""
    left = seconds_left(entry.expires_at)
    when = duration(left) if entry.is_open and left is not None else "" if entry.is_open else entry.status
    sign = (
        "●" if is_marked else "!" if entry.is_open and left is not None and left < 60 else _SIGNS.get(entry.status, "·")
    )
    end = f"{entry.asker:.16}  {when:>9}"
    title = entry.title + (f" ×{count}" if count > 1 else "")
    room = max(width - cell_len(end) - 4, 8)
    name = _cut(title, room)
    return Text(
        f"{sign} {name}{' ' * max(room - cell_len(name), 0)}  {end}",
        style="" if entry.is_open else "dim",
        no_wrap=True,
        overflow="ellipsis",
    )


def record_rows(record: Record, width: int) -> list[Text]:
    """A run on record: how it ended, every request that left, and what happened in order."""
    rows = [Text(f"run {record.audit_id}: {record.status}", style="bold"), Text("REQUESTS THAT LEFT", style="bold")]
    rows += list(request_rows(record.requests, width)) or [Text("  none", style="dim")]
    rows += [Text(), Text("ON RECORD", style="bold")]
    for at, kind, facts in record.events:
        rows += _hanging(f"{local_time(at)}  {kind}  ", facts, width)
    if record.is_cut:
        rows.append(Text("! there is more on record: aileron audit list --run ID", style="bold red"))
    return rows


def request_rows(requests: Iterable[Left], width: int) -> Iterator[Text]:
    """Method, host, path, how it ended, bytes up and down, milliseconds."""
    for one in requests:
        sizes = (
            "" if one.bytes_up is None else f"{one.bytes_up:,} B up  {one.bytes_down or 0:,} B down  {one.ms or 0:,} ms"
        )
        style = "bold red" if one.is_bad else ""
        for row in _hanging("  ", f"{one.method} {one.where}{one.path}  {one.ended}", width):
            row.stylize(style)
            yield row
        for more in (sizes, f"as {one.credential}" if one.credential else "", one.note or ""):
            if more:
                yield Text(f"    {more}", style="dim")


def joined(rows: Iterable[Text]) -> Text:
    """Rows as one text."""
    return Text("\n").join(rows)


def folded(text: str, width: int) -> list[str]:
    """`text` in rows of at most `width` cells, at spaces where there are some; no character is lost but the space at a fold."""
    width = max(width, 8)
    rows: list[str] = []
    while cell_len(text) > width:
        cut = _fitting(text, width)
        space = text.rfind(" ", 0, cut + 1)
        if space > cut // 2:
            rows.append(text[:space])
            text = text[space + 1 :]
        else:
            rows.append(text[:cut])
            text = text[cut:]
    return [*rows, text]


def duration(seconds: float) -> str:
    """How long, for a person: `4:41`, `2 h`, `over`."""
    if seconds < 0:
        return "over"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def local_time(moment: object) -> str:
    """RFC 3339 in local time: the time of what was today, the day and the time of what was not."""
    try:
        at = datetime.datetime.fromisoformat(str(moment)).astimezone()
    except ValueError:
        return "an unknown time"
    return at.strftime("%H:%M:%S" if at.date() == datetime.datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")


def event_row(event: Mapping[str, Any]) -> Text:
    """One event of the record, in one row."""
    hidden = ("seq", "at", "type", "hash", "run", "plan", "layers", "steps", "args", "head", "signature")
    facts = " ".join(f"{visible(name)}={as_text(value):.60}" for name, value in event.items() if name not in hidden)
    row = Text(f"{local_time(event.get('at'))} {as_text(event.get('type')):<18} ", no_wrap=True, overflow="ellipsis")
    return row.append(facts, style="dim")


def grant_row(one: Mapping[str, Any]) -> Text:
    """One grant: what runs without asking, and how often it may yet."""
    from aileron.review.subject import constraint_words

    words = " and ".join(visible(constraint_words(each)) for each in one.get("constraints") or [])
    left = seconds_left(str(one.get("until")))
    until = "?" if left is None else duration(left)
    return Text(
        f"{as_text(one.get('action'))}  {one.get('used')} of {one.get('uses')}, {until} left  {words or 'ALWAYS'}"
    )


def session_row(one: Mapping[str, Any]) -> Text:
    """One session: which agent, and where."""
    return Text(
        f"{as_text(one.get('agent')):<12} {as_text(one.get('status')):<8} {local_time(one.get('started_at'))}  "
        f"{one.get('runs')} runs  {as_text(one.get('folder'))}",
        style="" if one.get("status") == "open" else "dim",
    )


def system_text(status: Mapping[str, Any], approver: Mapping[str, Any], key: str) -> Text:
    """The daemon, the vault, who decides, and what is in force."""
    jail = (status.get("jail") or {}).get("layers") or []
    waiting = status.get("settings_waiting") or []
    vault = status.get("vault") or {}
    facts = {
        "daemon": f"{status.get('version')}, process {status.get('pid')}",
        "since": local_time(status.get("started_at")),
        "home": status.get("home"),
        "pages": f"{status.get('web')}/approvals",
        "vault": "none: aileron vault init" if not vault.get("exists") else "locked" if vault.get("locked") else "open",
        "approver": approver.get("key_id") or approver.get("status"),
        "key here": key,
        "jail": ", ".join(map(str, jail)),
        "actions": status.get("actions"),
        "connectors": status.get("connectors"),
        "settings": f"! not agreed to yet: {', '.join(map(str, waiting))}" if waiting else "as agreed to",
        "more": "aileron doctor",
    }
    return Text("\n".join(f"{name:<11} {as_text(value)}" for name, value in facts.items()))


def _fact_rows(fact: Fact, width: int, *, is_whole: bool) -> list[Text]:
    rows: list[Text] = []
    name = fact.name
    indent = " " * _COLUMN
    if cell_len(name) >= _COLUMN:
        rows += [Text(row, style="dim") for row in folded(name, width)]
        name = ""
    for line in fact.lines or (Line("-", Tone.SOFT),):
        rows += _line_rows(line, width, indent)
        if not is_whole and len(rows) > MAX_ROWS:  # one more than is shown says that there are more
            break
    if name:
        first = rows[0]
        rows[0] = Text(name.ljust(_COLUMN), style="dim") + first[_COLUMN:] if len(first) >= _COLUMN else first
    return rows


def _line_rows(line: Line, width: int, indent: str) -> list[Text]:
    bar = BAR if line.tone is Tone.QUOTED else ""
    rows = folded(line.text, width - len(indent) - len(bar))
    style = _STYLES[line.tone]
    return [Text(indent) + Text(bar, style="dim") + Text(row, style=style) for row in rows]


def _toned(line: Line, before: str) -> Text:
    return Text(before, style="bold") + Text(line.text, style=_STYLES[line.tone])


def _box(section: Section, width: int) -> list[Text]:
    """Somebody's words, framed."""
    inner = max(width - 4, 16)
    title = f" {section.title} "
    rows = [Text(f"┌─{title}{'─' * max(inner - cell_len(title) + 1, 0)}┐", style="dim")]
    for fact in section.facts:
        for number, line in enumerate(fact.lines):
            label = f"{fact.name}: " if number == 0 else ""
            for row in folded(label + line.text, inner):
                rows.append(
                    Text("│ ", style="dim") + Text(row + " " * max(inner - cell_len(row), 0)) + Text(" │", style="dim")
                )
    return [*rows, Text(f"└{'─' * (inner + 2)}┘", style="dim"), Text()]


def _hanging(begin: str, text: str, width: int) -> list[Text]:
    first, *rest = folded(begin + text, width)
    return [Text(first), *(Text(f"    {row}") for part in rest for row in folded(part, width - 4))]


def _fitting(text: str, width: int) -> int:
    """How many characters from the beginning have at most `width` cells; one at least."""
    cells = 0
    for index, character in enumerate(text):
        cells += cell_len(character)
        if cells > width:
            return max(index, 1)
    return len(text)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else text[: _fitting(text, width - 1)] + "…"
