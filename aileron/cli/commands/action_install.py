"""`aileron action`: commands that install, change and resume actions. The other commands for actions are in action.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from aileron.api.actions import (
    ActionResumed,
    AddAction,
    AddedAction,
    ResumeAction,
)
from aileron.api.approvals import ConsentsAnswer
from aileron.api.fetches import Fetch, FetchRequest, ReadSuite, SuiteRead
from aileron.cli import output
from aileron.cli.commands.action import Name
from aileron.cli.commands.done import tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.own_files import text_of
from aileron.cli.problem import OK, UNFINISHED, Problem, report
from aileron.cli.prompts import edit_text, passphrase_from
from aileron.cli.published import bound_connectors, exit_of, fetched, given_up, installed, is_published, resolved
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.consent import ConnectorConsent, InstallationConsent
from aileron.model.visible import visible

if TYPE_CHECKING:
    pass

__all__ = ["add", "add_suite", "diff", "resume", "update"]


_LOOK_S = 60.0
"""Seconds to wait for a forge to return a file, and perhaps the newest release."""


def add(
    targets: Annotated[
        list[str],
        Argument(
            metavar="NAME@VERSION|FILE|DIR...",
            help="Published action, your own action file, or a directory of action files.",
        ),
    ],
    force: Annotated[bool, Option("--force", help="Replace an installed action of the same name.")] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Install actions.

    For a published action, Aileron fetches it and the connectors it is pinned to, shows them, and asks before it installs them
    together. In your own file, a placeholder hash is replaced with that of the one installed connector of that name and version.
    If decisions are signed, the approver must sign at a terminal.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    every = [source for target in targets for source in ([target] if is_published(target) else _files_of(Path(target)))]
    if len(every) == 1:
        raise Exit(_add_one(supervisor, every[0], force=force, yes=yes, as_json=as_json))
    told = _Together()
    codes = []
    for source in every:
        try:
            codes.append(_add_one(supervisor, source, force=force, yes=yes, as_json=as_json, tell=told.tell))
        except Problem as problem:  # the others are still installed
            codes.append(problem.exit_code if told.is_known(problem) else report(problem, as_json=as_json))
    if not as_json:
        told.finish(sum(code == OK for code in codes), len(codes))
    raise Exit(exit_of(codes))


class _Together:
    """A collector of reports about several actions: what they need, or why they cannot be installed. Each report is
    printed once.
    """

    def __init__(self) -> None:
        self._needs: dict[str, None] = {}
        self._problems: set[tuple[str, str | None]] = set()

    def tell(self, result: Any) -> None:
        """Print the name of an installed action, and store its needs for the final report."""
        if not isinstance(result, AddedAction):
            tell_done(result)
            return
        output.write(visible(result.name))
        self._needs |= dict.fromkeys(result.needs or [])

    def is_known(self, problem: Problem) -> bool:
        """Return whether an earlier problem was the same apart from the text before its colon, and remember this
        problem.
        """
        key = (problem.what.partition(":")[2] or problem.what, problem.why)
        known = key in self._problems
        self._problems.add(key)
        return known

    def finish(self, done: int, of: int) -> None:
        """Print how many of the actions were installed (`done` of `of`), and what the installed actions still need."""
        output.note(f"{done} of {of} installed")
        for need in self._needs:
            output.note(f"needed before they can run: {visible(need)}")


def _add_one(
    supervisor: Supervisor,
    target: str | Path,
    *,
    force: bool,
    yes: bool,
    as_json: bool,
    tell: Callable[[Any], None] = tell_done,
) -> int:
    if isinstance(target, str):
        return _add_published(supervisor, target, force=force, yes=yes, as_json=as_json)
    asked = AddAction(text=text_of(target), file=str(target), replace=force)
    answer = supervisor.change(AddedAction, "POST", "/v1/actions", asked)
    return carry_through(supervisor, answer, tell, yes=yes, as_json=as_json)


def _files_of(path: Path) -> list[str | Path]:
    """Return the action file at `path`, or the action files in the directory at `path`, which are NAME/action.md as in
    repositories, or NAME.md.

    Raises Problem(usage) if there are none.
    """
    if not path.is_dir():
        return [path]
    top = path / "actions" if (path / "actions").is_dir() else path
    found: list[str | Path] = [*sorted(top.glob("*/action.md")), *sorted(top.glob("*.md"))]
    if not found:
        raise Problem.usage(f"{path} has no action files", fix="name a file, or a directory with NAME/action.md in it")
    return found


def _add_published(supervisor: Supervisor, name: str, *, force: bool, yes: bool, as_json: bool) -> int:
    job = fetched(supervisor, FetchRequest(what="action", name=name, replace=force))
    if job.consent is None:
        given_up(supervisor, job)
        output.note(f"{visible(name)} is already installed, without changes")
        return OK
    again = f"aileron action add {name}{' --force' if force else ''}"
    code = installed(supervisor, job, again=again, yes=yes, as_json=as_json)
    if code == OK:
        note_unbound(supervisor, job)
    return code


def add_suite(
    source: Annotated[
        str,
        Argument(
            metavar="SOURCE", help="Published suite (SCHEME://OWNER/REPOSITORY/FILE@REF), or path of your own file."
        ),
    ],
    force: Annotated[bool, Option("--force", help="Replace installed actions of the same names.")] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Install every action of a suite.

    If one action fails, the others are still installed. A summary lists the actions that failed.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    asked = ReadSuite(source=source) if is_published(source) else ReadSuite(text=text_of(Path(source)), file=source)
    suite = supervisor.fetch(SuiteRead, "POST", "/v1/suites", asked, wait_s=_LOOK_S)
    at = f" at {suite.ref}" if suite.ref else ""
    output.note(visible(f"{suite.name}{at}: {suite.description}"))
    codes: dict[str, int] = {}
    why: dict[str, str] = {}
    for name in suite.actions:
        output.note(f"\n{visible(name)}")
        try:
            codes[name] = _add_published(supervisor, name, force=force, yes=yes, as_json=False)
            why[name] = "waiting for approval" if codes[name] == UNFINISHED else "denied by you"
        except Problem as problem:
            codes[name], why[name] = report(problem, as_json=False), problem.what
    done = sum(code == OK for code in codes.values())
    output.note(f"\n{done} of {len(codes)} installed")
    for name, code in codes.items():
        if code != OK:
            output.note(visible(f"not installed: {name}: {why[name]}"))
    raise Exit(exit_of(list(codes.values())))


def update(
    name: Name,
    version: Annotated[
        str | None,
        Option("--version", metavar="VERSION", help="Update to VERSION, older or newer, instead of the newest."),
    ] = None,
    prerelease: Annotated[bool, Option("--include-prerelease", help="Include prerelease versions.")] = False,
    theirs: Annotated[bool, Option("--theirs", help="Discard your own edits and use the published text.")] = False,
    edit: Annotated[bool, Option("--edit", help="Edit the new text in $EDITOR before it is installed.")] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Update an action and the connectors it is pinned to.

    Your own edits are kept. Aileron shows what would change and asks before it changes anything.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    asked = FetchRequest(what="update", name=name, version=version, prerelease=prerelease, theirs=theirs)
    job = fetched(supervisor, asked)
    if not job.difference:
        given_up(supervisor, job)
        _tell_unchanged(job, name, version)
        return
    print_difference(job, "stderr")
    if edit or job.conflicts:
        try:
            job = resolved(supervisor, job, _edited(job, name))
        except BaseException:
            given_up(supervisor, job)
            raise
    options = [
        *([] if version is None else ["--version", version]),
        *(["--include-prerelease"] if prerelease else []),
        *(["--theirs"] if theirs else []),
    ]
    again = " ".join(["aileron action update", name, *options])
    raise Exit(installed(supervisor, job, again=again, yes=yes, as_json=as_json))


def diff(
    name: Name,
    version: Annotated[
        str | None, Option("--version", metavar="VERSION", help="Compare with VERSION instead of the newest.")
    ] = None,
    prerelease: Annotated[bool, Option("--include-prerelease", help="Include prerelease versions.")] = False,
    theirs: Annotated[bool, Option("--theirs", help="Compare as if your own edits were discarded.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what `action update` would change."""
    supervisor = Supervisor()
    asked = FetchRequest(what="update", name=name, version=version, prerelease=prerelease, theirs=theirs)
    job = fetched(supervisor, asked)
    given_up(supervisor, job)
    if as_json:
        found = msgspec.to_builtins(job)
        told = ("action", "from", "to", "versions", "difference", "conflicts", "edited", "unmerged")
        output.print_json({key: found[key] for key in told if key in found})
    elif job.difference:
        print_difference(job, "stdout")
    else:
        _tell_unchanged(job, name, version)


