"""Rows of a terminal for cards, entries and records: rich `Text`, laid out for a width in cells.

Pure. The input was sanitized before (cards/). This module wraps text and never interprets it: no markup, no links. A
tone is a style in addition to the sign that a line has in any case, so that nothing is lost without colours or in plain
text.

Rules
- Nothing is cut silently: a fact longer than MAX_ROWS says how much is missing, until the person shows it in full.
- A row of several parts is built with `Text.assemble`, not with `+`: text added to a rich `Text` takes on the style of
  the first part.
- No row is wider than its layout width on any terminal, because `cells` returns the maximum number of cells of a text.

Not here: the position of rows on the screen (app.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, get_character_cell_size
from rich.text import Text

from aileron.cards.row import group_title
from aileron.model.json_value import JSON
from aileron.model.text_width import text_width
from aileron.model.timestamp import local_time
from aileron.model.visible import BAR, FURTHER, as_fact, as_text, visible
from aileron.tui.waiting import PendingEntry, seconds_left

if TYPE_CHECKING:  # 8 ms, with the first question and not before the first frame
    from aileron.api.approver import ApproverFacts
    from aileron.api.daemon import Status
    from aileron.api.grants import GrantEntry
    from aileron.api.sessions import Session
    from aileron.cards.card import Card, Fact, Line, Section
    from aileron.cards.record import Left, Record
    from aileron.cards.row import Row

__all__ = [
    "MAX_ROWS",
    "body_rows",
    "cells",
    "cut",
    "cut_short",
    "difference_rows",
    "duration",
    "entry_row",
    "essential_rows",
    "event_row",
    "folded",
    "further",
    "grant_facts",
    "grant_row",
    "joined",
    "record_rows",
    "request_rows",
    "session_facts",
    "session_row",
    "shown",
    "system_text",
]

MAX_ROWS: Final = 200
"""Maximum number of rows of one fact of a card, unless shown in full: eight small screens."""
_LONGEST_NOTE: Final = "expires in 59:59"
_MOST_HEADLINE: Final = 2
"""Maximum number of rows of the headline in the part that is never scrolled away; a name in the headline can be as long as an
address.
"""
_WIDER: Final = "\ufe0f"
"""Variation selector that turns the preceding character into an emoji two cells wide.

Some terminals draw the selector in a cell of its own.
"""
_KNOWN: Final = 4096
_PER_CELL: Final = 9
"""Maximum number of characters in one cell: a letter, and the marks on it that model/visible.py keeps."""
_MOST_FACT: Final = 60
"""Maximum number of cells of a fact of an event in a row with other facts."""
_FACTS_FIRST: Final = {
    name: place
    for place, name in enumerate(
        ("action", "agent", "decision", "method", "host", "port", "path", "status", "class", "reason")
    )
}
"""Order of the most important facts in an event's row. They come first, so that a narrow row omits the others."""
_SOON_S: Final = 60.0
_COLUMN: Final = 10
_LABEL: Final = 12
"""Cells of the label of a fact on the system screen."""
_ASKER: Final = 10
_SHORT_ASKER: Final = 7
_VERDICT: Final = 9
"""Width in cells of the verdict in a row of the list, enough for most, such as `! DELETES`. A longer one shifts the title."""
_WHOLE_ASKER: Final = 60
"""Width of a list, in cells, from which the column that shows who asks has its full width."""
_INLINE: Final = 78
"""Width of the list of questions, in cells, from which a question's alarm is on the same line as its title, before it.

A list above a card is at least that wide; a list beside a card is narrower (frame.py).
"""
_LEAST_TITLE: Final = 8
"""Minimum number of cells for a title to begin on the line of its verdict."""
_STYLES: Final = {
    "plain": "",
    "marked": "bold yellow",
    "alarm": "bold red",
    "changed": "bold yellow",
    "quoted": "",
    "soft": "dim",
}
"""Rich style by tone of a card's line (cards/card.py)."""
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


