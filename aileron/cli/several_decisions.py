"""Several requests decided by one command: requests that are alike are approved on one card; any requests are denied one after
the other.

Runs in `aileron approve` and `aileron deny` with more than one id; the rules for a single decision (decision_dialogue.py) hold
for each.

Rules
- Exactly the requests on the card are approved, each by its own digest and signature. Requests that are not alike are refused
  before the person is asked anything; if only a preview shows the difference, before they approve.
- The card is printed in full, even where a single request's card would be cut: a cut could hide one request among the others.
- The first approval that the daemon rejects ends the command. A denial that comes too late does not end it, because the other
  requests must still be denied.
- A passphrase is typed once for all of them. A security key is touched for each.

Source: docs/reference/cli.md (Several at once), docs/adr/0047-fewer-keys.md. Not here: which requests are alike, and their card
(cards/together.py), the options (commands/approval.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from aileron.api.approvals import Question, Settled
from aileron.api.runs import RunState
from aileron.cards.apart import why_apart_unread
from aileron.cards.card import Card
from aileron.cards.decision_flow import Review, is_withdrawal
from aileron.cards.question import state_words
from aileron.cards.together import Apart, card_of_several
from aileron.cli import output
from aileron.cli.card import show_card_of_several
from aileron.cli.decision_dialogue import (
    AlreadyDecided,
    ask_reason,
    follow,
    note_held,
    note_under_way,
    note_unsigned,
    open_vault,
    previewed,
    problem_of,
    reviewed,
    settle,
    signed_alone,
    when,
    withdrawn,
)
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, USAGE, Problem, tell
from aileron.cli.prompts import NO, YES, can_ask, choose
from aileron.cli.signing import Signer, approver_status, ask_alone, check_terminal
from aileron.cli.status_line import StatusLine
from aileron.cli.supervisor import Supervisor
from aileron.model.timestamp import parse_timestamp
from aileron.model.visible import visible

__all__ = ["ApprovingSeveral", "DenyingSeveral"]

_WAITING: Final = "pending_approval"


class NotAlike(Problem):
    """The requests are not alike, so they cannot be approved together. Each can be approved by itself."""

    def __init__(self, why: str, names: Sequence[str]) -> None:
        super().__init__("nothing was approved", exit_code=USAGE, why=why)
        self._names = names

    def lines(self) -> list[str]:
        """Return the lines of the problem, and the command for each request, in the order of the command line."""
        return [*super().lines(), *(f"  approve: aileron approve {visible(name)}" for name in self._names)]


class _Several:
    """A command that decides several questions, which are given by their complete ids, in the order of the command line."""

    def __init__(self, supervisor: Supervisor, names: Sequence[str], *, reason: str | None, as_json: bool) -> None:
        self._supervisor = supervisor
        self._names = names
        self._reason = reason
        self._as_json = as_json
        self._standing = approver_status(supervisor)

    def _send(self, review: Review, decision: Literal["approve", "deny"], signer: Signer | None) -> Settled:
        decided, kind = review.decided(decision, self._reason), review.question.kind
        body = decided.as_sent if signer is None else signer.decision(decided, kind)
        return settle(self._supervisor, review.id, kind, body)


class ApprovingSeveral(_Several):
    """An approval of two to ten requests that are alike. It shows one card, asks once, then signs each decision, sends
    it, and follows the run to its end.
    """

    def __init__(
        self, supervisor: Supervisor, names: Sequence[str], *, yes: bool, reason: str | None, as_json: bool
    ) -> None:
        super().__init__(supervisor, names, reason=reason, as_json=as_json)
        self._yes = yes
        self._approved: list[Question] = []
        self._refused: dict[str, Problem] = {}
        self._can_begin = True

    def approve(self, wait_s: float) -> int:
        """Ask the person, approve each request, and wait up to `wait_s` for the runs.

        Return 75 if the person says no; otherwise the highest exit code of the requests that were sent, which is 0 if every run
        completed or is still under way. An interruption has an exit code of its own. Raises Problem, before anything is sent,
        for instance if a request no longer waits or the requests are not alike.
        """
        code = self._decided()
        if not self._approved and not self._refused:
            return code
        return max(code, self._followed(wait_s if self._can_begin else 0.0))

    def _decided(self) -> int:
        if not self._standing.is_signed:
            return self._approve(None)
        check_terminal(f"aileron approve {' '.join(self._names)}")
        return signed_alone(self._supervisor, self._standing, self._approve)

    def _approve(self, signer: Signer | None) -> int:
        reviews, card = self._alike(signer)
        is_shown = signer is not None or (not self._yes and can_ask())
        if is_shown:
            show_card_of_several(card, _first_to_expire(reviews))
            output.note("")
        note_unsigned(self._standing)
        if is_shown and not self._yes and not _is_yes(card.word, len(reviews)):
            output.note(f"not decided, still waiting\n  deny: aileron deny {visible(' '.join(self._names))}")
            return UNFINISHED
        if signer is None:
            self._can_begin = not any(review.lends for review in reviews) or open_vault(self._supervisor)
        return self._send_each(reviews, signer)

    def _alike(self, signer: Signer | None) -> tuple[list[Review], Card]:
        """Return the reviews of all requests, and the one card on which the person approves them.

        Raises NotAlike if the requests differ, first as far as that is visible without a passphrase, then by their previews.
        """
        reviews = [reviewed(self._supervisor, name, signer) for name in self._names]
        if (why := why_apart_unread(reviews, when)) is not None:
            raise NotAlike(why, self._names)
        if signer is not None:
            self._supervisor.open_vault(ask_alone)
            reviews = previewed(self._supervisor, reviews, signer)
        card = card_of_several(reviews, when)
        if isinstance(card, Apart):
            raise NotAlike(card.why, self._names)
        return reviews, card

    def _send_each(self, reviews: list[Review], signer: Signer | None) -> int:
        for review in reviews:
            try:
                settled = self._send(review, "approve", signer)
            except Problem as problem:
                self._refused[review.id] = problem
                return self._stopped(len(reviews), tell(problem))
            except KeyboardInterrupt:
                return self._stopped(len(reviews), INTERRUPTED)
            self._approved.append(review.question)
            output.note(f"approved {visible(review.id)}")
            note_held(review.id, settled)
        return OK

    def _stopped(self, of: int, code: int) -> int:
        output.note(f"{len(self._approved)} of {of} approved")
        if left := self._left:
            output.note(f"not decided, still waiting\n  approve: aileron approve {visible(' '.join(left))}")
        return code

    @property
    def _left(self) -> list[str]:
        """Ids of the requests for which no decision was sent."""
        sent = {question.approval_id for question in self._approved} | set(self._refused)
        return [name for name in self._names if name not in sent]

    def _followed(self, wait_s: float) -> int:
        """Wait for all runs together, and report the outcome of each. Return the highest exit code."""
        until, states = time.monotonic() + wait_s, dict[str, RunState]()
        try:
            for question in self._approved:
                with StatusLine(str(question.action), wanted=not self._as_json) as waiting:
                    left_s = max(until - time.monotonic(), 0.0)
                    states[question.approval_id] = follow(self._supervisor, question.approval_id, left_s, waiting)
        except KeyboardInterrupt:
            output.note("\ninterrupted; the approved runs continue\n  look: aileron approval list")
            return INTERRUPTED
        if self._as_json:
            output.print_json({"approvals": [self._as_object(name, states) for name in self._names]})
        return max((self._told(name, state, wait_s) for name, state in states.items()), default=OK)

    def _as_object(self, name: str, states: dict[str, RunState]) -> dict[str, object]:
        if name in self._refused:
            return {"approval_id": name, **self._refused[name].to_json()}
        if name not in states:
            return {"approval_id": name, "status": _WAITING}
        problem = problem_of(states[name])
        return {
            "approval_id": name,
            **msgspec.to_builtins(states[name]),
            **({} if problem is None else problem.to_json()),
        }

    def _told(self, name: str, state: RunState, wait_s: float) -> int:
        """Print a line about the run on standard output and, if the run failed, the reason on standard error.

        Return the exit code.
        """
        if not self._as_json:
            output.write(_line(name, state))
        if (problem := problem_of(state)) is not None:
            return tell(problem)
        if state.status != "completed":
            note_under_way(state, wait_s)
        return OK


class DenyingSeveral(_Several):
    """A denial of several requests, even if the requests are not alike.

    If no reason is given and a signature would need a passphrase, the command withdraws the requests instead.
    """

    def deny(self) -> int:
        """Deny all requests of the command, and return the exit code.

        Return 0, or the highest exit code of the requests that were already decided or had expired. Raises Problem for any other
        failure; requests that were handled before it may be denied by then.
        """
        if not self._standing.is_signed:
            return self._deny(None)
        if self._reason is None and (self._as_json or not can_ask()):
            return self._each(lambda name: withdrawn(self._supervisor, name))
        check_terminal(f"aileron deny {' '.join(self._names)}")
        return signed_alone(self._supervisor, self._standing, self._deny)

    def _deny(self, signer: Signer | None) -> int:
        reviews = self._reviews(signer)
        for review in reviews.values():
            output.note(f"denying: {review.card(when).sentence}\n  asked by {visible(review.asker)}")
        note_unsigned(self._standing)
        if reviews and self._reason is None and not self._as_json and can_ask():
            self._reason = ask_reason(is_signed=signer is not None)
        if not reviews or is_withdrawal(self._reason, is_signed=signer is not None, has_key=False):
            return self._each(lambda name: withdrawn(self._supervisor, name))
        if signer is not None:
            self._supervisor.open_vault(ask_alone)
        return self._each(
            lambda name: self._send(reviews.get(name) or reviewed(self._supervisor, name, signer), "deny", signer)
        )

    def _reviews(self, signer: Signer | None) -> dict[str, Review]:
        """Return the reviews of the requests that can still be denied."""
        reviews: dict[str, Review] = {}
        for name in self._names:
            try:
                reviews[name] = reviewed(self._supervisor, name, signer)
            except Problem as problem:
                _check_over(problem)
        return reviews

    def _each(self, refuse: Callable[[str], Settled]) -> int:
        """Call `refuse`, which denies or withdraws a request, with the id of each request. Return the exit code.

        A request that is already decided or has expired does not stop the next. Raises Problem for any other failure.
        """
        code, became = OK, list[dict[str, object]]()
        for name in self._names:
            try:
                settled = refuse(name)
            except Problem as problem:
                _check_over(problem)
                code = max(code, tell(problem))
                became.append({"approval_id": name, **problem.to_json()})
            else:
                became.append(msgspec.to_builtins(settled))
                output.note(f"{state_words(settled.status)} {visible(name)}")
        if self._as_json:
            output.print_json({"approvals": became})
        return code


def _check_over(problem: Problem) -> None:
    """Raise `problem`, unless it says that a request was already decided or has expired."""
    if not isinstance(problem, AlreadyDecided) and problem.name != "approval_expired":
        raise problem


def _is_yes(word: str | None, count: int) -> bool:
    """Ask once for approval of all requests. If one request is serious enough to need a typed word, ask for that word."""
    prompt = f"Type {word} to approve all {count}: " if word else f"Approve all {count}? [y/N] "
    approving = (word,) if word else YES
    return choose(prompt, (*approving, *NO), tries=1) in approving


def _first_to_expire(reviews: Sequence[Review]) -> str:
    """Return the earliest expiry. An invalid time counts as the earliest."""
    return min((review.question.expires_at for review in reviews), key=lambda moment: _order(moment))


def _order(moment: str) -> float:
    at = parse_timestamp(moment)
    return 0.0 if at is None else at.timestamp()


def _line(name: str, state: RunState) -> str:
    """Return a run's id, state and result as one line. In a pipe, tabs separate the fields, and the state is the API's
    word for it.
    """
    has_result = state.status == "completed" and state.result is not msgspec.UNSET
    result = [json.dumps(state.result)] if has_result else []  # ASCII: harmless on a terminal
    if output.is_terminal():
        return "  ".join([visible(name), state_words(state.status), *result])
    return "\t".join([name, state.status, *result])
