"""A person decides: a question found, shown whole, asked about, decided, and followed to its end.

Runs in the commands of a person (`approve`, `deny`, `approval cancel`, and `run` at a terminal), over the operator's socket. The
daemon is trusted; what the question is about was written by an agent, and is shown as such.

Rules
- The digest that is sent is the one of the very answer that was shown. Nothing is computed here.
- The plan and the question go to standard error: standard output has the result and nothing else.
- A part of an id names a question to somebody who then sees it. Where nothing is shown before an approval, the whole id is
  needed: an agent that takes one question back and asks another must not have the second one approved.
- Nothing is sent again: who loses a race is told what the others decided.

Source: docs/reference/cli.md, docs/reference/http-api.md.
Not here: the options (commands/approval.py), the words of a run (run.py).
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

from aileron.cli import output
from aileron.cli.plan import COLUMN, print_plan
from aileron.cli.problem import NOT_FOUND, Problem
from aileron.cli.prompts import ask_now
from aileron.cli.supervisor import Supervisor, path_of
from aileron.cli.visible import visible

__all__ = [
    "UNDER_WAY",
    "Decided",
    "Said",
    "ask_here",
    "ask_reason",
    "ask_yes",
    "cancel",
    "check_waits",
    "decide",
    "find",
    "follow",
    "note_under_way",
    "open_vault",
    "settle",
    "show",
]

UNDER_WAY = ("approved", "running")
"""The states of an approved run that is not over."""
_ROUTE = ("v1", "action-approvals")
_LEAST_PART = 4
"""Characters of an id that name a question, its constant beginning not counted: one in 65,536 for the digits at its end."""
_CONSTANT = "act-"
_YES, _NO = ("y", "yes"), ("n", "no")
_FIRST_WAIT_S = 2.0
"""Long enough for most; what cannot begin at all is told after it."""
_LONGEST_WAIT_S = 60.0
"""Of one request, as the daemon allows."""
_PAUSE_S = 0.2
"""At least, between two looks."""


class Decided(Problem):
    """Somebody has decided it already; `status` is where it is now."""

    def __init__(self, approval_id: str, status: str) -> None:
        super().__init__(
            f"{approval_id} is already {status}",
            exit_code=6,
            name="already_decided",
            fix=f"aileron approval show {approval_id}",
        )
        self.status = status

    def to_json(self) -> dict[str, Any]:
        """With the status as the daemon names it."""
        shown = super().to_json()
        return {"error": {**shown["error"], "details": {"status": self.status}}}


class Said(NamedTuple):
    """What the person at this terminal said to a question; no decision where somebody else has decided already."""

    question: dict[str, Any]
    decision: Literal["approve", "deny"] | None = None
    reason: str | None = None
    can_begin: bool = True


def find(supervisor: Supervisor, typed: str) -> dict[str, Any]:
    """The question with this id, or the one open question whose id begins or ends with it. Problem for none, and for several."""
    if not typed or "/" in typed:  # which would be another route
        raise Problem.usage(f"{typed!r} is not the id of an approval", fix="aileron approval list")
    try:
        return _fetched(supervisor, typed)
    except Problem as problem:
        if problem.exit_code != NOT_FOUND:
            raise
    meant = [] if len(typed.removeprefix(_CONSTANT)) < _LEAST_PART else _meant(supervisor, typed)
    if len(meant) > 1:
        raise Problem.usage(f"{typed!r} could be {' or '.join(meant)}", fix="aileron approval list")
    if not meant:
        raise Problem.missing(f"no approval {typed!r}", fix="aileron approval list")
    return _fetched(supervisor, meant[0])


def check_waits(question: dict[str, Any]) -> None:
    """Return if nobody has decided it yet. Decided, or Problem approval_expired."""
    status, name = str(question.get("status")), str(question.get("approval_id"))
    if status == "expired":
        raise Problem(
            f"the time to decide {name} is over, and nothing ran",
            exit_code=6,
            name="approval_expired",
            fix=f"aileron approval show {name}",
        )
    if status != "pending_approval":
        raise Decided(name, status)


def show(question: dict[str, Any]) -> None:
    """Who asks for what, and exactly what would be done."""
    plan = _plan_of(question)
    output.print_facts(
        [
            ("action", f"{plan.get('action', question.get('action'))} {plan.get('action_version', '')}".strip()),
            ("asked by", question.get("session")),
            ("expires", output.time_left(question.get("expires_at"), "stderr")),
        ],
        "stderr",
        column=COLUMN,
    )
    print_plan(plan, "stderr")
    output.note("")


def ask_yes() -> bool:
    """Whether the person approves what was just shown; anything but a yes is a no."""
    return (ask_now("Approve? [y/N] ") or "").lower() in _YES


def ask_here(supervisor: Supervisor, approval_id: str) -> Said | None:
    """Show a question to the person at this terminal and hear them. None: it is left waiting, or cannot be shown.

    Nothing is decided yet: an interrupt leaves it waiting too.
    """
    try:
        question = find(supervisor, approval_id)
        check_waits(question)
    except Decided as decided:
        _note_other(decided)
        return Said(question)
    except Problem as problem:
        if problem.name == "approval_expired":
            raise
        return None
    output.note(f"{visible(str(question.get('action')))} waits for a person: this is what would be done\n")
    show(question)
    while True:
        typed = ask_now("Approve? [y]es, [n]o, or Enter to leave it waiting: ")
        if not typed:
            return None
        if typed.lower() in _NO:
            return Said(question, "deny", ask_reason())
        if typed.lower() in _YES:
            try:
                return Said(question, "approve", can_begin=open_vault(supervisor, question))
            except Problem as problem:  # a slip in the passphrase is no reason to begin again
                output.note("\n".join(problem.lines()))


def settle(supervisor: Supervisor, said: Said) -> None:
    """Send it. Somebody else's decision that came first is told, and stands. Problem where the time is over."""
    if said.decision is None:
        return
    try:
        decide(supervisor, said.question, said.decision, said.reason)
    except Decided as decided:
        _note_other(decided)