def essential_rows(card: Card, width: int, most: int | None = None, *, note: str = "") -> list[Text]:
    """Return the rows that are never scrolled away: headline, verdict, alarms and essentials. There are at most `most` rows, if
    given.

    A fact that gets too few rows says how many are missing; `cut_short` returns that fact in full, for the body.
    The verdict is always included. `note` is short, and stands beside or below the verdict.
    """
    groups = _groups(card, width)
    rows = _head_rows(card, width, note, most)
    room = None if most is None else most - len(_head_rows(card, width, _LONGEST_NOTE, most))
    shares = _shares(groups, _least_of(card, room), room)
    for number, (group, share) in enumerate(zip(groups, shares, strict=True)):
        if len(group) <= share:
            rows += group
        else:
            is_of_alarms = bool(card.alarms) and number == 0
            rows += _shortened(_begun(_alarms(card, width), share) if is_of_alarms else group, share, width)
    return rows


def cut_short(card: Card, width: int, most: int) -> list[Section]:
    """Return a section with the facts that `essential_rows` cannot show in full in `most` rows. Return an empty list if
    all fit.

    If `most` is less than one row for each fact, the section has all facts.
    """
    from aileron.cards.card import Fact, Line, Section

    groups = _groups(card, width)
    facts = [*([Fact("alarms", card.alarms)] if card.alarms else []), *card.essentials]
    room = most - len(_head_rows(card, width, _LONGEST_NOTE, most))
    shares = _shares(groups, _least_of(card, room), room)
    is_none_whole = 0 in shares
    left = [
        fact for fact, group, share in zip(facts, groups, shares, strict=True) if is_none_whole or len(group) > share
    ]
    if len(list(further(card.sentence, width))) > _MOST_HEADLINE:
        left.insert(0, Fact("headline", (Line(card.sentence),)))
    return [Section("shortened above, in full", tuple(left))] if left else []


def body_rows(sections: Iterable[Section], width: int, *, is_whole: bool) -> tuple[list[Text], bool]:
    """Return the rows of all sections, in order, and whether any part was left out."""
    rows: list[Text] = []
    is_cut = False
    for section in sections:
        framed = _Frame(section, width) if section.is_said else None
        if framed is not None:
            rows.append(framed.top)
        else:
            rows += [Text(row, style="bold") for row in folded(section.title.upper(), width)]
        column = _column_of(section, width)
        for fact in section.facts:
            some = framed.rows(fact) if framed is not None else _fact_rows(fact, width, column)
            shown = list(some if is_whole else itertools.islice(some, MAX_ROWS))
            rows += shown
            if next(some, None) is not None:
                left = sum(len(line.text) for line in fact.lines) - sum(len(row.plain.strip()) for row in shown)
                rows.append(Text(f"  … about {max(left, 1):,} more characters: f shows all", style="bold"))
                is_cut = True
        rows += [framed.bottom, Text()] if framed is not None else [Text()]
    return rows, is_cut


