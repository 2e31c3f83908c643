"""A person's decision: finds a question, shows it in full, asks, sends the decision, and follows the run to its end.

Runs in the commands of a person: `approve`, `deny`, `approval edit`, and, at a terminal, the commands that need a decision before
they are done (`run`, `action add`, `binding setup`, …). All of them go through `Dialogue`, over the operator's socket.

The content of a question comes from an agent, and is marked as the agent's. If there is an approver, not even the daemon is
believed, because any process of this user may answer in its place. Therefore:

1. the whole dialogue, from fetching the question to sending the decision, runs in a process that no other process can inspect
   (`signing.alone`)
2. the digest is computed here from what is shown, and refused if it is not the digest that the question names
3. the question is shown, and the person is asked
4. the passphrase is typed at the terminal; if there is a preview, this comes before step 3, because only the approver
   can open the preview
5. what was shown is signed, the key is wiped, and the decision is sent

Rules
- The digest that is sent is computed from exactly the response that was shown. Text that is too long for the terminal is shown
  from that response too, in the same dialogue: another command could get it from another process that responds in the daemon's
  place.
- The plan and the question go to standard error: standard output has only the result.
- A part of an id is enough if the person then sees the question. If nothing is shown before an approval, the whole id is
  needed: an agent that withdraws one question and asks another must not get the second one approved.
- No request is repeated: a person who loses a race is told what was decided instead.

Source: docs/reference/cli.md, docs/reference/http-api.md, docs/reference/signed-decisions.md.
Not here: the options (commands/approval.py), how a question looks (card.py), the key (signing.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from aileron.api.approvals import ApprovalList, ConsentAnswer, ConsentsAnswer, Decision, Question, Settled
from aileron.api.body import Body
from aileron.api.runs import RunState
from aileron.cli import output
from aileron.cli.plan import COLUMN
from aileron.cli.problem import INTERRUPTED, NOT_FOUND, OK, UNFINISHED, USAGE, Problem, report
from aileron.cli.prompts import NO, YES, ask_now, can_ask, choose
from aileron.cli.signing import (
    UNSIGNED,
    ApproverStatus,
    Signer,
    alone,
    approver_status,
    as_shown,
    ask_alone,
    check_terminal,
)
from aileron.cli.status_line import StatusLine
from aileron.cli.supervisor import Supervisor, path_of, read
from aileron.model.json_value import dict_of
from aileron.model.visible import visible

if TYPE_CHECKING:  # imported by the step that needs them: a denial needs no plan, and an approval in a script no card
    from aileron.cards.decision_flow import Review, UnsignedDecision

__all__ = [
    "UNDER_WAY",
    "AlreadyDecided",
    "Dialogue",
    "ask_reason",
    "cancel",
    "carry_through",
    "check_waits",
    "find",
    "follow",
    "more_of",
    "note_held",
    "note_under_way",
    "note_unsigned",
    "open_vault",
    "previewed",
    "problem_of",
    "reviewed",
    "settle",
    "signed_alone",
    "waiting",
    "when",
    "withdrawn",
]

UNDER_WAY = ("approved", "running")
"""States of a run that was approved and has not ended."""
_ROUTE = ("v1", "action-approvals")
_LEAST_PART = 4
"""Minimum number of characters of a partial id, not counting the constant prefix. Four digits match one id in 65,536."""
_CONSTANT = "act-"
_ALL = ("f", "full")
_MORE = "answer f to show everything before you decide"
"""Hint in a signed dialogue. It names no command, because another process could answer that command in place of the daemon."""
_FIRST_WAIT_S = 2.0
"""Seconds of the first wait for a run to end, long enough for most runs. A run that cannot start at all is reported
after this wait.
"""
_LONGEST_WAIT_S = 60.0
"""Maximum seconds that one request waits for a run to end, as allowed by the daemon."""
_PAUSE_S = 0.2
"""Minimum seconds between two checks whether a run has ended."""
_DENIED = 5
_NO_APPROVER = 6
_CARRY_OUT_S = 60.0
"""Seconds to wait for the response to an approved change, which is executed first; an installation unpacks and hashes at most
100 MiB.
"""


class AlreadyDecided(Problem):
    """The question has been decided already; `status` is its current state."""

    def __init__(self, approval_id: str, status: str) -> None:
        super().__init__(
            f"{approval_id} is already {status}",
            exit_code=6,
            name="already_decided",
            fix=f"aileron approval show {approval_id}",
        )
        self.status = status

    def to_json(self) -> dict[str, object]:
        """Return the failure as JSON, with the question's status as the daemon reports it."""
        error = dict_of(super().to_json()["error"])
        return {"error": {**error, "details": {"status": self.status}}}


