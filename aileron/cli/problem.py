"""The failure that a command ends with: what happened, why, the command that fixes it, and the exit code.

Runs in commands. All failures have this one form: failures of the daemon and of local work, wrong usage, and a daemon that does
not run. People get three lines on standard error, programs the same as JSON.

Rules
- A failure of the daemon keeps its class. Its exit code comes from the one table in model/failure.py. That module is expensive
  to import, so it is imported only for a failure of the daemon.
- Messages quote agents, connectors and upstreams, so each is shown on one line with hidden characters spelled out.
- A `fix` is our own text. It is never taken from a message that came out of a jail, because the connector could write it.

Source: docs/reference/exit-codes.md. Not here: printing (output.py).

>>> problem = Problem.usage("--wait 'soon' is not a duration", fix="aileron run --help")
>>> problem.exit_code, problem.lines()
(2, ["error: --wait 'soon' is not a duration", '  fix: aileron run --help'])
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from aileron.cli.output import GUTTER, folded, is_terminal, labelled, note, print_json, styled
from aileron.model.json_value import JSONMembers, JSONObject, dict_of, list_of
from aileron.model.visible import visible, visible_lines

if TYPE_CHECKING:
    from aileron.api.failures import ErrorBody
    from aileron.model.failure import AileronError

__all__ = [
    "FAILED",
    "INTEGRITY",
    "INTERRUPTED",
    "NOT_FOUND",
    "OK",
    "UNFINISHED",
    "UNKNOWN",
    "UNREACHABLE",
    "UNREACHED",
    "USAGE",
    "Problem",
    "local_work",
    "parsed",
    "report",
    "tell",
]

_Given = TypeVar("_Given")
_Parsed = TypeVar("_Parsed")
OK = os.EX_OK
FAILED = 1
USAGE = 2
NOT_FOUND = 3
UNREACHED = 7
UNKNOWN = 8
INTEGRITY = 9
UNREACHABLE = os.EX_UNAVAILABLE  # 69, sysexits.h
UNFINISHED = os.EX_TEMPFAIL  # 75
INTERRUPTED = 130  # 128 and SIGINT, as shells count
_MAX_SHOWN = 2000
"""Maximum number of characters of a message that are printed, a screenful; `--json` prints the full message."""

_ID = r"[a-z0-9][a-zA-Z0-9._-]{3,99}"
"""Pattern that an approval's id must match to be part of a command to type."""
_DESTINATION = r"([a-z0-9][a-z0-9.-]{0,252}):[0-9]{1,5}: "
"""Pattern of HOST:PORT at the start of the message about a network failure."""
_FIXES = {
    "vault_locked": "aileron vault unlock",
    "binding_failed": "aileron binding list",
    "hash_mismatch": "aileron connector list",
    "sandbox_unavailable": "aileron doctor",
    "internal_error": "aileron daemon logs",
    "busy": "try again when a run has finished",
    "idempotency_conflict": "use another --idempotency-key",
}
_OF_STATUS = {
    "denied": "approval_denied",
    "expired": "approval_expired",
    "cancelled": "cancelled",
    "unknown": "outcome_unknown",
}
_OURS_IN_A_RUN = {
    ("capability_denied", "address_not_public"),
    ("capability_denied", "plain_http"),
    ("binding_failed", "no_database"),
}
"""Failures of a run, as class and reason, whose messages are written only by the daemon: no connector can report these classes
(executor/endings.py), and no message with these reasons quotes a connector or a service (egress/addresses.py, egress/rules.py,
egress/login.py).
"""
_QUOTED_FIX = r"(?s)(?P<what>.+?)[;:] [^;:`]{0,60}`(?P<command>aileron [\w@:/.=,+~'\[\] -]{1,200})`(?P<rest>[^`'\"]*)"
"""Pattern of a command in a message.

People paste the command, so it has only characters that a shell takes as plain words. A command inside quotation marks does not
match, because quotations contain another party's text.
"""
_LAST_FIX = (
    r"(?s)(?P<what>.+)[:;] (?P<command>aileron [a-z]+(?: [\w@:/.=-]+)*|(?:chmod [0-7][0-5][0-5]|chown [0-9]+)"
    r" (?:/[\w@%+=:,./-]+|'/[^'\n]+')"
    r"|set AILERON_HOME to [a-z ]+|put the real thing in its place|free some space and try again)"
)
"""Pattern of a fix without quotes at the end of a message: a command, a change of a file's owner or mode (files.py),
or an instruction in fixed words.
"""
_ANYBODYS_FIX = "aileron config set egress.ca_file FILE"
"""The fix that is accepted from any message, because it has no variable part."""
_FIX_OF_PHASE = {
    "resolve": "correct the host, or fix name resolution on this machine",
    "connect": "check that the service runs, and its host and port: aileron connector list",
}
"""Fixes for a network error of a run, by the phase of the connection.

The connector may have written the message, but not these words.
"""
_LOOK = "aileron audit show "
"""Start of a command that shows what happened, for failures without a known fix. The command is labelled `look`, not `fix`."""
_FIX_IS_IN_RECORD = {
    "outcome_unknown",
    "capability_denied",
    "resource_limit_exceeded",
    "connector_runtime_error",
    "network_error",
    "external_api_error",
    "approval_denied",
    "approval_expired",
    "cancelled",
}