def entry_row(
    entry: PendingEntry,
    width: int,
    *,
    is_marked: bool = False,
    group: Sequence[Row] = (),
    has_asker: bool = True,
) -> Text:
    """Draw a question of the list: a status sign, verdict, alarm and title (cards/row.py), who asks, and the time left.

    The alarm stands before the title, or in a narrow list on a separate line. A title that does not fit continues on a second
    line; in a wide list, which stands above a card and has few lines, only if an alarm stands before the title. `group`: the
    rows of the alike questions that this row stands for; `has_asker`: show who asks.
    """
    listed, is_narrow = entry.listed, width < _INLINE
    end = _end_of(entry, _ASKER if width >= _WHOLE_ASKER else _SHORT_ASKER, has_asker=has_asker)
    room = max(width - cells(end) - 4, 8)
    verdict = f"{listed.verdict:<{_VERDICT}} " if entry.is_open else ""
    marks = f"{listed.marks}  " if listed.marks and entry.is_open and not is_narrow else ""
    title = f"{len(group)} alike: {group_title(group, entry.action)}" if len(group) > 1 else listed.title
    begin = cut(f"{verdict}{marks}", room)
    indent = " " * max(len(verdict), 2) + FURTHER
    left = room - cells(begin)
    first, rest = _title_lines(title, left, width - len(indent)) if is_narrow or marks else (cut(title, left), "")
    alarm = _STYLES["alarm"]
    text = Text(no_wrap=True, overflow="ellipsis", style="" if entry.is_open else "dim")
    text.append(f"{_sign_of(entry, is_marked=is_marked)} ")
    text.append(begin[: len(verdict)], style=alarm if listed.weight == "heavy" else "")
    text.append(begin[len(verdict) :], style=alarm)
    text.append(f"{first}{' ' * max(room - cells(begin + first), 0)}  {end}")
    if rest:
        text.append(f"\n{indent}{rest}")
    if is_narrow and listed.marks and entry.is_open:
        text.append(f"\n    {cut(listed.marks, width - 4)}", style=alarm)
    return text


def _title_lines(title: str, room: int, rest: int) -> tuple[str, str]:
    """Fold a title into a line of `room` cells and a line of `rest` cells, between words if the title then still fits.

    The second line may be empty.
    """
    if room < _LEAST_TITLE:
        return "", cut(title, rest)
    first = next(_rows_of(title, room))
    space = title.rfind(" ", 0, len(first) + 1)
    if len(first) < len(title) and space > 0 and cells(title[space + 1 :]) <= rest:
        first = title[:space]
    return first, cut(title[len(first) :].removeprefix(" "), rest)


def _sign_of(entry: PendingEntry, *, is_marked: bool) -> str:
    left = seconds_left(entry.expires_at)
    is_soon = entry.is_open and left is not None and left < _SOON_S
    return "●" if is_marked else "!" if is_soon else _SIGNS.get(entry.status, "·")


def _end_of(entry: PendingEntry, column: int, *, has_asker: bool) -> str:
    """Return the right end of a question's row: who asks if `has_asker`, and the time left or the outcome."""
    left = seconds_left(entry.expires_at)
    when = duration(left) if entry.is_open and left is not None else "" if entry.is_open else entry.state
    when += " soon" if entry.is_open and left is not None and 0 <= left < _SOON_S else ""
    asker = cut(entry.asker, column) if has_asker else ""
    return f"{asker}{' ' * (column - cells(asker))} {when:>9}" if has_asker else f"{when:>6}"


def record_rows(record: Record, width: int) -> list[Text]:
    """Return the rows for the record of a run: how the run ended, every request that was sent, and the events in order."""
    rows = [Text(f"run {record.audit_id}: {record.status}", style="bold"), Text("REQUESTS SENT", style="bold")]
    rows += list(request_rows(record.requests, width)) or [Text("  none", style="dim")]
    if record.came_back is not None:
        rows += [Text(), Text("RESULT", style="bold")]
        rows += [Text(BAR + row) for line in record.came_back for row in folded(line, width - len(BAR))]
        if record.left_out:
            all_of_it = f"  … {record.left_out:,} more characters: aileron audit show {record.audit_id}"
            rows += [Text(row, style="bold") for row in folded(all_of_it, width)]
    rows += [Text(), Text("EVENTS", style="bold")]
    for at, kind, facts in record.events:
        rows += _hanging(f"{local_time(at)}  {kind}  ", facts, width)
    if record.is_cut:
        more = f"! there is more on record: aileron audit list --run {record.audit_id}"
        rows += [Text(row, style="bold red") for row in folded(more, width)]
    return rows


def difference_rows(lines: Iterable[str], width: int) -> Iterator[Text]:
    """Yield the rows for the lines of a difference between two calls, as the command line shows them.

    A vertical bar precedes each row of text that another party wrote.
    """
    from aileron.cards.card import Line, Tone

    for text in map(as_text, lines):
        tone = Tone.QUOTED if text.startswith(BAR) else Tone.PLAIN
        yield from _line_rows(Line(text.removeprefix(BAR), tone), width, "")