class _Said(NamedTuple):
    """The person's answer to a question. If `decision` is None, the question stays open."""

    decision: Literal["approve", "deny"] | None
    reason: str | None = None


class Dialogue:
    """A dialogue in which a person at this terminal decides one question, or in which the command's options decide
    it.

    `tell` reports the result of an executed consent. `edit` is the digest of the edited plan to decide about.
    Afterwards `can_begin` is true if the approved run can start now (only the vault's passphrase may be missing), and
    `other` is set if another decision was made first.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        approval_id: str,
        *,
        standing: ApproverStatus | None = None,
        yes: bool = False,
        reason: str | None = None,
        as_json: bool = False,
        edit: str | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._id = approval_id
        self._standing = standing or approver_status(supervisor)
        self._yes = yes
        self._reason = reason
        self._as_json = as_json
        self._edit = edit
        self._tell = tell
        self.can_begin = True
        self.other: AlreadyDecided | None = None

    def approve(self) -> int:
        """Show the question, ask the person, and approve it. Raises Problem if it cannot be approved.

        Return 0 if it is approved, 75 if the person leaves it open, or the exit code of an approved change that
        failed.
        """
        return self._hold(self._approve)

    def deny(self) -> int:
        """Deny the question. Where decisions are signed, a denial without a reason withdraws it, which takes no signature.

        Return the exit code, which is 0. Raises Problem if the question cannot be denied.
        """
        if not self._standing.is_signed:
            return self._deny(None)
        if self._reason is None and (self._as_json or not can_ask()):
            return self._withdraw()
        check_terminal(f"aileron deny {self._id}")
        return self._alone(self._deny)

    def settle_here(self) -> int:
        """Show the question to the person who caused it, and ask them to approve it, deny it or leave it open.

        Return 0 if the question is decided, even by another decision meanwhile; 5 if the person denied a consent; 75 if the
        question stays open or cannot be shown; or the exit code of a change that failed. Raises Problem for any other failure.
        """
        return self._hold(self._settle_here)

    def preview(self) -> int:
        """Show the question with its preview, without asking for a decision."""
        return self._hold(self._look)

    def _hold(self, work: Callable[[Signer | None], int]) -> int:
        if not self._standing.is_signed:
            return work(None)
        check_terminal(f"aileron approve {self._id}")

        def unlocked(signer: Signer) -> int:
            self._supervisor.open_vault(ask_alone)
            return work(signer)

        return self._alone(unlocked)

    def _alone(self, work: Callable[[Signer], int]) -> int:
        return signed_alone(self._supervisor, self._standing, work)

    def _approve(self, signer: Signer | None) -> int:
        review = self._with_preview(self._review(signer), signer)
        is_shown = signer is not None or (not self._yes and can_ask())
        if is_shown:
            _show(review, self._more(signer))
        elif review.edited:
            from aileron.cards.changes import change_lines

            output.print_facts([("changes", change_lines(review.edited))], "stderr", column=COLUMN)
            output.note("")
        note_unsigned(self._standing)
        _check_yes(review)
        if is_shown and not self._yes and not _is_yes(review):
            output.note(f"not decided, still waiting\n  deny: aileron deny {visible(self._id)}")
            return UNFINISHED
        if signer is None:
            self.can_begin = not review.lends or open_vault(self._supervisor)
        return self._send(review.decided("approve", self._reason), review.question.kind, signer)

    def _deny(self, signer: Signer | None) -> int:
        review = self._review(signer)
        if signer is not None:
            output.note(f"denying: {review.card(when).sentence}\nasked by {visible(review.asker)}")
        note_unsigned(self._standing)
        reason = self._reason
        if reason is None and not self._as_json and can_ask():
            reason = _ask_reason(signer)
        if _is_withdrawn(reason, signer):
            return self._withdraw()
        if signer is not None:
            self._supervisor.open_vault(ask_alone)
        return self._send(review.decided("deny", reason), review.question.kind, signer)

    def _withdraw(self) -> int:
        """Withdraw the question, which is a denial without a signature."""
        settled = withdrawn(self._supervisor, self._id)
        output.print_done(settled, f"withdrawn {visible(settled.approval_id)}: it will not run", as_json=self._as_json)
        return OK

    def _settle_here(self, signer: Signer | None) -> int:
        try:
            review = self._review(signer)
        except AlreadyDecided as decided:
            return self._was_second(decided)
        except Problem as problem:
            if signer is not None or problem.name == "approval_expired":
                raise
            return UNFINISHED
        output.note("approval required\n")
        review = self._with_preview(review, signer)
        _show(review, self._more(signer))
        note_unsigned(self._standing)
        if self._yes:
            _check_yes(review)
        while True:
            said = _Said("approve") if self._yes else _ask_here(review, signer)
            if said.decision is None:
                return UNFINISHED
            if said.decision == "deny" and _is_withdrawn(said.reason, signer):
                return self._withdrawn_here(review)
            try:
                if signer is None and said.decision == "approve":
                    self.can_begin = not review.lends or open_vault(self._supervisor)
                code = self._send(
                    review.decided(said.decision, said.reason), review.question.kind, signer, is_here=True
                )
                return _DENIED if said.decision == "deny" and not review.is_run else code
            except AlreadyDecided as decided:
                return self._was_second(decided)
            except Problem as problem:  # a typo in the vault's passphrase does not end the dialogue
                if signer is not None or problem.name == "approval_expired" or self._yes:
                    raise
                output.note("\n".join(problem.lines()))

    def _withdrawn_here(self, review: Review) -> int:
        try:
            self._withdraw()
        except AlreadyDecided as decided:
            return self._was_second(decided)
        return OK if review.is_run else _DENIED

    def _was_second(self, decided: AlreadyDecided) -> int:
        from aileron.cards.decision_flow import already_words

        output.note(already_words(decided.status))
        self.other = decided
        return OK

    def _look(self, signer: Signer | None) -> int:
        review = self._with_preview(self._review(signer), signer)
        if signer is not None:
            signer.wipe()
        from aileron.cli.card import show_card

        show_card(review, "stdout", more=None)
        return OK

    def _review(self, signer: Signer | None) -> Review:
        """Fetch the question for display.

        If the decision is to be signed, the question's digest is computed from the content that is shown.
        """
        review = reviewed(self._supervisor, self._id, signer, edit=self._edit)
        self._id = review.id
        return review

    def _more(self, signer: Signer | None) -> str | None:
        """Return the hint to show where the terminal's text is cut; None if everything is shown.

        In a signed dialogue with `--yes` everything is shown, because there is no prompt that could offer the rest.
        """
        return more_of(self._id) if signer is None else None if self._yes else _MORE

    def _with_preview(self, review: Review, signer: Signer | None) -> Review:
        """Return the review with the preview of its plan. A preview that was not read yet is read if a signer can open it."""
        if signer is None or not review.is_unread:
            return review
        return previewed(self._supervisor, [review], signer)[0]

    def _send(self, decided: UnsignedDecision, kind: str, signer: Signer | None, *, is_here: bool = False) -> int:
        """Sign the decision if there is a signer, send it, and report it.

        With `is_here`, a decision about a run is not reported, because the command reports how the run ends.
        """
        body = decided.as_sent
        if signer is not None:
            body = signer.decision(decided, kind)
            signer.wipe()
        settled = settle(self._supervisor, decided.approval_id, kind, body)
        if is_here and kind == "action":
            note_held(self._id, settled)
            return OK
        return self._tell_run(settled) if kind == "action" else self._tell_consent(kind, settled)

    def _tell_run(self, settled: Settled) -> int:
        if settled.status == "approved":
            output.note(f"approved {visible(self._id)}")
            note_held(self._id, settled)
        else:
            output.print_done(settled, f"{settled.status} {visible(self._id)}", as_json=self._as_json)
        return OK

    def _tell_consent(self, kind: str, settled: Settled) -> int:
        problem = Problem.of_error(settled.error) if settled.error else None
        if self._as_json:
            output.print_json(settled if problem is None else {**msgspec.to_builtins(settled), **problem.to_json()})
        if problem is not None:
            output.note(f"approved {visible(self._id)}, but it failed")
            return report(problem, as_json=False)
        is_denied = settled.status == "denied"
        if not self._as_json or is_denied:
            output.note(f"{'denied' if is_denied else 'approved'} {visible(self._id)}")
        if not is_denied and not self._as_json and self._tell is not None:
            from aileron.cli.commands.done import result_of

            self._tell(result_of(kind, settled.result))
        return OK


def signed_alone(supervisor: Supervisor, standing: ApproverStatus, work: Callable[[Signer], int]) -> int:
    """Run `work` in a process that no other process can inspect, with a signer whose key is not open yet. Return the result."""

    def signed() -> int:
        with Signer(supervisor, standing.key_id) as signer:
            return work(signer)

    return alone(signed)


def previewed(supervisor: Supervisor, reviews: Sequence[Review], signer: Signer) -> list[Review]:
    """Return the reviews with their previews, after reading those that were not read yet. The passphrase is asked for
    once, before the first of them.
    """
    if any(review.is_unread for review in reviews):
        output.note("loading the current state first, which only you can read")
        signer.unlock()
        output.note("loading …\n")
    return [
        review.with_preview(signer.preview(supervisor, review.id, review.plan_digest)) if review.is_unread else review
        for review in reviews
    ]


def carry_through(
    supervisor: Supervisor, answer: msgspec.Struct, tell: Callable[[Any], None], *, yes: bool, as_json: bool
) -> int:
    """Finish a command whose change may need consent: report the change, or ask for a decision here. Return the exit code.

    Return 75 if no person can be asked: standard output has the approval's id, and standard error the ways to decide.
    """
    if not isinstance(answer, ConsentAnswer | ConsentsAnswer):
        if as_json:
            output.print_json(answer)
        else:
            tell(answer)
        return OK
    asked = (answer,) if isinstance(answer, ConsentAnswer) else answer.approvals
    if as_json or not can_ask():
        return _left_waiting(answer, asked, as_json=as_json)
    for number, question in enumerate(asked, start=1):
        if len(asked) > 1:
            output.note(f"{number} of {len(asked)}")
        if (code := _decided_here(supervisor, question, tell, yes=yes)) != OK:
            return code
    return OK


def _decided_here(supervisor: Supervisor, asked: ConsentAnswer, tell: Callable[[Any], None], *, yes: bool) -> int:
    """Have the person at this terminal decide one question about a consent. Return the exit code."""
    dialogue = Dialogue(supervisor, asked.approval_id, yes=yes, tell=tell)
    try:
        code = dialogue.settle_here()
    except KeyboardInterrupt:
        output.note("\ninterrupted, nothing decided")
        code = INTERRUPTED
    except Problem as problem:
        problem.fix = problem.fix or f"aileron approve {asked.approval_id}"
        raise
    if dialogue.other is not None and dialogue.other.status not in ("approved", "completed"):
        raise dialogue.other
    if code in (UNFINISHED, INTERRUPTED):
        _note_ways(asked)
    return code


def find(supervisor: Supervisor, typed: str) -> Question:
    """Return the question with this id, or the only one whose id starts or ends with `typed`.

    Raises Problem if none or several match.
    """
    if not typed or "/" in typed:  # it would lead to another route
        raise Problem.usage(f"{typed!r} is not an approval id", fix="aileron approval list")
    try:
        return _question(supervisor, typed)
    except Problem as problem:
        if problem.exit_code != NOT_FOUND:
            raise
    meant = [] if len(typed.removeprefix(_CONSTANT)) < _LEAST_PART else _meant(supervisor, typed)
    if len(meant) > 1:
        raise Problem.usage(f"{typed!r} could be {' or '.join(meant)}", fix="aileron approval list")
    name = meant[0] if meant else _decided(supervisor, typed)
    if name is None:
        raise Problem.missing(f"no approval {typed!r}", fix="aileron approval list")
    return _question(supervisor, name)


def _decided(supervisor: Supervisor, typed: str) -> str | None:
    """Return the id of a question that is no longer open, found in the audit trail by the id's end; None if there is none."""
    from aileron.cli.ids import meant, recorded

    return meant(typed, recorded(supervisor, typed, "approval"), fix="aileron audit list --type approval.decided")


