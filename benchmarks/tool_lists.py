"""Count how much of a model's context lists of tools take: `tools/list` with 10, 100 and 1,000 actions, all listed, and found
by words. `python -m benchmarks.tool_lists` prints the table of docs/reference/mcp.md.

The sizes are counted, not measured: they are the same on every machine, so there are no samples, and a test compares the page
with this. The actions are those of tests/mcp/data. A token counts as four bytes; Claude's published tokenizer (anthropic 0.38)
has 4.2 bytes of this text in one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from aileron.actions.manifest import input_schema, parse_action
from aileron.config import Settings
from aileron.mcp import tools
from aileron.mcp.agent_port import Offer, Offered
from tests.support.many_actions import many_actions

__all__ = ["COUNTS", "many", "table"]

COUNTS: Final = (10, 100, 1000)
_BYTES_PER_TOKEN: Final = 4


def main() -> None:
    """Print the table."""
    print("| actions | all listed | with `find_action` |\n|---|---|---|")
    for row in table():
        print(f"| {' | '.join(row)} |")


def table() -> list[list[str]]:
    """Return the rows as the page has them."""
    return [_row(count) for count in COUNTS]


def many(count: int) -> tuple[Offered, ...]:
    """Return `count` actions as the daemon offers them."""
    actions = [parse_action(text, file=f"{name}.md") for name, text in many_actions(count).items()]
    return tuple(Offered(action=action, input_schema=input_schema(action)) for action in actions)


def _row(count: int) -> list[str]:
    actions = many(count)
    few = _told(Offer(actions=actions, listed=frozenset())) if count > Settings().mcp.find_above else "not used"
    return [f"{count:,}", _told(Offer(actions=actions)), few]


def _told(offer: Offer) -> str:
    """Return the size of the list in kilobytes, and in tokens to two digits, or to three from 100,000 on."""
    size = _bytes_of(offer)
    tokens = size / _BYTES_PER_TOKEN
    unit = 10 ** (len(str(int(tokens))) - (2 if tokens < 100_000 else 3))
    return f"{size / 1000:.0f} KB, {round(tokens / unit) * unit:,} tokens"


def _bytes_of(offer: Offer) -> int:
    """Return the bytes of all tools on all pages of the list, as JSON with a comma after each."""
    page, cursor = tools.page_of(offer, None)
    listed = list(page)
    while cursor is not None:
        page, cursor = tools.page_of(offer, cursor)
        listed += page
    return sum(len(msgspec.json.encode(tool)) + 1 for tool in listed)


if __name__ == "__main__":
    main()