def request_rows(requests: Iterable[Left], width: int) -> Iterator[Text]:
    """Yield rows for each request: method, host, path, outcome, bytes up and down, milliseconds."""
    for request in requests:
        sizes = (
            ""
            if request.bytes_up is None
            else f"{request.bytes_up:,} B up  {request.bytes_down or 0:,} B down  {request.ms or 0:,} ms"
        )
        style = "bold red" if request.is_bad else ""
        for row in _hanging("  ", f"{request.method} {request.where}{request.path}  {request.ended}", width):
            row.stylize(style)
            yield row
        for more in (sizes, f"as {request.credential}" if request.credential else "", request.note or ""):
            for line in folded(more, width - 4) if more else []:
                yield Text(f"    {line}", style="dim")


def joined(rows: Iterable[Text]) -> Text:
    """Join rows to one text."""
    return Text("\n").join(rows)


def folded(text: str, width: int) -> list[str]:
    """Fold `text` into rows of at most `width` cells, at spaces if possible. Only the space at a fold is lost."""
    return list(_rows_of(text, max(width, 8)))


def further(text: str, width: int) -> Iterator[str]:
    """Fold text that another party may have written, as `folded` does, with a sign before each row except the first."""
    for number, row in enumerate(_rows_with_rest(text, width, width - len(FURTHER))):
        yield f"{FURTHER}{row}" if number else row


def cut(text: str, width: int) -> str:
    """Return the beginning of `text` in at most `width` cells, with `…` if anything is left out.

    The rest of `text` is not processed.
    """
    begin = text[: _most(width)]
    if len(begin) == len(text) and cells(begin) <= width:
        return text
    kept = begin[: _fitting(begin, width - 1)]
    return f"{kept if cells(kept) < width else ''}…" if width > 0 else ""


def shown(text: str, width: int) -> str:
    """Make text harmless and cut it to `width` cells.

    Only the visible part of the text is processed, however long the text is.
    """
    return cut(visible(text[: _most(width)]), width)


def cells(text: str) -> int:
    """Return the maximum number of cells that `text` may take: no fewer than rich counts, and no fewer than a terminal draws.

    The two differ about combining marks and about which characters are emoji. If the count is too high, text is only
    folded too early. If it were too low, the terminal would wrap the text, or draw it over the text beside it.
    """
    return len(text) if text.isascii() else max(cell_len(text), sum(map(cells_of, text)))


def duration(seconds: float) -> str:
    """Return a time span for a person, such as `4:41` or `2 h`; `over` for a span that has ended."""
    if seconds < 0:
        return "over"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def event_row(event: Mapping[str, JSON], width: int) -> Text:
    """Return an event of the record as one row. Enter shows the complete event."""
    hidden = ("seq", "at", "type", "hash", "run", "plan", "layers", "steps", "args", "head")
    facts = " ".join(
        f"{visible(name)}={cut(as_fact(value, _most(_MOST_FACT)), _MOST_FACT)}"
        for name, value in sorted(event.items(), key=lambda fact: _FACTS_FIRST.get(fact[0], len(_FACTS_FIRST)))
        if name not in hidden and not name.endswith("signature")
    )
    begin = cut(f"{local_time(event.get('at'))} {as_text(event.get('type')):<18} ", width)
    return Text(begin).append(cut(facts, width - cells(begin)), style="dim")


def grant_row(grant: GrantEntry, width: int) -> Text:
    """Return a grant as one row: which action runs without a question, and how many uses are left.

    `grant_facts` returns all facts.
    """
    return Text(shown(_grant_line(grant), width))


def grant_facts(grant: GrantEntry, width: int) -> Text:
    """Return all facts of a grant, for the question whether to end it."""
    from aileron.cards.subject import conditions

    facts = [
        ("grant", grant.id),
        ("action", grant.action),
        ("used", _used(grant)),
        *(("where", words) for words in conditions(grant.constraints) or ["any arguments"]),
    ]
    return _all_labelled(facts, width)


