"""The card for several requests of one action that differ only a little: a table of the differences, and everything
else once.

Pure. Approving requests together approves exactly these, each with its own decision and signature, and permits no
further request. A request with any reason for closer inspection is not included.

Rules
- The card has everything that must be read before an approval: complete arguments, the preview, and values set by the file.
- Requests are alike if only values of arguments differ: file, connectors, hosts, accounts and operations are the same.
- A request with an alarm, an edit, or a conversation is decided separately.

Source: docs/reference/console.md (Approving several), docs/adr/0047-fewer-keys.md. Not here: the card of a single request
(card.py), what is sent (decision_flow.py), the list and its marks (tui/queue.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aileron.cards.alarms import spelled
from aileron.cards.card import Card, Fact, Line, Section, Tone, argument_fact, found_facts, text_lines, value_lines
from aileron.cards.headline import Origin, Span, quoted
from aileron.cards.letters import with_codes
from aileron.cards.plan import LabelledArgument, given_of, settled_of
from aileron.cards.weight import verdict_of
from aileron.model.manifest import Effect
from aileron.model.visible import visible, without_gaps

if TYPE_CHECKING:
    from aileron.cards.decision_flow import Review
    from aileron.model.plan import Plan

__all__ = [
    "MOST_ALIKE",
    "MOST_DIFFERENT",
    "MOST_TEXT",
    "MOST_TOGETHER",
    "Alike",
    "Apart",
    "Likeness",
    "alike_among",
    "card_of_several",
    "likeness_of",
    "why_apart",
]

MOST_TOGETHER: Final = 10
"""Maximum number of requests on one card: a screen or two, which a person still reads."""
MOST_DIFFERENT: Final = 4
"""Maximum number of arguments that can differ; nobody reads a table with more, so such requests do not count as alike."""
MOST_ALIKE: Final = 2
"""Maximum number of arguments that can differ within a list's group, such as a recipient and a name.

With more differences, one row would say too little about the group.
"""
MOST_TEXT: Final = 32_768
"""Maximum size of one request's arguments as JSON, in characters; longer ones are not readable together with others."""
_LEAST: Final = 2


class Apart(msgspec.Struct, frozen=True):
    """Result instead of a card: the requests cannot be approved together. `why` is the reason, for a person."""

    why: str


def card_of_several(reviews: Sequence[Review], when: Callable[[str | None], str]) -> Card | Apart:
    """Return the card for several requests that are alike, in the given order; or `Apart` if they must be decided one by one."""
    if (why := why_apart(reviews, when)) is not None:
        return Apart(why)
    return _laid_out(reviews, [review.card(when) for review in reviews], _plans(reviews))


def why_apart(reviews: Sequence[Review], when: Callable[[str | None], str]) -> str | None:
    """Return why the requests in `reviews` cannot be approved together; None if they can."""
    if (why := _why_unlike(reviews, _plans(reviews))) is not None:
        return why
    for number, review in enumerate(reviews, start=1):
        card = review.card(when)
        if (why := _why_by_itself(review, card)) is not None:
            return f"decide {number} of {len(reviews)} by itself ({visible(card.sentence)}): {why}"
    return None


class Likeness(NamedTuple):
    """Digests that show whether plans are alike: one of everything except the arguments, and one of each argument by name."""

    shape: bytes
    arguments: Mapping[str, bytes]


class Alike(NamedTuple):
    """A group of requests that are alike, which a list shows as one. `names` are their ids; `differs` are the arguments
    in which they differ.
    """

    names: list[str]
    differs: list[str]


def likeness_of(plan: Plan) -> Likeness | None:
    """Return the digests that show whether other plans are like this one; None if its arguments are too long, or if it pays.

    A payment is never grouped, because a sum must not be hidden in another request's row.
    """
    if len(_json(plan.args)) > MOST_TEXT or verdict_of(plan).word == Effect.PAY:
        return None
    return Likeness(
        hashlib.sha256(msgspec.json.encode(_shape(plan))).digest(),
        {name: hashlib.sha256(_json(value).encode()).digest() for name, value in plan.args.items()},
    )


def alike_among(likenesses: Mapping[str, Likeness]) -> list[Alike]:
    """Return the groups of requests, in order, that a list shows and selects together. `likenesses` has the digests of
    each request's plan.

    The requests of a group could be approved together, and differ in at most MOST_ALIKE arguments. The caller leaves out requests
    with an alarm or a conversation.
    """
    by_shape: dict[bytes, list[Alike]] = {}
    for name, likeness in likenesses.items():
        groups = by_shape.setdefault(likeness.shape, [])
        for group in groups:
            differs = _names_that_differ(
                [*(likenesses[member].arguments for member in group.names), likeness.arguments]
            )
            if len(group.names) < MOST_TOGETHER and len(differs) <= MOST_ALIKE:
                group.names.append(name)
                group.differs[:] = differs
                break
        else:
            groups.append(Alike([name], []))
    return [group for groups in by_shape.values() for group in groups if len(group.names) >= _LEAST]


def _plans(reviews: Sequence[Review]) -> list[Plan]:
    """Return the plans of those reviews that are about runs."""
    return [review.plan for review in reviews if review.plan is not None]


def _why_unlike(reviews: Sequence[Review], plans: Sequence[Plan]) -> str | None:
    if not _LEAST <= len(reviews) <= MOST_TOGETHER:
        return f"select {_LEAST} to {MOST_TOGETHER} requests to approve them together"
    if len(plans) < len(reviews):
        return "only runs are approved together: decide lasting permissions one by one"
    if any(len(_json(plan.args)) > MOST_TEXT for plan in plans):
        return f"only requests with at most {MOST_TEXT:,} characters of arguments are approved together: decide each by itself"
    if any(_shape(plan) != _shape(plans[0]) for plan in plans[1:]):
        return "these are not alike: only requests of one action, with the same file, hosts and account, are approved together"
    if len(_different(plans)) > MOST_DIFFERENT:
        return f"these differ in more than {MOST_DIFFERENT} arguments: decide them one by one"
    return None


