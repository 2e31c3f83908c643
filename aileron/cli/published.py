"""Installation of published actions and connectors: the fetch with its progress, the access that a connector would get, and the
person's answer.

Runs in commands (`connector install`, `action add`, `action update`, `sync`). The daemon fetches; this module shows the progress
and what was fetched. If there is an approver, their signature decides, and the question is in the queue. Without an approver, a
`y` at this terminal or `--yes` decides; otherwise nothing is installed.

Rules
- The default is no, also if the terminal is closed. Downloads that are not installed are deleted at once.
- There is one question about everything that is installed together.

Source: docs/reference/cli.md, docs/reference/forges.md. Not here: the questions themselves (consent.py, decision_dialogue.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from aileron.api.approver import ApproverFacts
from aileron.api.bindings import BindingList
from aileron.api.fetches import (
    ConsentSubject,
    Download,
    Fetch,
    FetchRequest,
    Installed,
    InstallFetched,
    ResolveFetched,
)
from aileron.cli import output
from aileron.cli.card import show_subject
from aileron.cli.commands.done import tell_done
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.problem import OK, Problem
from aileron.cli.prompts import NO, YES, can_ask, choose
from aileron.cli.signing import UNSIGNED
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["bound_connectors", "exit_of", "fetched", "given_up", "installed", "is_published", "resolved"]

_POLL_S: Final = 0.2
_LONG_S: Final = 25.0
_INSTALL_S: Final = 60.0
"""Seconds to wait for an installation, which unpacks and hashes some archives of at most 64 MiB."""
_ALL = ("f", "full")
_MORE = "answer f to see all of it before you decide"
_Bar = Callable[[list[Download]], None]


def is_published(text: str) -> bool:
    """Return whether the text is a published NAME@VERSION, not a path."""
    return "://" in text


def fetched(supervisor: Supervisor, request: FetchRequest) -> Fetch:
    """Start a fetch, and return its job when the fetch is complete. Raises Problem if it failed."""
    job = supervisor.fetch(Fetch, "POST", "/v1/fetches", request)
    path = path_of("v1", "fetches", job.fetch)
    try:  # most end before a bar is worth showing
        job = supervisor.fetch(Fetch, "GET", f"{path}?wait={_POLL_S}", wait_s=_POLL_S)
        if job.status == "running":
            job = _waited_for(supervisor, path)
    except KeyboardInterrupt:
        given_up(supervisor, job)
        raise
    if job.status != "ready":
        raise Problem.of_error(job.error) if job.error else Problem.usage(f"the download is {job.status}")
    return job


def _waited_for(supervisor: Supervisor, path: str) -> Fetch:
    """Wait until the fetch job at the API's `path` has ended, and return the job. A terminal shows a bar for each
    download.
    """
    with _progress() as show:
        wait_s = _POLL_S if show is not None else _LONG_S
        while True:
            job = supervisor.fetch(Fetch, "GET", f"{path}?wait={wait_s}", wait_s=wait_s)
            if job.status != "running":
                return job
            if show is not None:
                show(job.progress)


def resolved(supervisor: Supervisor, job: Fetch, text: str) -> Fetch:
    """Make `text` the action file that an update installs, and return the update's job with the facts to show for it.

    Raises Problem if the daemon refuses the text.
    """
    path = path_of("v1", "fetches", job.fetch, "resolve")
    return supervisor.fetch(Fetch, "POST", path, ResolveFetched(text=text), wait_s=_INSTALL_S)


def given_up(supervisor: Supervisor, job: Fetch) -> None:
    """Have the daemon delete a fetch whose downloads are not wanted."""
    supervisor.fetch(Fetch, "DELETE", path_of("v1", "fetches", job.fetch), wait_s=_LONG_S)


def installed(
    supervisor: Supervisor,
    job: Fetch,
    *,
    again: str,
    yes: bool,
    as_json: bool,
    tell: Callable[[Any], None] = tell_done,
) -> int:
    """Install what was fetched, after the person's approval. Return the exit code. `again` is the command to repeat with
    `--yes`.

    Raises Problem if the person says no or the installation fails.
    """
    is_decided = supervisor.fetch(ApproverFacts, "GET", "/v1/approver").status != "none"
    if not is_decided:
        try:
            _agree(job.consent, again=again, yes=yes)
        except BaseException:
            given_up(supervisor, job)
            raise
    path = path_of("v1", "fetches", job.fetch, "install")
    answer = supervisor.change(Installed, "POST", path, InstallFetched(), wait_s=_INSTALL_S)
    return carry_through(supervisor, answer, tell, yes=yes, as_json=as_json)


def _agree(consent: ConsentSubject | None, *, again: str, yes: bool) -> None:
    """Show the consent that an installation needs, and ask the person to approve it.

    Raises Problem(cancelled) if they say no, and Problem if there is neither a person nor `--yes`.
    """
    if consent is None:
        return
    if not yes and not can_ask():
        raise Problem.usage("a person must confirm the installation, and there is no terminal", fix=f"{again} --yes")
    output.note("to be installed\n")
    _show(consent, _MORE if not yes else None)
    output.note("")
    if not yes and not _is_yes(consent):
        raise Problem("nothing installed", exit_code=6, name="cancelled")
    output.note(UNSIGNED)


def _is_yes(consent: ConsentSubject) -> bool:
    while (typed := choose("Install? [y/N] ", (*YES, *NO, *_ALL))) in _ALL:
        _show(consent, None)
        output.note("")
    return typed in YES


def _show(consent: ConsentSubject, more: str | None) -> None:
    show_subject(consent.subject, more=more)


@contextlib.contextmanager
def _progress() -> Iterator[_Bar | None]:
    """Yield a function that shows progress bars on standard error until the end of the block; None without a terminal."""
    if not output.is_terminal("stderr"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(None), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks: dict[str, TaskID] = {}
        began = time.monotonic()
        waiting = shown.add_task("asking", total=None)

        def show(progress: list[Download]) -> None:
            if progress or time.monotonic() - began > 1:
                shown.update(waiting, visible=not progress)
            for download in progress:
                name = visible(download.name.rpartition("/")[2])
                if name not in tasks:
                    tasks[name] = shown.add_task(name, total=download.total)
                shown.update(tasks[name], completed=download.bytes, total=download.total)

        yield show


def bound_connectors(supervisor: Supervisor) -> set[str]:
    """Return the connectors that have a credential. The result is empty if the vault is locked or does not exist."""
    try:
        return {entry.connector for entry in supervisor.fetch(BindingList, "GET", "/v1/bindings").bindings}
    except Problem:
        return set()


def exit_of(codes: list[int]) -> int:
    """Return the first exit code that is not 0, else 0."""
    return next((code for code in codes if code != OK), OK)