def _tell_unchanged(job: Fetch, name: str, version: str | None) -> None:
    known = "the newest version" if version is None else "the version you have"
    output.note(f"{visible(name)} {visible(job.from_ or '')} is {known}")


def _edited(job: Fetch, name: str) -> str:
    """Let the person edit the merged action file, and return its text. Raises Problem if conflict markers are left in it."""
    if job.conflicts:
        places = "1 conflict" if job.conflicts == 1 else f"{job.conflicts} conflicts"
        output.note(f"{places} between your edits and the publisher's: resolve in the editor")
    text = edit_text(job.text or "", suffix=".md", instead=f"`aileron action update {name} --theirs`")
    if any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in text.splitlines()):
        raise Problem.usage(
            "conflict markers left in the text; nothing changed",
            fix=f"aileron action update {name} --edit",
        )
    return text


def print_difference(job: Fetch, stream: str) -> None:
    """Print the changed lines of an action file.

    On a terminal, each line is marked as another party's text, and its kind is visible not only by color.
    """
    bar = output.BAR if output.is_terminal(stream) else ""
    if job.unmerged:
        output.note(visible(job.unmerged))
    for line in (job.difference or "").splitlines():
        style = {"-": "red", "+": "bold"}.get(line[:1])
        shown = bar + visible(line)
        output.write(shown if style is None else output.styled(shown, style, stream), stream)