def _why_by_itself(review: Review, card: Card) -> str | None:
    if review.closed is not None:
        return review.closed
    if review.is_unread:
        return "its current state is not loaded"
    if review.why_no_yes is not None:
        return visible(review.why_no_yes)
    if card.alarms:
        return visible(card.alarms[0].text)
    if review.edited or review.edits:
        return "you edited it"
    return "you asked the agent about it" if review.question.conversation else None


def _laid_out(reviews: Sequence[Review], cards: Sequence[Card], plans: Sequence[Plan]) -> Card:
    first, names = cards[0], _different(plans)
    return Card(
        headline=(
            Span(f"{len(reviews)} requests of the action "),
            Span(quoted(plans[0].action), Origin.SAID, "action"),
        ),
        source=None,
        verdict=first.verdict,
        weight=first.weight,
        word=first.word,
        called=f"{len(reviews)} × {first.called}",
        alarms=(),
        essentials=_essentials(cards),
        sections=tuple(_sections(reviews, cards, plans, names)),
        proof=(Section("what you sign", tuple(_numbered([review.digest for review in reviews]))),),
    )


def _essentials(cards: Sequence[Card]) -> tuple[Fact, ...]:
    """Return the essential facts (those that stay visible on a card) that are the same on all cards. Essential facts
    that differ are shown with each request.
    """
    return tuple(fact for fact in cards[0].essentials if all(fact in card.essentials for card in cards))


def _sections(
    reviews: Sequence[Review], cards: Sequence[Card], plans: Sequence[Plan], names: Sequence[str]
) -> Iterator[Section]:
    shared = _essentials(cards)
    told = (Fact(str(number), _told(card, shared)) for number, card in enumerate(cards, start=1))
    yield Section("each of them", tuple(told))
    given = [{argument.name: argument for argument in given_of(plan)} for plan in plans]
    yield Section("what differs", tuple(_table(given, name) for name in names))
    same = [argument for name, argument in given[0].items() if name not in names]
    if same:
        yield Section("the same in all", tuple(argument_fact(argument) for argument in same))
    for number, review in enumerate(reviews, start=1):
        if review.preview is not None and review.preview.fields is not None:
            yield Section(f"current state of {number}", tuple(found_facts(review.preview.fields)))
    for number, plan in enumerate(plans, start=1):
        if settled := settled_of(plan):
            yield Section(
                f"set by the action file in {number}",
                tuple(Fact(visible(name), value_lines(value)) for name, value in settled),
            )


def _told(card: Card, shared: Sequence[Fact]) -> tuple[Line, ...]:
    """Return the lines that tell one request, with its `card`, from the others.

    They are its sentence, the sources of its values, and the essential facts that are not the same in all requests.
    """
    source = () if card.source is None else (card.source,)
    return (Line(card.sentence), *source, *(line for fact in card.essentials for line in _of_its_own(fact, shared)))


def _of_its_own(fact: Fact, shared: Sequence[Fact]) -> Iterator[Line]:
    """Yield the lines of a fact, unless it is in `shared`, the facts of all requests. `touches` and `compared` are
    shown without their names.
    """
    if fact in shared:
        return
    first, *more = fact.lines
    yield (
        first
        if fact.name in ("touches", "compared")
        else msgspec.structs.replace(first, text=f"{fact.name} {first.text}")
    )
    yield from more


def _table(given: Sequence[dict[str, LabelledArgument]], name: str) -> Fact:
    """Return a fact about the argument `name`, with a line for its value in each request."""
    label = next(
        argument.label or argument.name for arguments in given if (argument := arguments.get(name)) is not None
    )
    lines = [
        line
        for number, arguments in enumerate(given, start=1)
        for line in _cell(number, arguments[name].value if name in arguments else None, name)
    ]
    return Fact(visible(label), tuple(lines))


def _cell(number: int, value: object, name: str) -> tuple[Line, ...]:
    if value is None:
        return (Line(f"{number}  (left out)", Tone.SOFT),)
    if isinstance(value, str) and "\n" in value:
        return (Line(f"{number}"), *text_lines(value))
    shown = value_lines(value, name)[0]
    text = shown.text if shown.tone is Tone.PLAIN else without_gaps(visible(with_codes(spelled(value))))
    return (Line(f"{number}  {text}"),)


def _numbered(texts: Sequence[str]) -> Iterator[Fact]:
    for number, text in enumerate(texts, start=1):
        yield Fact(f"digest {number}", (Line(visible(text)),))


def _different(plans: Sequence[Plan]) -> list[str]:
    """Return the names of the arguments that are not the same in all plans."""
    return _names_that_differ([{name: _json(value) for name, value in plan.args.items()} for plan in plans])


def _names_that_differ(requests: Sequence[Mapping[str, str | bytes]]) -> list[str]:
    names = dict.fromkeys(name for arguments in requests for name in arguments)
    return [name for name in names if len({arguments.get(name) for arguments in requests}) > 1]


def _shape(plan: Plan) -> Plan:
    """Return a plan without the values of its arguments. Plans that are alike must agree in all that is left."""
    steps = tuple(msgspec.structs.replace(step, args={}) for step in plan.steps)
    preview = plan.preview and msgspec.structs.replace(
        plan.preview, step=msgspec.structs.replace(plan.preview.step, args={})
    )
    return msgspec.structs.replace(plan, args={}, steps=steps, preview=preview)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)  # in JSON 1 does not equal true
