"""`aileron run`: runs one action and prints the action's result on standard output.

This is the hot command, because agents call it. So it imports neither typer nor rich nor msgspec unless something fails
(`aileron.__main__` comes here before it imports any of them), and it parses its options by hand. Its options are listed in
`OPTIONS`; commands/run.py declares the same options.

Rules
- It uses the agents' socket, because a run needs no more. Only a passphrase given beforehand, and decisions of the person at the
  terminal, go to the operator's.
- The first wait is short, so that a person who interrupts a longer run can be told its id. An interrupt never cancels a run.
- It never waits for a person who is not at this terminal: exit 75 at once, with the daemon's words and the ways to decide. A
  person who is there is asked (decision_dialogue.py, imported only then), and the time that they take does not count against
  --wait.

Source: docs/reference/cli.md, docs/reference/exit-codes.md. Not here: the other commands (app.py), the argument types
(arguments.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from aileron.cli import output
from aileron.cli.arguments import from_json, pairs_of, typed
from aileron.cli.duration import seconds
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem, report, tell
from aileron.cli.prompts import can_ask, may_unlock, passphrase_from
from aileron.cli.status_line import StatusLine
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.json_value import JSON, JSONObject
from aileron.model.visible import visible

__all__ = [
    "DEFAULT_WAIT",
    "OPTIONS",
    "Option",
    "RunCommand",
    "build",
    "main",
    "note_edited",
    "parse",
    "perform",
]

DEFAULT_WAIT = "25s"
_FIRST_WAIT_S = 2.0
"""Maximum seconds that the first request waits, within which most runs end.

A longer run costs one more request, but its id is known meanwhile.
"""
_FIRST_SHOWN_S = 0.5
"""Maximum seconds that the first request waits at a terminal. It is short, because a run's id must be known before its
connector's reports can be requested.
"""
_MAX_TYPED = 1000
"""Maximum number of characters of a command that is printed to be typed or copied.

A longer command contains a file's content and fits no terminal line.
"""
_MOST_MENDED = 8
"""Maximum number of obstacles that are removed for one run: a consent, and one or two credentials for each connector of the
action.
"""
_LONGEST_WAIT_S = 60.0
"""Maximum seconds that one request waits for a run to end, as allowed by the daemon."""
_HELP = "aileron run --help"


class Option(NamedTuple):
    """An option of `aileron run`. An option without a metavar is a flag."""

    flag: str
    metavar: str | None
    help: str


OPTIONS = (
    Option("--args", "JSON|@FILE|-", "Arguments as a JSON object, from the command line, a file or standard input."),
    Option("--json", None, "Print the whole answer as JSON, including failures."),
    Option("--wait", "DURATION", f"How long to wait for the run to finish: 500ms, 90s, 5m. [default: {DEFAULT_WAIT}]"),
    Option("--dry-run", None, "Show what would be done, without doing it."),
    Option(
        "--idempotency-key", "KEY", "Run at most once for KEY within 24 hours. A repeated call returns the same run."
    ),
    Option("--again", "RUN", "Run again what RUN was, whose outcome is unknown, after you have checked the service."),
    Option("--as", "BINDING", "Credential to use if several fit: KIND/SERVICE/IDENTITY, or IDENTITY."),
    Option("--passphrase-file", "FILE", "Unlock the vault, if it is locked, with the passphrase in FILE."),
)


class RunCommand(NamedTuple):
    """The parsed request for a run. The argument values are still text, because only the action declares their types."""

    action: str
    pairs: dict[str, str]
    args: str | None = None
    json: bool = False
    wait_s: float = 25.0
    dry_run: bool = False
    idempotency_key: str | None = None
    again: str | None = None
    binding: str | None = None
    passphrase_file: str | None = None

    @property
    def command(self) -> str:
        """The request as a command to type, with all arguments quoted for a shell, but without a credential specified by --as."""
        import shlex  # only when something fails

        words = ["aileron", "run", self.action, *(f"{name}={text}" for name, text in self.pairs.items())]
        words += [] if self.args is None else ["--args", self.args]
        words += ["--dry-run"] if self.dry_run else []
        words += [] if self.idempotency_key is None else ["--idempotency-key", self.idempotency_key]
        words += [] if self.again is None else ["--again", self.again]
        typed = shlex.join(words)
        is_typed = typed.isprintable() and len(typed) <= _MAX_TYPED
        return typed if is_typed else f"aileron run {self.action} … (with the same arguments)"


def main(words: Sequence[str]) -> int:
    """Run `aileron run WORDS…` and return its exit code."""
    as_json = "--json" in words
    try:
        asked = parse(words)
        as_json = asked.json
        return perform(asked)
    except Problem as problem:
        return report(problem, as_json=as_json)


def parse(words: Sequence[str]) -> RunCommand:
    """Parse the words into options, the action's name and its arguments, in any order. Raises Problem for anything else."""
    options = {option.flag: option for option in OPTIONS}
    given: dict[str, str] = {}
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            plain += rest
        elif not word.startswith("-") or word == "-":
            plain.append(word)
        else:
            flag, has_value, value = word.partition("=")
            option = options.get(flag) or _unknown(flag, list(options))
            if flag in given:
                raise Problem.usage(f"{flag} is given twice", fix=_HELP)
            if option.metavar is None:
                if has_value:
                    raise Problem.usage(f"{flag} takes no value", fix=_HELP)
                given[flag] = ""
            else:
                given[flag] = value if has_value else _value_after(option, next(rest, None))
    if not plain:
        raise Problem.usage("no action given", fix="aileron action list")
    return build(plain[0], plain[1:], given)