def session_row(session: Session, width: int) -> Text:
    """Return a session as one row: the agent and its folder. `session_facts` returns all facts."""
    return Text(shown(_session_line(session), width), style="" if session.status == "open" else "dim")


def session_facts(session: Session, width: int) -> Text:
    """Return all facts of a session, for the question whether to end it."""
    facts: list[tuple[str, str | int]] = [
        ("session", session.id),
        ("agent", session.agent),
        ("status", session.status),
        ("since", local_time(session.started_at)),
        ("runs", session.runs),
        ("folder", session.folder),
    ]
    return _all_labelled(facts, width)


def system_text(status: Status, approver: ApproverFacts, key: str, width: int) -> Text:
    """Return the facts of the system screen: the daemon, the vault, the approver, and the settings in force."""
    vault, waiting = status.vault, status.settings_waiting
    facts = {
        "daemon": f"{status.version}, process {status.pid}",
        "since": local_time(status.started_at),
        "home": status.home,
        "pages": f"{status.web}/approvals",
        "vault": "none: aileron vault init" if not vault.exists else "locked" if vault.locked else "open",
        "approver": approver.key_id or approver.status,
        "key here": key,
        "jail": ", ".join(status.jail.layers),
        "actions": status.actions,
        "connectors": status.connectors,
        "settings": f"! waiting for approval: {', '.join(waiting)}" if waiting else "approved",
        "more": "aileron doctor",
    }
    return _all_labelled(facts.items(), width)


def _all_labelled(facts: Iterable[tuple[str, str | int]], width: int) -> Text:
    return joined(row for name, value in facts for row in _labelled(name, as_text(value), width))


def _grant_line(grant: GrantEntry) -> str:
    from aileron.cards.subject import conditions

    words = " and ".join(conditions(grant.constraints))
    return f"{as_text(grant.action)}  {_used(grant)}  {words or 'any arguments'}"


def _used(grant: GrantEntry) -> str:
    left = seconds_left(grant.until)
    return f"{grant.used} of {grant.uses}, {'?' if left is None else duration(left)} left"


def _session_line(session: Session) -> str:
    """Return a session as one line: agent, status, start, number of runs, and folder.

    The folder is last, and quoted if it contains spaces, because its name could imitate other columns.
    """
    begin = f"{as_text(session.agent):<12} {as_text(session.status):<8} {local_time(session.started_at)}"
    return f"{begin}  {session.runs} runs  {as_fact(session.folder)}"


def _most(width: int) -> int:
    """Return the maximum number of characters of a text that are needed to fill `width` cells."""
    return (max(width, 0) + 1) * _PER_CELL


def _labelled(name: str, value: str, width: int) -> Iterator[Text]:
    for number, line in enumerate(further(value, width - _LABEL)):
        yield Text((name if number == 0 else "").ljust(_LABEL) + line)


def _groups(card: Card, width: int) -> list[list[Text]]:
    groups = [list(_fact_rows(fact, width)) for fact in card.essentials]
    alarms = list(itertools.chain.from_iterable(_alarms(card, width)))
    return [alarms, *groups] if alarms else groups


def _least_of(card: Card, room: int | None) -> list[int]:
    """Return the minimum number of rows for the alarms of a card, if it has any, and for each of its essential facts:
    one for a fact, and one for each alarm if there is room.

    The alarms get at least one row. `room` is the number of rows for the alarms and the facts together.
    """
    of_alarms = max(1, min(len(card.alarms), (room or 0) - len(card.essentials)))
    return [*([of_alarms] if card.alarms else []), *(1 for _ in card.essentials)]


def _alarms(card: Card, width: int) -> list[list[Text]]:
    return [list(_line_rows(alarm, width, "")) for alarm in card.alarms]


