"""Rows of a terminal for stories and the last hour: rich `Text`, laid out for a width in cells.

Pure. The bars of the chart are block characters that every terminal's font has (U+2581 to U+2588), so they are visible
without colours too. Beside each row of bars stands its total.

    claude    runs  14 ······▁▃··█▂ waits   1 ·········▁·· denied   0 ············

Not here: what happened (story.py), the position of rows on the screen (activity.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from aileron.model.timestamp import local_time
from aileron.tui import rendering
from aileron.tui.story import CONSENTS, AgentHour, Hour, Story, Told, counted

__all__ = ["MOST_AGENTS", "hour_rows", "spark", "story_text", "told_row"]

MOST_AGENTS: Final = 4
"""Maximum number of agents in the chart of the last hour. Further agents are only counted, to leave room for the stories."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_NOTHING: Final = "·"
_AGENT: Final = 9
_COUNT: Final = 4
_WIDE: Final = 80
"""Terminal columns from which bars are drawn; a narrower terminal gets numbers only."""
_SIGNS: Final = {
    "pending_approval": "!",
    "approved": "✓",
    "completed": "✓",
    "running": "▶",
    "denied": "✗",
    "refused": "✗",
    "failed": "✗",
    "expired": "⌛",
    "cancelled": "–",
}
"""Signs by status; `!` needs attention, as on a card."""


def hour_rows(hour: Hour, width: int) -> list[Text]:
    """Return the chart of the last hour: a title, and a row for each of the busiest agents, at most MOST_AGENTS."""
    rows = [Text(rendering.cut(_title(hour), width), style="bold")]
    shown = sorted(hour.agents, key=lambda agent: -sum((*agent.runs, *agent.waits, *agent.denials)))[:MOST_AGENTS]
    most = [max([1, *(max(getattr(agent, name)) for agent in shown)]) for name in ("runs", "waits", "denials")]
    for agent in hour.agents:
        if agent in shown:
            rows.append(Text(rendering.cut(_agent_row(agent, most, width), width)))
    if len(hour.agents) > len(shown):
        rows.append(Text(f"  … {len(hour.agents) - len(shown)} more agents"))
    return rows


def spark(values: Sequence[int], most: int) -> str:
    """Return one character for each value: a bar as high as the value's share of `most`, or a dot for 0. `most` is at least 1.

    >>> spark((0, 1, 4, 8), 8)
    '·▁▄█'
    """
    return "".join(_NOTHING if value <= 0 else _BARS[-(-value * len(_BARS) // most) - 1] for value in values)


def told_row(told: Told, width: int) -> Text:
    """Return the title of a session's stories: the agent, its folder, and the number of runs listed below."""
    count = len(told.stories)
    end = f" · {counted(count, 'consent' if told.session == CONSENTS else 'run')}"
    return Text(rendering.cut(told.who, width - len(end)) + end, style="bold")


def story_text(story: Story, width: int) -> Text:
    """Return a story as text: what the run would do and when it began, and below that its steps in one row.

    An ending that does not fit has a separate row.
    """
    return rendering.joined(_story_rows(story, width))


def _story_rows(story: Story, width: int) -> Iterator[Text]:
    end = f"  {local_time(story.at)}"
    room = width - len(end) - 2
    title = rendering.cut(story.title, room)
    gap = " " * max(room - rendering.cells(title), 0)
    yield Text(f"{_SIGNS.get(story.status, '?')} {title}{gap}{end}", no_wrap=True, overflow="ellipsis")
    whole = " · ".join(story.steps)
    is_one_row = rendering.cells(whole) <= width - 4
    for row in [whole] if is_one_row else [" · ".join(story.steps[:-1]), story.steps[-1]]:
        if row:
            yield Text(f"    {rendering.cut(row, width - 4)}", no_wrap=True, overflow="ellipsis")


def _title(hour: Hour) -> str:
    return f"{_span(hour).upper()}: each column is 5 minutes, the last one is now"


def _span(hour: Hour) -> str:
    return "last hour" if hour.is_whole else f"since {local_time(hour.since)}"


def _agent_row(agent_hour: AgentHour, most: Sequence[int], width: int) -> str:
    agent = rendering.cut(agent_hour.agent, _AGENT)
    parts = [agent + " " * (_AGENT - rendering.cells(agent))]
    for name, values, top in zip(
        ("runs", "waits", "denied"), (agent_hour.runs, agent_hour.waits, agent_hour.denials), most, strict=True
    ):
        bars = f" {spark(values, top)}" if width >= _WIDE - 2 else ""
        parts.append(f"{name}{sum(values):>{_COUNT}}{bars}")
    return " ".join(parts)