def build(action: str, words: Sequence[str], given: dict[str, str]) -> RunCommand:
    """Build the request from the words, and from `given`, the options' values by flag. Raises Problem for an invalid
    value.
    """
    if not action or "=" in action:
        raise Problem.usage(f"give the name of the action first, not {action!r}", fix="aileron action list")
    key = given.get("--idempotency-key")
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        raise Problem.usage("--idempotency-key must be printable ASCII", fix=_HELP)
    return RunCommand(
        action=action,
        pairs=pairs_of(words),
        args=given.get("--args"),
        json="--json" in given,
        wait_s=seconds(given.get("--wait", DEFAULT_WAIT), command="run"),
        dry_run="--dry-run" in given,
        idempotency_key=key,
        again=given.get("--again"),
        binding=given.get("--as"),
        passphrase_file=given.get("--passphrase-file"),
    )


def perform(asked: RunCommand) -> int:
    """Run the action and show the result. Return the exit code. Raises Problem for a failure."""
    seen: list[JSON] = []
    while len(seen) < _MOST_MENDED:
        try:
            return _perform(asked)
        except Problem as problem:
            lack = "consent" if problem.approval is not None else problem.details
            if asked.json or not can_ask() or lack in seen:  # do not ask again for what did not help
                raise
            seen.append(lack)
            again = _mended_here(asked, problem)
        if isinstance(again, int):
            return again
        asked = again
    return _perform(asked)


def _mended_here(asked: RunCommand, problem: Problem) -> RunCommand | int:
    """Let the person at this terminal provide a missing consent or credential. Return the run to start then, or an exit code."""
    if problem.approval is not None:
        code = _approved_here(asked, problem)
        return asked if code == OK else code
    if problem.name == "binding_required" and "step" not in problem.details:  # with a step, part of the run was done
        from aileron.cli import bind

        return bind.mended(asked, problem)
    if problem.name == "vault_locked" and "step" not in problem.details and may_unlock():
        supervisor = Supervisor(passphrase=passphrase_from(asked.passphrase_file))
        if supervisor.vault_state().exists:
            supervisor.open_vault()
            return asked
    raise problem


def _perform(asked: RunCommand) -> int:
    # It does not ask by itself: its status line occupies the line of a prompt.
    supervisor = Supervisor(operator=False, passphrase=passphrase_from(asked.passphrase_file), asks=False)
    asked = _with_whole_run(asked)
    run_id: str | None = None
    try:
        args = {} if asked.args is None else from_json(asked.args)  # it may be typed: nothing else is written meanwhile
        with StatusLine(asked.action, wanted=not asked.json) as waiting:
            body: JSONObject = {
                "args": _with_pairs(args, asked, supervisor),
                "dry_run": asked.dry_run,
                "binding": asked.binding,
                "again": asked.again,
            }
            until = time.monotonic() + asked.wait_s
            answer = _first_answer(asked, supervisor, body, _FIRST_SHOWN_S if waiting.is_shown else _FIRST_WAIT_S)
            while answer.get("status") in ("running", "approved"):
                run_id = str(answer.get("run_id") or run_id)
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                answer = _next_answer(supervisor, run_id, min(left_s, _LONGEST_WAIT_S), answer, waiting)
    except KeyboardInterrupt:
        return _interrupted(asked, run_id)
    if answer.get("status") in ("running", "approved"):
        return _still_running(asked, str(run_id), answer)
    if answer.get("status") == "pending_approval" and not asked.json and can_ask():
        return _decided_here(asked, answer, max(0.0, until - time.monotonic()))
    return _show(asked, answer)