def _begun(alarms: list[list[Text]], most: int) -> list[Text]:
    """Return all rows of several alarms, ordered so that the first `most` rows begin as many alarms as possible."""
    places = sorted((row, number) for number, alarm in enumerate(alarms) for row in range(len(alarm)))
    shown = sorted((number, row) for row, number in places[: max(most, 0)])
    return [alarms[number][row] for number, row in (*shown, *((number, row) for row, number in places[most:]))]


@functools.lru_cache(_KNOWN)
def cells_of(character: str) -> int:
    """Return the maximum number of cells that a terminal may use for a character: 0 only for a mark on the preceding letter."""
    from unicodedata import category  # imported late: most text does not need it

    size = get_character_cell_size(character)
    if character == _WIDER:
        return 1
    if size == 0 and category(character) in ("Mn", "Me"):
        return 0
    return max(size, text_width(character))


def _shares(groups: list[list[Text]], least: list[int], most: int | None) -> list[int]:
    """Divide `most` rows among groups of rows, and return the number of rows of each. None for `most` means no limit.

    The longest groups are shortened first, each down to its number in `least`. The first group, the alarms, is shortened
    last, since an alarm about a contradiction cannot be understood from half of its text. If `most` is less than the sum of
    `least`, the last groups get no rows.
    """
    shares = [len(group) for group in groups]
    if most is None:
        return shares
    while sum(shares) > most and (giving := [at for at, share in enumerate(shares) if share > least[at]]):
        shares[max(giving, key=lambda at: (at > 0, shares[at]))] -= 1
    for at in reversed(range(len(shares))):
        shares[at] = max(0, shares[at] - max(0, sum(shares) - max(most, 0)))
    return shares


def _shortened(rows: list[Text], share: int, width: int) -> list[Text]:
    if share == 0:
        return []
    left = len(rows) - share
    note = f" … {left} more row{'s' if left > 1 else ''} below"
    last = rows[share - 1]
    last = last[: _fitting(last.plain, max(width - cells(note), 8))]
    return [*rows[: share - 1], last.append(note, style="bold")]


