"""Stories: what happened, run by run, by the session that asked; and the last hour of each agent.

Pure. Stories are made of events of the record (docs/reference/audit-events.md), in any order and however often they come. The
text in an event is somebody else's, so it is made harmless here, shortened, and put in quotes if it is a sentence.

    Send mail: to “mira@example.com”      asked · shown · approved · 3 requests · ✓ done: id “m-1”

Rules
- A step is told only if an event says so. That a card was shown is told only of a question that was decided.
- A run whose beginning is not among the events is told from its end on. A run with neither is left out.
- No text of an event can look like a step or an ending: it is in quotes that it cannot close.

Not here: where the events come from (news.py), how a story looks (rendering.py), every event as it came (activity.py).

>>> told = History()
>>> told.take([{"seq": 1, "at": "2026-11-21T04:00:00Z", "type": "run.requested", "run": "run-1", "action": "send-mail"},
...            {"seq": 2, "at": "2026-11-21T04:00:01Z", "type": "run.finished", "run": "run-1", "status": "completed"}])
>>> [(story.title, story.steps) for story in told.stories({})]
[('send-mail', ('asked', '✓ done'))]
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aileron.model.timestamp import local_time
from aileron.model.visible import as_text, visible, without_gaps
from aileron.review.question import KINDS, state_words

if TYPE_CHECKING:
    from aileron.api.sessions import Session

__all__ = [
    "BINS",
    "BIN_S",
    "CONSENTS",
    "AgentHour",
    "History",
    "Hour",
    "Story",
    "Told",
    "counted",
    "result_words",
    "told_by_session",
]

MOST_KEPT: Final = 4000
"""Events that are kept: an hour of four hundred runs with three requests each."""
MOST_STORIES: Final = 100
"""Stories that are shown, the newest; each is two rows of a list."""
BINS: Final = 12
BIN_S: Final = 300
"""Seconds of a bin: twelve times five minutes are the last hour."""
LOCAL: Final = "local"
"""Name of the session for requests without one (audit-events.md)."""
CONSENTS: Final = "consents"
"""Name in place of a session, for consents that no run waits for: the record does not say who asked."""
_MOST_TEXT: Final = 120
"""Characters of a reason or a message; the record of the run has all of it."""
_MOST_RESULT: Final = 3
"""Fields of a result that a story shows."""
_KEPT: Final = (
    *("seq", "at", "type", "run", "approval", "session", "action", "agent", "folder", "kind", "name"),
    *("status", "message", "decision", "reason", "surface", "until", "use", "of"),
)
"""Facts of an event that stories use."""


@dataclasses.dataclass(frozen=True)
class Story:
    """A run, or a consent. Every text is harmless.

    `id` is that of the run, or of the question if there is no run; `at` is when it began (RFC 3339), `status` one of
    RunStatus or `refused`. The last of `steps` is how it ended, or where it is.
    """

    id: str
    run: str | None
    session: str
    at: str
    title: str
    status: str
    steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Told:
    """The stories of one session, the newest first. `who`: the agent and its folder."""

    session: str
    who: str
    stories: tuple[Story, ...]


@dataclasses.dataclass(frozen=True)
class AgentHour:
    """Numbers of an agent's events in each BIN_S of the hour: BINS numbers each, the newest last."""

    agent: str
    runs: tuple[int, ...]
    waits: tuple[int, ...]
    denials: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Hour:
    """The last hour, by agent in alphabetical order. `since`: RFC 3339. `is_whole`: no event of it is missing."""

    since: str
    is_whole: bool
    agents: tuple[AgentHour, ...]