def _with_whole_run(asked: RunCommand) -> RunCommand:
    """Expand the end of an id in `--again` to the run's complete id, if a person is at the terminal."""
    if asked.again is None or output.WHOLE_ID.fullmatch(asked.again) or not can_ask():
        return asked
    from aileron.cli.ids import run_meant

    return asked._replace(again=run_meant(Supervisor(), asked.again))


def _with_pairs(args: JSONObject, asked: RunCommand, supervisor: Supervisor) -> JSONObject:
    """Return `args` with the arguments that were given as KEY=VALUE. Raises Problem for an argument that is given both ways."""
    if asked.pairs:
        action = supervisor.ask("GET", path_of("v1", "actions", asked.action))
        types = {str(spec.get("name")): str(spec.get("type")) for spec in action.get("inputs", [])}
        for name, value in typed(asked.pairs, types, action=asked.action).items():
            if name in args:
                raise Problem.usage(f"{name!r} is given both in --args and as {name}=…", fix=_HELP)
            args[name] = value
    return args


def _first_answer(asked: RunCommand, supervisor: Supervisor, body: JSONObject, most_s: float) -> JSONObject:
    wait_s = min(asked.wait_s, most_s)
    key = asked.idempotency_key or os.urandom(16).hex()  # so that the request can be repeated if no answer comes
    path = f"{path_of('v1', 'actions', asked.action, 'run')}?wait={wait_s:.3f}"
    look = None if asked.dry_run else f"aileron audit list --action {asked.action}"
    try:
        answer = supervisor.send("POST", path, body, wait_s=wait_s, headers={"Idempotency-Key": key}, look=look)
    except Problem as problem:
        if problem.name == "outcome_unknown":
            problem.why = f"{problem.why}; it is safe to repeat the command with --idempotency-key {key}"
        raise
    if answer.is_error:
        failed = Problem.of_answer(answer.body, action=asked.action, again=asked.command)
        supervisor.suggest(failed, path)
        raise failed
    found: JSONObject = answer.body
    return found


def _next_answer(
    supervisor: Supervisor, run_id: str, wait_s: float, last: JSONObject, waiting: StatusLine
) -> JSONObject:
    asked_at = time.monotonic()
    path = f"{path_of('v1', 'runs', run_id)}?wait={wait_s:.3f}{waiting.query}"
    answer: JSONObject = supervisor.watch(path, wait_s=wait_s, look=f"aileron audit show {run_id}")
    if "error" in answer:
        raise Problem.of_answer(answer)
    if answer.get("status") in ("running", "approved"):
        if waiting.is_news(answer):  # the daemon limits these to ten a second
            return {**last, "status": answer["status"], "run_id": run_id}
        # Not every answer comes at the end of the wait: a run that another process resumed is only looked up.
        poll_ms = last.get("poll_after_ms")
        pause_s = max(0.05, min(poll_ms / 1000 if isinstance(poll_ms, int | float) else 1.0, 5.0))
        time.sleep(max(0.0, min(pause_s, wait_s) - (time.monotonic() - asked_at)))
        answer = {**last, "status": answer["status"], "run_id": run_id}
    return answer


def _show(asked: RunCommand, answer: JSONObject) -> int:
    status = answer.get("status", "completed")
    if "plan" in answer:
        return _show_plan(asked, answer)
    answer = _with_the_persons_part(asked, answer)
    if status == "pending_approval":
        return _waits_for_a_person(asked, answer)
    if status != "completed":
        raise Problem.of_state(answer)
    if asked.json:
        kept = {name: answer[name] for name in ("executed_arguments",) if name in answer}
        output.print_json({"audit_id": answer.get("audit_id"), "result": answer.get("result"), **kept})
    else:
        output.print_result(answer.get("result"))
    note_edited(answer)
    return OK


def note_edited(answer: JSONObject) -> None:
    """Print the arguments of the run if a person changed them before it ran."""
    executed = answer.get("executed_arguments")
    if isinstance(executed, dict):
        from aileron.cards.plan import argument_lines

        output.note("a person changed the arguments; it ran with")
        output.print_facts([("", argument_lines(executed))], "stderr")