def _question(supervisor: Supervisor, approval_id: str) -> Question:
    """Fetch a question. Raises Problem(hash_mismatch), as for a wrong digest, if this version cannot show the question
    in full; nothing is signed then.
    """
    body = supervisor.ask("GET", path_of(*_ROUTE, approval_id))
    try:
        return read(Question, body)
    except Problem as problem:
        raise Problem(
            f"{visible(approval_id)} cannot be shown in full here, so nothing was signed",
            exit_code=9,
            name="hash_mismatch",
            why=problem.what,
            fix=problem.fix,
        ) from problem


def waiting(supervisor: Supervisor, typed: str) -> Question:
    """Return the question that `find` finds for `typed`, if it is still open. Raises Problem otherwise."""
    question = find(supervisor, typed)
    check_waits(question)
    return question


def reviewed(supervisor: Supervisor, typed: str, signer: Signer | None, *, edit: str | None = None) -> Review:
    """Return an open question for display; with a signer, its digest is computed from the content that is shown."""
    from aileron.cards.decision_flow import review_of

    question = waiting(supervisor, typed)
    with as_shown():
        return review_of(question, is_signed=signer is not None, edit=edit)


def withdrawn(supervisor: Supervisor, typed: str) -> Settled:
    """Withdraw a question that is still open. Raises Problem otherwise."""
    return cancel(supervisor, waiting(supervisor, typed))