class Problem(Exception):
    """A failure that ends a command. `name` is its failure class; `error` is the failure as JSON, if the daemon returned it in
    that form.

    `approval` is the pending consent that would allow the change.
    """

    def __init__(
        self,
        what: str,
        *,
        exit_code: int,
        name: str = "invalid_request",
        why: str | None = None,
        fix: str | None = None,
        log: str | None = None,
        approval: str | None = None,
        error: JSONMembers | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.exit_code = exit_code
        self.name = name
        self.why = why
        self.fix = fix
        self.log = log
        self.approval = approval
        self._error = error

    @classmethod
    def usage(cls, what: str, *, why: str | None = None, fix: str | None = None) -> Problem:
        """Return a problem for a command that was called wrongly."""
        return cls(what, exit_code=USAGE, why=why, fix=fix)

    @classmethod
    def missing(cls, what: str, *, why: str | None = None, fix: str | None = None) -> Problem:
        """Return a problem for something that does not exist."""
        return cls(what, exit_code=NOT_FOUND, name="not_found", why=why, fix=fix)

    @classmethod
    def unreachable(cls, why: str, *, fix: str | None = None) -> Problem:
        """Return a problem for a daemon that does not run or respond.

        The default `fix` is the fix in `why`, or else the daemon's log.
        """
        told_fix = None
        if fix is None:
            why, told_fix = message_and_fix(why)
        what = "the daemon cannot be reached"
        fix = fix or told_fix or "aileron daemon logs"
        return cls(what, exit_code=UNREACHABLE, name="daemon_unreachable", why=why, fix=fix)

    @classmethod
    def lost(cls, why: str, *, look: str) -> Problem:
        """Return a problem for a request without a response, which the daemon may have executed.

        `look` is the command that shows whether it did.
        """
        what = "the daemon was asked but did not answer, so it is unknown whether this was done"
        error = {
            "class": "outcome_unknown",
            "message": what,
            "retriable": False,
            "boundary": "runtime",
            "audit_id": None,
            "details": {},
        }
        return cls(what, exit_code=UNKNOWN, name="outcome_unknown", why=why, fix=look, error=error)

    @classmethod
    def of_answer(cls, body: Any, *, action: str | None = None, again: str | None = None) -> Problem:
        """Return a problem for the daemon's response `{"error": …}`.

        `action` is the action to run, `again` the command that started the run.
        """
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("message"), str):
            return cls(
                "the daemon sent an error that this command cannot read",
                exit_code=FAILED,
                name="internal_error",
                why="the daemon and this command may have different versions",
                fix="aileron daemon restart",
            )
        return cls._of(error, action, again)

    @classmethod
    def of_error(cls, error: ErrorBody) -> Problem:
        """Return a problem for a failure that is part of another response."""
        import msgspec  # `aileron run` does not need it

        return cls._of(msgspec.to_builtins(error), None)

    @classmethod
    def of_state(cls, state: JSONMembers) -> Problem:
        """Return a problem for a run that did not complete, as `GET …/result` and `GET /v1/runs/{id}` report it."""
        if "error" in state:
            return cls.of_answer(state)
        status, reason = str(state.get("status")), state.get("reason")
        return cls._of(
            {
                "class": _OF_STATUS.get(status, "internal_error"),
                "message": f"the run ended as {status!r}" + (f": {reason}" if reason else ""),
                "retriable": False,
                "boundary": "runtime",
                "audit_id": state.get("audit_id"),
                "details": {"reason": reason} if reason else {},
            },
            None,
        )

    @classmethod
    def of_failure(cls, failed: AileronError) -> Problem:
        """Return a problem for a failure of local work: building, validating, verifying."""
        failure = failed.failure
        return cls._of(
            {
                "class": failure.failure_class.value,
                "message": failure.message,
                "retriable": failure.retriable,
                "boundary": failure.boundary.value,
                "audit_id": None,
                "details": dict(failure.details),
            },
            None,
        )

    @classmethod
    def _of(cls, error: JSONMembers, action: str | None, again: str | None = None) -> Problem:
        name = str(error.get("class"))
        message, details = str(error["message"]), dict_of(error.get("details"))
        # Otherwise a connector may have written the message; and a person's reason is for the party that asked, not for a
        # shell.
        is_ours = ("step" not in details and name != "approval_denied") or _is_ours_in_a_run(name, details)
        what, told_fix = message_and_fix(message)
        if not is_ours and told_fix != _ANYBODYS_FIX:
            what, told_fix = message, None
        log = details.get("log")
        approval = details.get("approval_id") if name == "consent_required" and is_ours else None
        approval = approval if isinstance(approval, str) and re.fullmatch(_ID, approval) else None
        agree = None if approval is None else f"aileron approve {approval}"
        return cls(
            what,
            exit_code=_exit_code(name),
            name=name,
            why=_why(name, error, details),
            fix=agree
            or (_choice(details, again) or _look_up(name, message, details) if is_ours else None)
            or told_fix
            or _usual_fix(name, error, action),
            log=log if isinstance(log, str) and log else None,
            approval=approval,
            error=error,
        )

    @property
    def details(self) -> JSONObject:
        """Details of the failure in addition to its message; empty if there are none."""
        return {} if self._error is None else dict_of(self._error.get("details"))

    def to_json(self) -> dict[str, object]:
        """Return `{"error": …}` as the daemon writes it, with `why` and `fix` if they are known."""
        error = self._error or {
            "class": self.name,
            "message": self.what,
            "retriable": False,
            "boundary": "user",
            "audit_id": None,
            "details": {},
        }
        added = {"why": self.why, "fix": self.fix}
        return {"error": {**error, **{name: text for name, text in added.items() if text is not None}}}

    def lines(self) -> list[str]:
        """Return harmless lines for a person: `error: …`, `  why: …`, `  fix: …` or `  look: …`, and the
        lines of a log, each after a vertical bar.
        """
        lines = _labelled("error: ", _shown(self.what))
        if self.why:
            lines += _labelled("  why: ", _shown(self.why))
        if self.log:
            lines += [
                "  log: last output of the connector",
                *(GUTTER + line for line in visible_lines(self.log.rstrip())),
            ]
        if self.fix:
            label = "  look: " if self.fix.startswith(_LOOK) else "  fix: "
            lines += labelled(label, _shown(self.fix)) if is_terminal("stderr") else [f"{label}{_shown(self.fix)}"]
        return lines