def _waits_for_a_person(asked: RunCommand, answer: JSONObject) -> int:
    if asked.json:
        output.print_json(answer)
    approval, message = answer.get("approval_id"), answer.get("message")
    lines = [f"{visible(asked.action)} is waiting for approval"]
    if message and not output.is_terminal("stderr"):  # the message is for an agent, and repeats the lines below
        lines.append(f"  {visible(str(message))}")
    if question := answer.get("question"):
        lines.append(f"  question from the person: {visible(str(question))}")
    ways = {
        "expires": output.time_left(answer["expires_at"], "stderr") if answer.get("expires_at") else None,
        "look": f"aileron approval show {approval}",
        "approve": f"aileron approve {approval}",
        "deny": f"aileron deny {approval}",
        "review": answer.get("review_url"),
        "open": f"aileron open approval {approval}",
    }
    lines += [f"  {name}: {visible(str(way))}" for name, way in ways.items() if way]
    output.note("\n".join(lines))
    return UNFINISHED


def _with_the_persons_part(asked: RunCommand, answer: JSONObject) -> JSONObject:
    """Add to the response a person's question about the run and the arguments that the person approved, if the caller
    can repeat the request with its idempotency key.
    """
    if asked.idempotency_key is None or "audit_id" not in answer:
        return answer
    found = Supervisor(operator=False).ask("GET", path_of("v1", "runs", str(answer["audit_id"])))
    return {**answer, **{name: found[name] for name in ("question", "executed_arguments") if name in found}}


def _decided_here(asked: RunCommand, answer: JSONObject, left_s: float) -> int:
    """Let the person at this terminal decide, then continue as for any run.

    The remaining time of --wait starts after the decision.
    """
    from aileron.cli import decision_dialogue

    operator = Supervisor(passphrase=passphrase_from(asked.passphrase_file))
    approval, run_id = str(answer.get("approval_id")), str(answer.get("audit_id"))
    try:
        dialogue = decision_dialogue.Dialogue(operator, approval)
        code = dialogue.settle_here()
    except KeyboardInterrupt:
        output.note("\ninterrupted; not decided")
        code = INTERRUPTED
    if code != OK:
        if code in (UNFINISHED, INTERRUPTED):
            _waits_for_a_person(asked, answer)
        if code == INTERRUPTED:
            output.note(f"  withdraw: aileron approval cancel {visible(approval)}")
        return code
    try:
        with StatusLine(asked.action) as waiting:
            state = decision_dialogue.follow(operator, approval, left_s if dialogue.can_begin else 0.0, waiting)
    except KeyboardInterrupt:
        return _interrupted(asked, run_id)
    if state.status in decision_dialogue.UNDER_WAY:
        decision_dialogue.note_under_way(state, left_s)
        return UNFINISHED
    import msgspec  # a run that asks no person does not need it

    return _show(asked, msgspec.to_builtins(state))


def _approved_here(asked: RunCommand, problem: Problem) -> int:
    """Ask the person at this terminal for the consent that the action needs. Return 0 if the run may be tried again."""
    from aileron.cli import decision_dialogue

    tell(problem)
    output.note("")
    operator = Supervisor(passphrase=passphrase_from(asked.passphrase_file))
    code = decision_dialogue.Dialogue(operator, str(problem.approval)).settle_here()
    return problem.exit_code if code == UNFINISHED else code


def _still_running(asked: RunCommand, run_id: str, answer: JSONObject) -> int:
    if asked.json:
        output.print_json({**answer, "run_id": run_id})
    output.note(
        f"still running after {asked.wait_s:g} s; it continues in the background\n  look: aileron audit "
        f"show {visible(run_id)}"
    )
    return UNFINISHED


def _interrupted(asked: RunCommand, run_id: str | None) -> int:
    look = f"audit list --action {asked.action}" if run_id is None else f"audit show {run_id}"
    output.note(f"\ninterrupted; a run that has started continues\n  look: aileron {visible(look)}")
    return INTERRUPTED


def _show_plan(asked: RunCommand, answer: JSONObject) -> int:
    if asked.json:
        output.print_json(answer)
        return OK
    from aileron.cli.plan import COLUMN, print_plan
    from aileron.cli.supervisor import read
    from aileron.model.plan import Plan

    plan = read(Plan, answer["plan"])
    output.print_facts(
        [
            ("action", f"{plan.action} {plan.action_version}"),
            ("approval", "required before it runs" if plan.approval.required else "not required"),
            ("digest", plan.digest),
        ],
        column=COLUMN,
    )
    print_plan(plan)
    output.note("dry run: nothing was done")
    return OK


def _value_after(option: Option, word: str | None) -> str:
    if word is None:
        raise Problem.usage(f"{option.flag} needs a value: {option.metavar}", fix=_HELP)
    return word


def _unknown(flag: str, known: list[str]) -> Option:
    from aileron.cli.near import did_you_mean

    why, fix = did_you_mean(flag, known) or ("write the action's arguments as KEY=VALUE", None)
    raise Problem.usage(f"no such option: {flag}", why=why, fix=fix or _HELP)