def check_waits(question: Question) -> None:
    """Check that the question is still open.

    Raises AlreadyDecided if it was decided, Problem(approval_expired) if it has expired.
    """
    status, name = question.status, question.approval_id
    if status == "expired":
        raise Problem(
            f"{name} has expired, and nothing ran",
            exit_code=6,
            name="approval_expired",
            fix=f"aileron approval show {name}",
        )
    if status != "pending_approval":
        raise AlreadyDecided(name, status)


def more_of(approval_id: str) -> str:
    """Return the command that shows a question in full."""
    return f"aileron approval show {approval_id} --full"


def note_unsigned(standing: ApproverStatus) -> None:
    """Print a note that the home's decisions are not signed, and how to change that; print nothing if they are signed."""
    if not standing.is_signed:
        output.note(UNSIGNED)


def open_vault(supervisor: Supervisor) -> bool:
    """Unlock the vault, so that an approved run can start. Return False if the vault stays locked.

    Raises Problem for a wrong passphrase; nothing is decided then.
    """
    try:
        supervisor.open_vault()
    except Problem as problem:
        if problem.name != "vault_locked":
            raise
        return False
    return True


def cancel(supervisor: Supervisor, question: Question) -> Settled:
    """Withdraw the question, or an approval whose run has not started. Raises AlreadyDecided if that is no longer possible."""
    return _settled(supervisor, question.approval_id, question.kind, "cancel", Body())