def note_unbound(supervisor: Supervisor, job: Fetch) -> None:
    """Print a note that lists the fetched connectors whose credential is not bound yet."""
    subject = None if job.consent is None else job.consent.subject
    connectors = subject.connectors if isinstance(subject, InstallationConsent) else (subject,)
    needing = {
        connector.name: connector.credential
        for connector in connectors
        if isinstance(connector, ConnectorConsent) and connector.credential
    }
    if not needing:
        return
    bound = bound_connectors(supervisor)
    for name, credential in needing.items():
        if name not in bound:
            output.note(
                f"{visible(name)} needs a credential: {visible(credential)}\n  next: aileron binding setup "
                f"{visible(name)}"
            )


def resume(
    name: Name,
    unchanged: Annotated[
        bool,
        Option("--unchanged", help="Accept no change: the next run compares the tool with the accepted one."),
    ] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Resume an action whose server changed its tool.

    Aileron shows what the server changed, and asks whether to keep using the tool. If the server has undone the change, use
    --unchanged. If decisions are signed, the approver must sign at a terminal.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    asked = ResumeAction(unchanged=unchanged)
    answer = supervisor.change(
        ActionResumed, "POST", path_of("v1", "actions", name, "resume"), asked, later=ConsentsAnswer
    )
    raise Exit(carry_through(supervisor, answer, _tell_resumed, yes=yes, as_json=as_json))


def _tell_resumed(result: Any) -> None:
    if not isinstance(result, ActionResumed):
        tell_done(result)
    elif result.operations:
        output.note(f"{visible(result.name)} can run again; the next run compares its tool with the accepted one")
    else:
        output.note(f"{visible(result.name)} is not suspended")
