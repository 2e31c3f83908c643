"""Stories: what happened in each run, grouped by the session that requested the run; and the last hour of each agent.

Pure. Stories are made from events of the record (docs/reference/audit-events.md), which can come in any order and more
than once. Text in an event comes from another party, so it is sanitized and shortened here, and put in quotes if it is
a sentence.

    Send mail: to “mira@example.com”      asked · shown · approved · 3 requests · ✓ done: id “m-1”

Rules
- A step is in a story only if an event says so. The step `shown` is only in stories of questions that were decided.
- If the beginning of a run is not among the events, its story begins with the end. A run without beginning and end is
  left out.
- No text of an event can imitate a step or an ending, because it cannot close the quotes around it.

Not here: where the events come from (news.py), how a story looks (rendering.py), the list of all events (activity.py).

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

from aileron.cards.question import kind_words, state_words
from aileron.model.json_value import JSON, JSONObject
from aileron.model.timestamp import local_time
from aileron.model.visible import as_text, visible, without_gaps

if TYPE_CHECKING:
    from aileron.api.sessions import Session

__all__ = [
    "BINS",
    "BIN_S",
    "CONSENTS",
    "MOST_KEPT",
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
"""Maximum number of stored events: an hour of four hundred runs with three requests each."""
MOST_STORIES: Final = 100
"""Maximum number of stories that are shown, the newest first. Each takes two rows of a list."""
BINS: Final = 12
BIN_S: Final = 300
"""Length of a bin in seconds: the last hour has twelve bins of five minutes."""
LOCAL: Final = "local"
"""Name of the session for requests without one (audit-events.md)."""
CONSENTS: Final = "consents"
"""Value of `Story.session` for consents that no run waits for: the ledger does not say which session asked for them."""
_MOST_TEXT: Final = 120
"""Maximum number of characters of a reason, a message or a result in a story; the record of the run has the full text."""
_MOST_RESULT: Final = 3
"""Maximum number of fields of a result that a story shows."""
_KEPT: Final = (
    *("seq", "at", "type", "run", "approval", "session", "action", "agent", "folder", "kind", "name"),
    *("status", "message", "decision", "reason", "surface", "until", "use", "of"),
)
"""Facts of an event that stories use."""


@dataclasses.dataclass(frozen=True)
class Story:
    """The story of a run or a consent, for a list. Its texts have no control characters.

    `id` is the id of the run, or of the question if there is no run. `at` is the time when it began (RFC 3339); `status` is a
    value of RunStatus or `refused`. The last of `steps` says how the run ended, or its current state.
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
    """Number of an agent's runs, questions (`waits`) and denials in each bin of the last hour.

    Each field has BINS numbers, the newest last.
    """

    agent: str
    runs: tuple[int, ...]
    waits: tuple[int, ...]
    denials: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Hour:
    """Counts of events in the last hour, by agent in alphabetical order.

    `since` is in RFC 3339. `is_whole` is true if no event of the hour is missing.
    """

    since: str
    is_whole: bool
    agents: tuple[AgentHour, ...]