def settle(supervisor: Supervisor, approval_id: str, kind: str, decision: Decision) -> Settled:
    """Send a decision, signed or not, about a question of this kind.

    Raises AlreadyDecided if another decision was made first, Problem for any other failure.
    """
    return _settled(supervisor, approval_id, kind, "decide", decision)


def follow(supervisor: Supervisor, approval_id: str, wait_s: float, waiting: StatusLine) -> RunState:
    """Wait until the run has ended, until `wait_s` has passed, or until only a passphrase is missing for its start. Return the
    run's state.

    `waiting` shows the connector's reports meanwhile.
    """
    until = time.monotonic() + wait_s
    longest_s = _FIRST_WAIT_S
    while True:
        asked_at = time.monotonic()
        this_s = max(0.0, min(until - asked_at, longest_s))
        path = f"{path_of(*_ROUTE, approval_id, 'result')}?wait={this_s:.3f}{waiting.query}"
        answer = supervisor.watch(path, wait_s=this_s, look=f"aileron approval show {approval_id}")
        state = read(RunState, answer)
        if state.status not in (*UNDER_WAY, "pending_approval") or _is_locked_out(state):
            return state
        if time.monotonic() >= until:
            return state
        if waiting.is_news(answer):
            continue
        time.sleep(max(0.0, min(_PAUSE_S, until - time.monotonic()) - (time.monotonic() - asked_at)))
        longest_s = _LONGEST_WAIT_S