def _column_of(section: Section, width: int) -> int:
    """Return the width in cells of the column in which the names of a section's facts stand.

    It fits the longest name that leaves two thirds of `width` to the values; longer names get a row of their own.
    """
    fitting = [size for fact in section.facts if (size := cells(fact.name) + 1) <= width // 3]
    return max([_COLUMN, *fitting])


def _fact_rows(fact: Fact, width: int, column: int = _COLUMN) -> Iterator[Text]:
    """Yield the rows of a fact, with its name in a column of `column` cells. A longer name has a separate row."""
    name, indent = fact.name, " " * column
    if cells(name) >= column:
        yield from (Text(row, style="dim") for row in _rows_of(name, max(width, 8)))
        name = ""
    label = (name + " " * (column - cells(name)), "dim")
    if not fact.lines:
        yield Text.assemble(label, ("-", "dim"))
    for line in fact.lines:
        for row in _line_rows(line, width, indent):
            yield Text.assemble(label, row[column:]) if name else row  # the indent is as wide as the label, in spaces
            name = ""


def _line_rows(line: Line, width: int, indent: str) -> Iterator[Text]:
    """Yield the rows in which a terminal shows one line of a fact, each after `indent`.

    A sign stands before each further row and each row of a quotation, so that no text can imitate Aileron's own rows.
    """
    sign = BAR if line.tone == "quoted" else ""
    style, room = _STYLES[line.tone], max(width - len(indent) - len(FURTHER), 8)
    rows = _rows_with_rest(line.text, room if sign else room + len(FURTHER), room)
    for number, row in enumerate(rows):
        before = sign or (FURTHER if number else "")
        yield Text.assemble(indent, (before, "dim"), (row, style))


def _head_rows(card: Card, width: int, note: str, most: int | None) -> list[Text]:
    """Return the rows of a card's headline, of the source of its values, and of the verdict with the note.

    If they exceed `most` rows, the verdict comes first and the source is left out.
    """
    headline = [_headline_row(row, number) for number, row in enumerate(further(card.sentence, width))]
    source = [] if card.source is None else [Text(row, style="dim") for row in folded(card.source.text, width)]
    verdict = _verdict_rows(card, width, note)
    if most is None:
        return [*headline, *source, *verdict]
    if len(headline) > _MOST_HEADLINE:
        headline = _shortened(headline, _MOST_HEADLINE, width)
    rows = [*headline, *source[:1], *verdict]
    return rows if len(rows) <= most else [*verdict, *headline]


def _headline_row(row: str, number: int) -> Text:
    """Return the styled text of a headline's row. From the second row on, the sign before it is dim, as Aileron's own text."""
    sign = len(FURTHER) if number else 0
    return Text.assemble((row[:sign], "dim"), (row[sign:], "bold"))


def _verdict_rows(card: Card, width: int, note: str) -> list[Text]:
    """Return the rows of a card's verdict, with `note` on the same row if there is room."""
    rows = [Text(row, style=_STYLES[card.verdict.tone]) for row in further(card.verdict.text, width)]
    if note.startswith("!"):
        return [*rows, *(Text(row, style="bold") for row in further(note, width))]
    if note and cells(rows[-1].plain) + 3 + cells(note) <= width:
        rows[-1] = Text.assemble(rows[-1], (f"   {note}", "dim"))
    elif note:
        rows.append(Text(note, style="dim"))
    return rows


class _Frame:
    """A box drawn around a section of text that another party wrote."""

    def __init__(self, section: Section, width: int) -> None:
        self._inner: Final = max(width - 4, 16)
        title = cut(f" {section.title} ", self._inner)
        self.top: Final = Text(f"┌─{title}{'─' * (self._inner - cells(title) + 1)}┐", style="dim")
        self.bottom: Final = Text(f"└{'─' * (self._inner + 2)}┘", style="dim")

    def rows(self, fact: Fact) -> Iterator[Text]:
        """Yield the rows of a fact. The fact's name stands before its first line."""
        for number, line in enumerate(fact.lines):
            label = f"{fact.name}: " if number == 0 else ""
            for row in _rows_of(label + line.text, self._inner):
                filled = row + " " * max(self._inner - cells(row), 0)
                yield Text.assemble(("│ ", "dim"), filled, (" │", "dim"))


def _hanging(begin: str, text: str, width: int) -> list[Text]:
    rows = _rows_with_rest(begin + text, width, width - 4)
    return [Text(f"  {FURTHER}{row}" if number else row) for number, row in enumerate(rows)]


def _rows_with_rest(text: str, width: int, rest: int) -> Iterator[str]:
    """Yield the first row of the text in `width` cells, and each further row in `rest` cells, because a sign stands before
    further rows.
    """
    first = next(_rows_of(text, max(width, 8)))
    yield first
    at = len(first) + (text[len(first) : len(first) + 1] == " ")
    if at < len(text):
        yield from _rows_of(text, max(rest, 8), at)


def _rows_of(text: str, width: int, at: int = 0) -> Iterator[str]:
    """Yield the rows of the text from the character `at`, one by one, so that only the visible part of a long text is folded."""
    is_ascii = text.isascii()
    while True:
        end = min(at + width, len(text)) if is_ascii else _fitting(text, width, at)
        if end >= len(text):
            yield text[at:]
            return
        space = text.rfind(" ", at, end + 1)
        if space > (at + end) // 2:
            yield text[at:space]
            at = space + 1
        else:
            yield text[at:end]
            at = end


def _fitting(text: str, width: int, at: int = 0) -> int:
    """Return the end of the part of `text` that begins at `at` and has at most `width` cells.

    The part has at least one character.
    """
    taken = 0
    for index in range(at, len(text)):
        taken += cells_of(text[index])
        if taken > width:
            index -= text[index] == _WIDER  # the selector stays with its character
            return max(index, at + 1)
    return len(text)