class History:
    """A store of the newest events of the ledger, from which stories and the counts of the last hour are computed."""

    def __init__(self) -> None:
        self._by_seq: dict[int, JSONObject] = {}
        self._results: dict[str, str] = {}

    @property
    def oldest_seq(self) -> int | None:
        """Row number of the oldest stored event; None if no event is stored."""
        return min(self._by_seq, default=None)

    @property
    def oldest_at(self) -> str | None:
        """Time of the oldest stored event (RFC 3339)."""
        return None if not self._by_seq else as_text(self._by_seq[min(self._by_seq)].get("at"))

    def take(self, events: Iterable[Mapping[str, JSON]]) -> None:
        """Add these events of the ledger to the store.

        An event that is stored already is not added again, and the oldest events are dropped above MOST_KEPT.
        """
        for event in events:
            seq = event.get("seq")
            if isinstance(seq, int) and seq not in self._by_seq:
                self._by_seq[seq] = _slim(event)
        for seq in sorted(self._by_seq)[: max(0, len(self._by_seq) - MOST_KEPT)]:
            del self._by_seq[seq]

    def came_back(self, run: str, words: str) -> None:
        """Set the result of a completed run, as one line (`result_words`); `words` is empty if the result is unknown."""
        self._results[run] = words

    def without_result(self, most: int) -> list[str]:
        """Return the newest completed runs whose result has not been set, at most `most`."""
        done = [story.run for story in self.stories({}) if story.status == "completed" and story.run is not None]
        return [run for run in done if run not in self._results][:most]

    def stories(self, titles: Mapping[str, str]) -> list[Story]:
        """Return the stories of the newest runs and consents, the newest first.

        `titles`: the queue's titles of runs and questions, by id.
        """
        told = []
        for key, events in self._by_run().items():
            story = _story(key, events, titles, self._results)
            if story is not None:
                told.append(story)
        return told[::-1][:MOST_STORIES]

    def hour(self, sessions: Mapping[str, Session], now: datetime.datetime) -> Hour:
        """Return the numbers of runs, questions and denials of each agent in the last hour."""
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
        """Return the name of each session's agent, for all sessions whose agent is known."""
        begun = {
            str(event.get("session")): as_text(event["agent"])
            for event in self._of("session.started")
            if "agent" in event
        }
        return {**begun, **{name: visible(session.agent) for name, session in sessions.items()}, LOCAL: "local command"}

    def _in_order(self) -> list[JSONObject]:
        return [self._by_seq[seq] for seq in sorted(self._by_seq)]

    def _of(self, kind: str) -> list[JSONObject]:
        return [event for event in self._in_order() if event.get("type") == kind]

    def _by_run(self) -> dict[str, list[JSONObject]]:
        """Return the stored events by id of their run, or by id of their question if no run waits for it; the earliest
        first.

        The event `approval.requested` says to which run a question belongs. The run in `approval.previewed` is not that run but
        the run of the preview itself.
        """
        of_approval = {event.get("approval"): event.get("run") for event in self._of("approval.requested")}
        found: dict[str, list[JSONObject]] = {}
        for event in self._in_order():
            approval = event.get("approval")
            run = of_approval.get(approval, event.get("run")) if approval is not None else event.get("run")
            key = run or approval
            if key is not None:
                found.setdefault(str(key), []).append(event)
        return found


def told_by_session(stories: Iterable[Story], sessions: Mapping[str, Session]) -> list[Told]:
    """Return the stories by session. The session with the newest story is first."""
    by_session: dict[str, list[Story]] = {}
    for story in stories:
        by_session.setdefault(story.session, []).append(story)
    return [Told(name, _who(name, sessions.get(name)), tuple(some)) for name, some in by_session.items()]


def result_words(result: Any) -> str:
    """Return a result as one line: the first fields of an object, the length of a list, or the beginning of a text."""
    from aileron.cards.headline import quoted

    if isinstance(result, dict):
        fields = [(name, value) for name, value in result.items() if value is not None][:_MOST_RESULT]
        return ", ".join(f"{visible(name)} {_field_words(value)}" for name, value in fields)
    if isinstance(result, list):
        return counted(len(result), "item")
    return "" if result is None or result == "" else quoted(result, _MOST_TEXT)


def _field_words(value: Any) -> str:
    from aileron.cards.headline import quoted

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


def _slim(event: Mapping[str, JSON]) -> JSONObject:
    """Return an event with only the facts that stories use, cut to a bounded length.

    For `run.requested`, a title computed from the steps and arguments replaces them.
    """
    kept: JSONObject = {}
    for name in _KEPT:
        value = event.get(name)
        if value is not None:  # another program in the daemon's place may send anything
            kept[name] = value if isinstance(value, int) else as_text(value)[: 4 * _MOST_TEXT]
    if event.get("type") == "run.requested":
        kept["title"] = _title(event)
    return kept