@contextlib.contextmanager
def local_work() -> Iterator[None]:
    """Convert failures of local work, in which the daemon has no part, to a Problem."""
    from aileron.model.failure import AileronError

    try:
        yield
    except AileronError as failed:
        raise Problem.of_failure(failed) from failed


def parsed(option: str, parse: Callable[[_Given], _Parsed], value: _Given, *, fix: str | None = None) -> _Parsed:
    """Return what `parse` makes of an option's value.

    Raises Problem(usage) that begins with `option` if `parse` raises ValueError.
    """
    try:
        return parse(value)
    except ValueError as error:
        raise Problem.usage(f"{option} {error}", fix=fix) from None


def _exit_code(name: str) -> int:
    from aileron.model.failure import FailureClass

    try:
        return FailureClass(name).exit_code
    except ValueError:  # a class of a newer daemon: report only that it failed
        return FAILED


def message_and_fix(message: str) -> tuple[str, str | None]:
    """Split a message of Aileron from the fix at its end: `…; run `aileron vault unlock`` or `…: aileron action enable x`."""
    quoted = re.fullmatch(_QUOTED_FIX, message)
    if quoted is not None:
        return (message if quoted["rest"] else quoted["what"]), quoted["command"]
    last = re.fullmatch(_LAST_FIX, message)
    return (message, None) if last is None else (last["what"], last["command"])


