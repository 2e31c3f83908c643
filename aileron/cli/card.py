"""The card of a question, for a terminal and for a pipe: the same content in the same order as in the console and the page.

Runs in commands. Other parties wrote all of it: agents, authors of actions and connectors, services, and whatever answered for
the daemon. cards/card.py has made it harmless.

Rules
- Text that is too long is cut, with a line that says how much is missing and which command shows it. If `more` is None,
  everything is shown, including the proof.
- A pipe gets the name and values of each fact, separated by tabs.

Source: docs/reference/cli.md. Not here: what is said (cards/), asking and signing (decision_dialogue.py, signing.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final

from aileron.cards.card import Card, Fact, Line, Section, Tone
from aileron.cards.decision_flow import Review
from aileron.cards.plan import missing_lines
from aileron.cards.question import edit_lines
from aileron.cards.subject import subject_facts
from aileron.cli import output
from aileron.cli.plan import COLUMN
from aileron.model.consent import Subject
from aileron.model.visible import BAR, FURTHER, visible

__all__ = ["names_in_proof", "show_card", "show_card_of_several", "show_subject"]

_MAX_LINES: Final = 12
"""Maximum number of lines that are shown of a fact (a labeled value): half of a small terminal."""
_MAX_CHARACTERS: Final = 600
"""Maximum number of characters of a line: eight rows of a terminal. An address, a title or a paragraph has fewer."""
_MAX_FACTS: Final = 40
"""Maximum number of facts of a section: two screens. Actions declare a handful of arguments."""
_MAX_SAID: Final = 12
"""Maximum number of facts that are shown of a conversation with the agent. The newest are shown: six turns."""
_AT: Final = {stream: functools.partial(output.local_time, stream=stream) for stream in ("stdout", "stderr")}
"""Time formatters by output stream, because a pipe and a terminal use different forms."""
_STYLES: Final = {Tone.ALARM: "red", Tone.CHANGED: "bold", Tone.MARKED: "bold", Tone.SOFT: "dim"}


def show_card(review: Review, stream: str = "stderr", *, more: str | None = None) -> None:
    """Show a question's card. Text that is too long for a terminal is cut, and `more` is the command that shows the
    whole question; with None, nothing is cut.

    The state of the question is not shown: the caller knows that it waits.
    """
    card = review.card(_AT[stream])
    _print_body(card, review.question.expires_at, stream, more)
    if (edits := edit_lines(review.edits, more)) is not None:
        _print_section(Section("your edits", (Fact("edits", tuple(map(Line, edits))),)), stream, more)
    if more is None:
        _print_proof(card, stream)
    elif card.proof:
        output.write("", stream)
        output.write(output.styled(f"▸ proof: {visible(more)}", "dim", stream), stream)


def names_in_proof(review: Review) -> set[str]:
    """Return the names of the facts in the proof, which `show_card` prints only if `more` is None."""
    return {fact.name for section in review.card(_AT["stdout"]).proof for fact in section.facts}


def show_card_of_several(card: Card, expires_at: str, stream: str = "stderr") -> None:
    """Show all approvals that are decided together in full, because a cut could hide one of them.

    `expires_at` is the earliest expiry.
    """
    _print_body(card, expires_at, stream, None)
    _print_proof(card, stream)


def show_subject(subject: Subject, stream: str = "stderr", *, more: str | None = None) -> None:
    """Print the facts about a change that needs consent, before a question about it exists. `more` is as for `show_card`."""
    output.print_facts(subject_facts(subject, more, _AT[stream]), stream, column=COLUMN)


def _print_body(card: Card, expires_at: str, stream: str, more: str | None) -> None:
    _print_head(card, stream)
    facts = [*card.essentials, Fact("expires", (Line(output.time_left(expires_at, stream)),))]
    _print_facts(facts, stream, more)
    for section in card.sections:
        _print_section(section, stream, more)


def _print_proof(card: Card, stream: str) -> None:
    for section in card.proof:
        _print_section(section, stream, None)


def _print_head(card: Card, stream: str) -> None:
    """Print the top of a card: the headline, the source of its values, the verdict and the alarms."""
    named = [("headline", Line(card.sentence)), ("values", card.source), ("verdict", card.verdict)]
    lines = [(name, line) for name, line in named if line is not None] + [("alarm", alarm) for alarm in card.alarms]
    for name, line in lines:
        if not output.is_terminal(stream):
            output.write(f"{name}\t{line.text}", stream)
            continue
        style = "bold" if name == "headline" else _STYLES.get(line.tone)
        for number, row in enumerate(output.folded(line.text, len(FURTHER))):
            shown = output.styled(row, style, stream) if style else row
            output.write(f"{FURTHER}{shown}" if number else shown, stream)


def _print_section(section: Section, stream: str, more: str | None) -> None:
    if not section.facts:
        return
    output.write("", stream)
    if output.is_terminal(stream):
        output.write(output.styled(section.title, "bold", stream), stream)
    if section.is_said:
        _print_box(section, stream, more)
    else:
        _print_facts(section.facts, stream, more)


def _print_facts(facts: Sequence[Fact], stream: str, more: str | None) -> None:
    shown = facts if more is None else facts[:_MAX_FACTS]
    rows: list[tuple[str, list[str]]] = [(fact.name, list(_lines(fact, more))) for fact in shown]
    if more is not None and len(shown) < len(facts):
        rows.append(("", missing_lines(len(facts) - len(shown), "facts", more)))
    output.print_facts(rows, stream, column=COLUMN)


def _lines(fact: Fact, more: str | None) -> Iterator[str]:
    """Yield the lines of a fact (a labeled value).

    A vertical bar stands before text of another party, and a line that is cut says how much is missing.
    """
    for line in fact.lines if more is None else fact.lines[:_MAX_LINES]:
        text = f"{BAR}{line.text}" if line.tone is Tone.QUOTED else line.text
        missing = 0 if more is None else len(text) - _MAX_CHARACTERS
        yield text if missing <= 0 else f"{text[:_MAX_CHARACTERS]}…"
        if more is not None and missing > 0:
            yield from missing_lines(missing, "characters", more)
    left = sum(len(line.text) for line in fact.lines[_MAX_LINES:])
    if more is not None and len(fact.lines) > _MAX_LINES:
        yield from missing_lines(left, "characters", more)


def _print_box(section: Section, stream: str, more: str | None) -> None:
    """Print text of another party with a vertical bar before each row, so that no row looks like Aileron's own text."""
    left = 0 if more is None else max(len(section.facts) - _MAX_SAID, 0)
    if more is not None and left:
        output.write("\n".join(missing_lines(left // 2, "questions, earlier", visible(more))), stream)
    for fact in section.facts[left:]:
        output.write(output.styled(fact.name, "dim", stream), stream)
        for text in _lines(fact, more):
            for row in output.folded(text.removeprefix(BAR), len(output.GUTTER)):
                output.write(output.GUTTER + row, stream)