def ask_reason() -> str | None:
    """Why not, in the person's words."""
    return ask_now("Reason (the agent reads it; Enter for none): ") or None


def open_vault(supervisor: Supervisor, question: dict[str, Any]) -> bool:
    """See that what is approved can begin: unlock the vault where a credential is used. False where it stays locked.

    Problem for a wrong passphrase: nothing is decided then.
    """
    steps = _plan_of(question).get("steps") or []
    if not any((step.get("grant") or {}).get("credential") for step in steps):
        return True
    try:
        supervisor.open_vault()
    except Problem as problem:
        if problem.name != "vault_locked":
            raise
        return False
    return True


def decide(
    supervisor: Supervisor, question: dict[str, Any], decision: str, reason: str | None = None
) -> dict[str, Any]:
    """Send the decision about what `question` has shown; the answer.

    Decided if somebody else was first, Problem if it is too late.
    """
    body: dict[str, Any] = {"decision": decision, "digest": question.get("digest")}
    if reason is not None:
        body["reason"] = reason
    return _settled(supervisor, question, "decide", body)


def cancel(supervisor: Supervisor, question: dict[str, Any]) -> dict[str, Any]:
    """Take the question back; as `decide`."""
    return _settled(supervisor, question, "cancel", {})


def follow(supervisor: Supervisor, approval_id: str, wait_s: float) -> dict[str, Any]:
    """What became of it when it is over, when `wait_s` is, or when only a passphrase can make it begin."""
    until = time.monotonic() + wait_s
    longest_s = _FIRST_WAIT_S
    while True:
        asked_at = time.monotonic()
        this_s = max(0.0, min(until - asked_at, longest_s))
        path = f"{path_of(*_ROUTE, approval_id, 'result')}?wait={this_s:.3f}"
        answer: dict[str, Any] = supervisor.ask("GET", path, wait_s=this_s)
        if answer.get("status") not in (*UNDER_WAY, "pending_approval") or _is_locked_out(answer):
            return answer
        if time.monotonic() >= until:
            return answer
        time.sleep(max(0.0, min(_PAUSE_S, until - time.monotonic()) - (time.monotonic() - asked_at)))
        longest_s = _LONGEST_WAIT_S


def note_under_way(answer: dict[str, Any], wait_s: float) -> None:
    """It is approved, and not over: what it waits for, and where to look."""
    status, error = answer.get("status"), answer.get("error")
    if _is_locked_out(answer):
        lines = ["it begins when the vault is unlocked", "  fix: aileron vault unlock"]
    elif status == "approved" and isinstance(error, dict):
        lines = [f"it has not begun yet: {visible(str(error.get('message')))}"]
    else:
        lines = [f"still running after {wait_s:g} s; it goes on"]
    output.note("\n".join([*lines, f"  look: aileron audit show {visible(str(answer.get('audit_id')))}"]))


def _is_locked_out(answer: dict[str, Any]) -> bool:
    error = answer.get("error")
    return answer.get("status") == "approved" and isinstance(error, dict) and error.get("class") == "vault_locked"


def _note_other(decided: Decided) -> None:
    output.note(f"somebody else has decided it meanwhile: {visible(decided.status)}")


def _settled(supervisor: Supervisor, question: dict[str, Any], how: str, body: dict[str, Any]) -> dict[str, Any]:
    name = str(question.get("approval_id"))
    answer = supervisor.send("POST", path_of(*_ROUTE, name, how), body)
    if not answer.is_error:
        settled: dict[str, Any] = answer.body
        return settled
    problem = Problem.of_answer(answer.body)
    if problem.name == "already_decided":
        details = answer.body["error"].get("details") or {}
        raise Decided(name, str(details.get("status", "decided")))
    if problem.fix is None:
        problem.fix = f"aileron approval show {name}"
    raise problem


def _fetched(supervisor: Supervisor, approval_id: str) -> dict[str, Any]:
    found: dict[str, Any] = supervisor.ask("GET", path_of(*_ROUTE, approval_id))
    return {**found, "approval_id": found.get("approval_id", approval_id)}


def _meant(supervisor: Supervisor, typed: str) -> list[str]:
    waiting = supervisor.ask("GET", path_of(*_ROUTE))["approvals"]
    names = [str(entry.get("approval_id")) for entry in waiting]
    return [name for name in names if name.startswith(typed) or name.endswith(typed)]


def _plan_of(question: dict[str, Any]) -> dict[str, Any]:
    plan = question.get("plan")
    return plan if isinstance(plan, dict) else {}