def _why(name: str, error: JSONMembers, details: JSONMembers) -> str | None:
    """Return the reason for the failure; None if it is not known, or if the message already contains it."""
    match name:
        case "capability_denied" if error.get("requested"):
            requested, granted = str(error["requested"]), [str(entry) for entry in list_of(error.get("granted"))]
            if requested in granted:
                return None
            who = error.get("connector", "the connector")
            return f"{who} requested {requested}; granted: {', '.join(granted) or 'nothing'}"
        case "hash_mismatch" if "expected" in details and "actual" in details:
            return f"expected {details['expected']}, found {details['actual']}"
        case "connector_runtime_error" if "connector_class" in details:
            return f"the connector's error class is {details['connector_class']!r}"
        case "external_api_error" if "status" in details and str(details["status"]) not in str(error["message"]):
            return f"the service answered {details['status']}"
        case "outcome_unknown":
            return "it was interrupted after it began, so it may or may not have taken effect"
        case _:
            return None


def _choice(details: JSONMembers, again: str | None) -> str | None:
    choices = details.get("choices")
    return f"{again} --as {choices[0]}" if again and isinstance(choices, list) and choices else None


def _look_up(name: str, message: str, details: JSONMembers) -> str | None:
    """Return a fix for a host name that was not resolved: a command that shows whether the name or the network is at fault."""
    host = re.match(_DESTINATION, message) if (name, details.get("phase")) == ("network_error", "resolve") else None
    return (
        None
        if host is None
        else f"correct the name, or fix name resolution on this machine until this works: getent ahosts {host[1]}"
    )


def _is_ours_in_a_run(name: str, details: JSONMembers) -> bool:
    reason = details.get("reason")
    return isinstance(reason, str) and (name, reason) in _OURS_IN_A_RUN


def _usual_fix(name: str, error: JSONMembers, action: str | None) -> str | None:
    if name == "bad_input" and action is not None:
        return f"aileron action show {action}"
    if name == "network_error" and (fix := _fix_of_phase(error.get("details"))) is not None:
        return fix
    if name in _FIX_IS_IN_RECORD and error.get("audit_id"):
        return f"aileron audit show {error['audit_id']}"
    if name == "hash_mismatch" and "file" in dict_of(error.get("details")):
        return None  # the vault or a key is damaged, not a connector: the message has the fix
    return None if "`aileron " in str(error["message"]) else _FIXES.get(name)  # the message has the fix


def _fix_of_phase(details: Any) -> str | None:
    """Return the fix for the phase in which a connection failed.

    None for a phase without a known fix. Also None if the details have a `reason` other than `refused`, because a login or a
    certificate is then the cause.
    """
    is_way = isinstance(details, dict) and details.get("reason", "refused") == "refused"
    phase = details.get("phase") if is_way else None
    return _FIX_OF_PHASE.get(phase) if isinstance(phase, str) else None


def _labelled(label: str, text: str) -> list[str]:
    lines = folded(text, len(label)) if is_terminal("stderr") else [text]
    return [label + lines[0], *(" " * len(label) + line for line in lines[1:])]


def _shown(text: str) -> str:
    more = len(text) - _MAX_SHOWN
    return visible(text) if more <= 0 else f"{visible(text[:_MAX_SHOWN])}… ({more} more characters; use --json for all)"


def report(problem: Problem, *, as_json: bool) -> int:
    """Report a problem to a person and, with --json, to a program. Return the exit code."""
    if as_json:
        print_json(problem.to_json())
    return tell(problem)


def tell(problem: Problem) -> int:
    """Report a problem to a person. Return the exit code."""
    first, *rest = problem.lines()
    note("\n".join([_marked(first), *rest]))
    return problem.exit_code


def _marked(line: str) -> str:
    word, separator, rest = line.partition(":")
    return styled(word, "red", "stderr") + separator + rest