def _title(event: Mapping[str, JSON]) -> str:
    """Return the title of a run from its `run.requested` event, as in the queue but without the action's summary.

    No event contains the summary.
    """
    import json

    from aileron.cards.headline import rows_of

    steps, args = event.get("steps"), event.get("args")
    if not isinstance(steps, list) or not isinstance(args, dict) or not steps:
        return as_text(event.get("action"))
    ops = [{"op": step["op"]} for step in steps if isinstance(step, dict) and isinstance(step.get("op"), str)]
    plan = json.dumps({"args": args, "steps": ops}).encode()  # a lone surrogate becomes an escape, which no plan has
    return rows_of([("it", str(event.get("action")), plan)]).get("it") or as_text(event.get("action"))


def _story(
    key: str, events: Sequence[Mapping[str, JSON]], titles: Mapping[str, str], results: Mapping[str, str]
) -> Story | None:
    of = {str(event.get("type")): event for event in events}  # the last event of each type
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


def _named(event: Mapping[str, JSON]) -> str:
    """Return the title of a story without a better one: the action's name, or the kind and name of a consent."""
    if "action" in event:
        return as_text(event["action"])
    kind = str(event.get("kind"))
    return f"{visible(kind_words(kind))} {as_text(event.get('name'))}"


def _steps(events: Sequence[Mapping[str, JSON]], of: Mapping[str, Mapping[str, JSON]], status: str) -> list[str]:
    """Return the words for each step of a run before its end, in order and without repetitions; numbers of requests
    come last. `of` has the last of the run's events of each type.
    """
    steps: dict[str, None] = {}
    is_decided = "approval.decided" in of
    for event in events:
        word = _step(event, is_decided=is_decided)
        if word is not None and not (word == "approved" and status == "failed"):  # the ending says so
            steps[word] = None
    counts = collections.Counter(str(event.get("type")) for event in events)
    for kind, name in (("egress.sending", "request"), ("run.retried", "retry"), ("egress.denied", "blocked request")):
        if counts[kind]:
            steps[counted(counts[kind], name).replace("retrys", "retries")] = None
    return list(steps)


def _step(event: Mapping[str, JSON], *, is_decided: bool) -> str | None:
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


def _ending(of: Mapping[str, Mapping[str, JSON]], came_back: str) -> tuple[str, str]:
    """Return the status of a run, and words for how it ended or for its current state. `of` has the last of its events
    of each type; `came_back` is its result as one line, or empty.
    """
    if "run.refused" in of:
        return "refused", f"refused{_because(of['run.refused'].get('message'))}"
    decided = of.get("approval.decided", {})
    status = str(of.get("run.finished", {}).get("status") or ("unknown" if "run.unknown" in of else _so_far(of)))
    match status:
        case "completed":
            return status, f"✓ done: {came_back}" if came_back else "✓ done"
        case "failed":
            words = "Approved, but it failed" if decided.get("decision") == "approve" else "failed"
            return status, f"{words}{_because(of['run.finished'].get('message'))}"
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


def _so_far(of: Mapping[str, Mapping[str, JSON]]) -> str:
    """Return the status of a run or consent that has no `run.finished` or `run.unknown` event. `of` has the last of its
    events of each type.
    """
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
    from aileron.cards.headline import quoted

    return f": {quoted(str(text), _MOST_TEXT)}" if text else ""


def _who(name: str, session: Session | None) -> str:
    if name in (LOCAL, CONSENTS):
        return "Local commands, no agent" if name == LOCAL else "Consents"
    if session is None:
        return f"session {visible(name)}"
    return without_gaps(f"{visible(session.agent)} in {visible(session.folder)}")


def _counted(event: Mapping[str, JSON]) -> int | None:
    """Return the counter of the last hour that an event increments: 0 for runs, 1 for questions, 2 for denials; None if
    it increments none.
    """
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


def _moment(event: Mapping[str, JSON]) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(str(event.get("at")))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
