"""`aileron completion`, and what completes words that only the daemon knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from aileron.cli import output
from aileron.cli.problem import Problem

__all__ = ["action_names", "approval_ids", "completion", "input_words"]

_SHELLS = ("bash", "zsh", "fish")
_KNOWS_MARK: Final = "_AILERON_NO_FILES"
"""Set by our script, which knows the mark; one that was printed by an older version does not."""
_MARK: Final = "\x01"
_ON_MARK: Final = """\
    if [[ "${COMPREPLY[0]}" == *$'\\001' ]]; then
        COMPREPLY=()
        compopt +o default
    elif [[ "${COMPREPLY[0]}" == *= ]]; then
        compopt -o nospace
    fi
"""
_ZSH: Final = """\
#compdef aileron

_aileron_completion() {
  local answer words_only
  answer="$(env _AILERON_NO_FILES=1 _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _AILERON_COMPLETE=complete_zsh aileron)"
  if [[ "$answer" == *$'\\001'* ]]; then
    return 1
  elif [[ "$answer" == *'="))'* ]]; then
    words_only="${${answer#*'(('}%%'))'*}"
    compadd -S '' -- ${(Q)${(f)words_only}}
  else
    eval "$answer"
  fi
}

compdef _aileron_completion aileron
"""
"""Typer's script, but for the mark, and for no space behind `KEY=`."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print a shell's completion script.

    For example: source <(aileron completion bash)
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it is there, unannounced

    if shell not in _SHELLS:
        raise Problem.usage(f"{shell!r} is not {', '.join(_SHELLS)}", fix="aileron completion bash")
    if shell == "zsh":
        output.write(_ZSH)
        return
    script = get_completion_script(prog_name="aileron", complete_var="_AILERON_COMPLETE", shell=shell)
    output.write(_bash(script) if shell == "bash" else _fish(script))


def _bash(script: str) -> str:
    """Typer's script, with files only where a word may be one."""
    asked = script.replace("$( env ", f"$( env {_KNOWS_MARK}=1 ")
    return asked.replace("    return 0\n", f"{_ON_MARK}    return 0\n")


def _fish(script: str) -> str:
    """Typer's script, with files only where a word may be one: fish offers them where there is nothing else."""
    asked = script.replace("(env ", f"(env {_KNOWS_MARK}=1 ").replace('"env ', f'"env {_KNOWS_MARK}=1 ')
    return asked.replace(
        '(commandline -cp) aileron)"', r"(commandline -cp) aileron | string match --invert --entire \x01)" + '"', 1
    )


def action_names(incomplete: str) -> list[str]:
    """The names that a running daemon knows; none where none runs, and never an error: somebody is typing."""
    return _beginning(incomplete, (action.get("name") for action in _listed("actions", operator=False)))


def approval_ids(incomplete: str) -> list[str]:
    """The ids of what waits; never the name of a file."""
    ids = (one.get("approval_id") for one in _listed("action-approvals", operator=True))
    return _or_no_files(incomplete, _beginning(incomplete, ids))


def input_words(context: typer.Context, incomplete: str) -> list[str]:
    """`KEY=` for each input of the action that is named, but for those that have a value already."""
    given = {word.partition("=")[0] for word in context.params.get("arguments") or []}
    actions = [one for one in _listed("actions", operator=False) if one.get("name") == context.params.get("name")]
    inputs = [spec for action in actions for spec in action.get("inputs") or [] if isinstance(spec, dict)]
    words = (f"{spec.get('name')}=" for spec in inputs if spec.get("name") not in given)
    return _or_no_files(incomplete, _beginning(incomplete, words))


def _listed(what: str, *, operator: bool) -> list[dict[str, Any]]:
    from aileron.cli.supervisor import Supervisor

    try:
        answer = Supervisor(operator=operator).maybe_ask(f"/v1/{what}")
    except Problem:
        return []
    found = (answer or {}).get("approvals" if operator else what) or []
    return [one for one in found if isinstance(one, dict)]


def _or_no_files(incomplete: str, words: list[str]) -> list[str]:
    """These, or for our scripts a mark that they show to nobody: they would offer the names of files in their place."""
    return words or ([incomplete + _MARK] if os.environ.get(_KNOWS_MARK) else [])


def _beginning(incomplete: str, words: Iterable[Any]) -> list[str]:
    """Those that begin so; harmless ones only, since a shell takes them as they are."""
    found = [str(word) for word in words]
    return [word for word in found if word.startswith(incomplete) and _PLAIN.fullmatch(word)]