def note_under_way(state: RunState, wait_s: float) -> None:
    """Print a note about an approved run that has not ended: what the run waits for, and the command that shows it."""
    is_approved = state.status == "approved"
    if _is_locked_out(state):
        lines = ["starts once the vault is unlocked", "  fix: aileron vault unlock"]
    elif is_approved and state.held_until:
        lines = [f"held until {output.local_time(state.held_until, 'stderr')}, then it starts"]
    elif is_approved and state.error:
        lines = [f"not started yet: {visible(state.error.message)}"]
    else:
        lines = [f"still running after {wait_s:g} s, and continues"]
    output.note("\n".join([*lines, f"  look: aileron audit show {visible(str(state.audit_id))}"]))


def problem_of(state: RunState) -> Problem | None:
    """Return the reason why the run failed. None if the run succeeded or has not ended."""
    is_well = state.status in ("completed", *UNDER_WAY)
    return None if is_well else Problem.of_state(msgspec.to_builtins(state))


def when(moment: str | None) -> str:
    """Return a moment as a card on standard error shows it."""
    return output.local_time(moment, "stderr")


def _check_yes(review: Review) -> None:
    """Check that the question can be approved. Raises Problem with the reason if not, so that the person is not asked."""
    if review.why_no_yes is not None:
        raise Problem(
            f"{visible(review.id)} cannot be approved as it is, and still waits",
            exit_code=USAGE if review.is_signed else _NO_APPROVER,
            name="invalid_request" if review.is_signed else "consent_required",
            why=review.why_no_yes,
            fix=f"aileron deny {visible(review.id)}" if review.is_signed else "aileron approver init",
        )


def _show(review: Review, more: str | None) -> None:
    from aileron.cli.card import show_card

    show_card(review, more=more)
    output.note("")


def _is_yes(review: Review) -> bool:
    """Ask the person to approve a question that did not come from this command, and return whether they do. For the
    most serious questions, they must type a confirmation word, the same on every surface.
    """
    word = review.card(when).word
    prompt = f"Type {word} to approve: " if word else "Approve? [y/N] "
    approving = (word,) if word else YES
    while (typed := choose(prompt, (*approving, *NO, *_ALL), tries=1)) in _ALL:
        _show(review, None)
    return typed in approving


