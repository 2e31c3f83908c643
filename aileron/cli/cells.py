"""Decides whether an agent starts in a cell if its command does not specify this: by the setting in force, or by asking a person
once.

Runs in commands. The daemon, and not the file config.toml, says which setting is in force (`Status.launch`), because an agent
can write a file. The answer is saved like any other setting, and needs a signature in a home with an approver. But the answer
that agents start in cells takes effect at once (daemon/consent_service/settings.py).

Rules
- The person is not asked without a terminal, on a machine that cannot make cells, or while an earlier answer waits for approval.
- An answer that cannot be saved still counts for this start, and a note says that it was not saved.
- An empty answer is not a choice: nothing is saved, and the agent starts as it would have without the question.

Source: docs/reference/configuration.md#launch. Not here: what a cell is made of (aileron/launch), the options of the command.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aileron.cli.output import note
from aileron.cli.problem import Problem, local_work
from aileron.cli.prompts import can_ask, choose

if TYPE_CHECKING:
    from aileron.api.daemon import Status

__all__ = ["ask_about_cells"]

_KEY: Final = "launch.jail"
_EXPLANATION: Final = (
    "Agents can start in a cell: they see only their project and what they need to run, and reach only the hosts that you allow. "
    "Your other files, keys and sockets are not there. You are asked this once; --jail and --no-jail choose for a single start."
)
_QUESTION: Final = "Start agents in a cell? [Y/n] "
_ANSWERS: Final = {"": True, "y": True, "yes": True, "n": False, "no": False}


def ask_about_cells(config: Path, running: Status, *, is_possible: Callable[[], bool]) -> bool | None:
    """Return whether the agent starts in a cell, if the command has neither --jail nor --no-jail. None if nobody has
    chosen.

    The choice is the setting or, without one, the person's answer, which is saved in `config`, the home's
    config.toml. `is_possible` says whether this machine can make cells; it is called last, because it tries to make
    one.
    """
    if running.launch.jail is not None:
        return running.launch.jail
    if _KEY in running.settings_waiting:
        note(f"{_KEY} is set but needs your approval: aileron approval list")
        return None
    if running.settings_problem or not can_ask() or not is_possible():
        return None
    answer = _answer()
    if answer is None:
        note(f"not saved; to choose later: aileron config set {_KEY} true")
        return None
    _save(config, answer, is_signed=running.approver.status != "none")
    return answer


def _answer() -> bool | None:
    note(_EXPLANATION)
    typed = choose(_QUESTION, _ANSWERS)
    return None if typed is None else _ANSWERS[typed]


def _save(config: Path, answer: bool, *, is_signed: bool) -> None:
    from aileron.cli.settings import changed, read_text, write_text

    word = "true" if answer else "false"
    try:
        with local_work():
            before = read_text(config)
            write_text(config, before, changed(before, {_KEY: answer}, config))
    except Problem as problem:
        for line in problem.lines():
            note(line)
        note(f"your answer counts for this start, and was not saved: aileron config set {_KEY} {word}")
        return
    note(f"saved: {_KEY} = {word}; to change it: aileron config set {_KEY} {'false' if answer else 'true'}")
    if is_signed:
        note(f"{_KEY} needs your approval to stay so: aileron approval list")