class History:
    """The newest events that were seen, of which stories and the hour are made."""

    def __init__(self) -> None:
        self._by_seq: dict[int, dict[str, Any]] = {}
        self._results: dict[str, str] = {}

    @property
    def oldest_seq(self) -> int | None:
        """Number of the oldest event that is kept; None if there is none."""
        return min(self._by_seq, default=None)

    @property
    def oldest_at(self) -> str | None:
        """Time of the oldest event (RFC 3339)."""
        return None if not self._by_seq else as_text(self._by_seq[min(self._by_seq)].get("at"))

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add these events. One that is kept already counts once, and the oldest are dropped if there are too many."""
        for event in events:
            if isinstance(event.get("seq"), int) and event["seq"] not in self._by_seq:
                self._by_seq[event["seq"]] = _slim(event)
        for seq in sorted(self._by_seq)[: max(0, len(self._by_seq) - MOST_KEPT)]:
            del self._by_seq[seq]

    def came_back(self, run: str, words: str) -> None:
        """Set the result of a completed run, in a line (`result_words`); empty if it is not known."""
        self._results[run] = words

    def without_result(self, most: int) -> list[str]:
        """Return the newest `most` completed runs whose result is not known."""
        done = [story.run for story in self.stories({}) if story.status == "completed" and story.run is not None]
        return [run for run in done if run not in self._results][:most]

    def stories(self, titles: Mapping[str, str]) -> list[Story]:
        """Return the newest stories, the last one to begin first. `titles`: the queue's titles of runs and questions, by id."""
        told = []
        for key, events in self._by_run().items():
            story = _story(key, events, titles, self._results)
            if story is not None:
                told.append(story)
        return told[::-1][:MOST_STORIES]

    def hour(self, sessions: Mapping[str, Session], now: datetime.datetime) -> Hour:
        """Count runs, waits and denials of each agent in the last hour."""
        begin = (int(now.timestamp()) // BIN_S - BINS + 1) * BIN_S
        names = self._agents(sessions)
        of_run = {event["run"]: event.get("session") for event in self._of("run.requested") if "run" in event}
        counts: dict[str, tuple[list[int], list[int], list[int]]] = {}
        for event in self._in_order():
            place, at = _counted(event), _moment(event)
            if "run" not in event:  # a consent belongs to no agent
                continue
            if place is None or at is None or not begin <= at.timestamp() < begin + BINS * BIN_S:
                continue
            session = event.get("session") or of_run.get(event.get("run")) or LOCAL
            agent = names.get(str(session), str(session))
            rows = counts.setdefault(agent, ([0] * BINS, [0] * BINS, [0] * BINS))
            rows[place][(int(at.timestamp()) - begin) // BIN_S] += 1
        since = datetime.datetime.fromtimestamp(begin, datetime.UTC)
        oldest = _moment(self._by_seq[min(self._by_seq)]) if self._by_seq else None
        is_whole = oldest is None or oldest <= since or self.oldest_seq == 1
        agents = tuple(AgentHour(name, *map(tuple, counts[name])) for name in sorted(counts))
        return Hour((since if is_whole or oldest is None else oldest).isoformat(), is_whole, agents)

    def _agents(self, sessions: Mapping[str, Session]) -> dict[str, str]:
        """Return the name of each session's agent, as far as it is known."""
        begun = {
            str(event.get("session")): as_text(event["agent"])
            for event in self._of("session.started")
            if "agent" in event
        }
        return {**begun, **{name: visible(one.agent) for name, one in sessions.items()}, LOCAL: "local command"}

    def _in_order(self) -> list[dict[str, Any]]:
        return [self._by_seq[seq] for seq in sorted(self._by_seq)]

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self._in_order() if event.get("type") == kind]

    def _by_run(self) -> dict[str, list[dict[str, Any]]]:
        """Return the events by run, or by question if no run waits for it, in the order in which they began.

        From `approval.requested` on, a question is known by its run: that of `approval.previewed` is another's, the preview's
        own.
        """
        of_approval = {event.get("approval"): event.get("run") for event in self._of("approval.requested")}
        found: dict[str, list[dict[str, Any]]] = {}
        for event in self._in_order():
            approval = event.get("approval")
            run = of_approval.get(approval, event.get("run")) if approval is not None else event.get("run")
            key = run or approval
            if key is not None:
                found.setdefault(str(key), []).append(event)
        return found


def told_by_session(stories: Iterable[Story], sessions: Mapping[str, Session]) -> list[Told]:
    """Return the stories by session: the session that asked last first."""
    by_session: dict[str, list[Story]] = {}
    for story in stories:
        by_session.setdefault(story.session, []).append(story)
    return [Told(name, _who(name, sessions.get(name)), tuple(some)) for name, some in by_session.items()]


def result_words(result: Any) -> str:
    """Return a result in a line: the first fields of an object, the length of a list, the beginning of a text."""
    from aileron.review.headline import quoted

    if isinstance(result, dict):
        fields = [(name, value) for name, value in result.items() if value is not None][:_MOST_RESULT]
        return ", ".join(f"{visible(name)} {_field_words(value)}" for name, value in fields)
    if isinstance(result, list):
        return counted(len(result), "item")
    return "" if result is None or result == "" else quoted(result, _MOST_TEXT)


def _field_words(value: Any) -> str:
    from aileron.review.headline import quoted

    match value:
        case dict():
            return "{…}" if value else "{}"
        case list():
            return counted(len(value), "item")
        case _:
            return quoted(value, _MOST_TEXT // _MOST_RESULT)


def counted(count: int, name: str) -> str:
    """Return a count in words: `1 run`, `3,000 runs`."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def _slim(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an event that is used; of the arguments only the sentence that is made of them."""
    kept: dict[str, Any] = {}
    for name in _KEPT:
        value = event.get(name)
        if value is not None:  # another program in the daemon's place may put anything there
            kept[name] = value if isinstance(value, int) else as_text(value)[: 4 * _MOST_TEXT]
    if event.get("type") == "run.requested":
        kept["title"] = _title(event)
    return kept


def _title(event: Mapping[str, Any]) -> str:
    """Return what a run would do: as in a row of the queue without the summary, which no event has."""
    import json

    from aileron.review.headline import rows_of

    steps, args = event.get("steps"), event.get("args")
    if not isinstance(steps, list) or not isinstance(args, dict) or not steps:
        return as_text(event.get("action"))
    ops = [{"op": one["op"]} for one in steps if isinstance(one, dict) and isinstance(one.get("op"), str)]
    plan = json.dumps({"args": args, "steps": ops}).encode()  # a half of a surrogate pair is an escape, and no plan
    return rows_of([("it", str(event.get("action")), plan)]).get("it") or as_text(event.get("action"))


def _story(
    key: str, events: Sequence[Mapping[str, Any]], titles: Mapping[str, str], results: Mapping[str, str]
) -> Story | None:
    of = {str(event.get("type")): event for event in events}  # the last of each type
    begin = of.get("run.requested") or of.get("run.refused") or of.get("approval.requested") or of.get("run.finished")
    if begin is None:
        return None
    approval = of.get("approval.requested", {}).get("approval")
    run = begin.get("run")
    title = titles.get(str(approval)) or titles.get(str(run)) or begin.get("title") or _named(begin)
    status, ending = _ending(of, results.get(key, ""))
    return Story(
        id=visible(key),
        run=None if run is None else str(run),
        session=CONSENTS if run is None else as_text(begin.get("session") or LOCAL),
        at=as_text(begin.get("at")),
        title=str(title),
        status=status,
        steps=(*_steps(events, of, status), ending),
    )


def _named(event: Mapping[str, Any]) -> str:
    """Return an action's name, or what a consent is about."""
    if "action" in event:
        return as_text(event["action"])
    kind = str(event.get("kind"))
    return f"{KINDS.get(kind, visible(kind))} {as_text(event.get('name'))}"


def _steps(events: Sequence[Mapping[str, Any]], of: Mapping[str, Mapping[str, Any]], status: str) -> list[str]:
    """Return what happened before the end, in order, each step once."""
    steps: dict[str, None] = {}
    is_decided = "approval.decided" in of
    for event in events:
        word = _step(event, is_decided=is_decided)
        if word is not None and not (word == "approved" and status == "failed"):  # its ending says so
            steps[word] = None
    counts = collections.Counter(str(event.get("type")) for event in events)
    for kind, name in (("egress.sending", "request"), ("run.retried", "retry"), ("egress.denied", "blocked request")):
        if counts[kind]:
            steps[counted(counts[kind], name).replace("retrys", "retries")] = None
    return list(steps)


def _step(event: Mapping[str, Any], *, is_decided: bool) -> str | None:
    match event.get("type"):
        case "run.requested" | "run.refused":
            return "asked"
        case "approval.requested":
            return "shown" if is_decided else None
        case "approval.decided" if event.get("decision") == "approve":
            return "approved"
        case "approval.edited":
            return "edited"
        case "approval.asked":
            return "you asked the agent"
        case "approval.answered":
            return "answered"
        case "grant.used":
            return f"allowed by a grant ({as_text(event.get('use'))} of {as_text(event.get('of'))})"
    return None


def _ending(of: Mapping[str, Mapping[str, Any]], came_back: str) -> tuple[str, str]:
    """Return the status, and the words for how it ended or where it is."""
    if "run.refused" in of:
        return "refused", f"refused{_because(of['run.refused'].get('message'))}"
    decided = of.get("approval.decided", {})
    status = str(of.get("run.finished", {}).get("status") or ("unknown" if "run.unknown" in of else _so_far(of)))
    match status:
        case "completed":
            return status, f"✓ done: {came_back}" if came_back else "✓ done"
        case "failed":
            what = "Approved, but it failed" if decided.get("decision") == "approve" else "failed"
            return status, f"{what}{_because(of['run.finished'].get('message'))}"
        case "denied":
            return status, f"denied{_because(decided.get('reason'))}"
        case "unknown":
            return status, "outcome unknown: check before you run it again"
        case "approved" if decided.get("until"):
            return status, f"held until {local_time(decided['until'])}"
        case "agreed":
            return "completed", "✓ in force"
        case _:
            return status, visible(state_words(status))


def _so_far(of: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the status of a consent, or of a run without an end on record, which waits or runs."""
    decision = of.get("approval.decided", {}).get("decision")
    is_run = "run.requested" in of
    if decision == "deny":
        return "denied"
    if "approval.expired" in of:
        return "expired"
    if "approval.cancelled" in of:
        return "cancelled"
    if "run.started" in of or (is_run and "approval.requested" not in of):
        return "running"
    if decision == "approve":
        return "approved" if is_run else "agreed"
    return "pending_approval"


def _because(text: Any) -> str:
    from aileron.review.headline import quoted

    return f": {quoted(str(text), _MOST_TEXT)}" if text else ""


def _who(name: str, session: Session | None) -> str:
    if name in (LOCAL, CONSENTS):
        return "Local commands, no agent" if name == LOCAL else "Consents"
    if session is None:
        return f"session {visible(name)}"
    return without_gaps(f"{visible(session.agent)} in {visible(session.folder)}")


def _counted(event: Mapping[str, Any]) -> int | None:
    """Return the row of the hour that an event counts in: runs, waits or denials; None if it counts in none."""
    match event.get("type"):
        case "run.requested" | "run.refused":
            return 0
        case "approval.requested":
            return 1
        case "egress.denied":
            return 2
        case "approval.decided" if event.get("decision") == "deny":
            return 2
    return None


def _moment(event: Mapping[str, Any]) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(str(event.get("at")))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