def _ask_here(review: Review, signer: Signer | None) -> _Said:
    """Ask the person at this terminal about the request that their command has just made, and return the answer. A
    single letter is a sufficient answer.
    """
    if review.why_no_yes is not None:
        output.note(f"cannot be approved: {visible(review.why_no_yes)}")
    ways = "Approve? [y]es, [n]o" if review.why_no_yes is None else "[n]o"
    answers = (*(YES if review.why_no_yes is None else ()), *NO, *_ALL)
    while True:
        typed = choose(f"{ways}, or Enter to leave it waiting: ", answers)
        if not typed:
            return _Said(None)
        if typed in _ALL:
            _show(review, None)
        if typed in NO:
            return _Said("deny", _ask_reason(signer))
        if typed in YES:
            return _Said("approve")


def _ask_reason(signer: Signer | None) -> str | None:
    """Ask for the reason for a denial. The prompt says first whether a signature is needed."""
    return ask_reason(is_signed=_is_withdrawn(None, signer))


def ask_reason(*, is_signed: bool) -> str | None:
    """Ask for the reason for a denial. With `is_signed`, the prompt says that a signature is needed."""
    how = " and signed" if is_signed else ""
    return ask_now(f"Reason (optional, sent to the agent{how}): ") or None


def _is_withdrawn(reason: str | None, signer: Signer | None) -> bool:
    """Return whether a denial with this reason is a withdrawal, which needs no signature."""
    from aileron.cards.decision_flow import is_withdrawal

    return is_withdrawal(reason, is_signed=signer is not None, has_key=signer is not None and signer.is_open)


def _is_locked_out(state: RunState) -> bool:
    return state.status == "approved" and state.error is not UNSET and state.error.failure_class == "vault_locked"


def note_held(approval_id: str, settled: Settled) -> None:
    """Print until when the run is held and how to cancel it. Print nothing if the run is not held."""
    if settled.held_until:
        when = output.local_time(settled.held_until, "stderr")
        output.note(f"held until {when}\n  cancel: aileron approval cancel {visible(approval_id)}")


def _left_waiting(answer: ConsentAnswer | ConsentsAnswer, asked: tuple[ConsentAnswer, ...], *, as_json: bool) -> int:
    if as_json:
        output.print_json(answer)
    else:
        for question in asked:
            output.write(visible(question.approval_id))
    output.note("nothing changed yet: approval required")
    for question in asked:
        _note_ways(question)
    return UNFINISHED


def _note_ways(asked: ConsentAnswer) -> None:
    approval = visible(asked.approval_id)
    ways = {
        "expires": output.time_left(asked.expires_at, "stderr"),
        "look": f"aileron approval show {approval}",
        "approve": f"aileron approve {approval}",
        "deny": f"aileron deny {approval}",
        "open": f"aileron open approval {approval}",
    }
    output.note("\n".join(f"  {name}: {way}" for name, way in ways.items()))


def _settled(supervisor: Supervisor, name: str, kind: str, how: str, body: Body) -> Settled:
    look = f"aileron approval show {name}"
    wait_s = 0.0 if kind == "action" else _CARRY_OUT_S
    try:
        return supervisor.fetch(Settled, "POST", path_of(*_ROUTE, name, how), body, wait_s=wait_s, look=look)
    except Problem as problem:
        if problem.name == "already_decided":
            raise AlreadyDecided(name, str(problem.details.get("status", "decided"))) from None
        problem.fix = problem.fix or look
        raise


def _meant(supervisor: Supervisor, typed: str) -> list[str]:
    names = [entry.approval_id for entry in supervisor.fetch(ApprovalList, "GET", path_of(*_ROUTE)).approvals]
    return [name for name in names if name.startswith(typed) or name.endswith(typed)]
