"""`aileron completion`: the shells' scripts, and functions for typer that complete settings and words that the daemon knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from aileron.cli import completing, output
from aileron.cli.declared import Argument
from aileron.cli.problem import Problem

__all__ = [
    "action_names",
    "approval_ids",
    "binding_names",
    "completion",
    "connector_names",
    "grant_ids",
    "input_words",
    "list_entries",
    "list_names",
    "run_ids",
    "secret_names",
    "session_ids",
    "setting_names",
]

_SHELLS = ("bash", "zsh", "fish")
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
"""Typer's script for zsh, changed so that it shows nothing if the answer has the mark for no file names
(completing.py), and adds no space after `KEY=`.
"""


def completion(
    shell: Annotated[str, Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the completion script for a shell.

    Example: source <(aileron completion bash)
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it exists, but is not exported

    if shell not in _SHELLS:
        raise Problem.usage(f"{shell!r} is not {', '.join(_SHELLS)}", fix="aileron completion bash")
    if shell == "zsh":
        output.write(_ZSH)
        return
    script = get_completion_script(prog_name="aileron", complete_var=completing.COMPLETING, shell=shell)
    output.write(_bash(script) if shell == "bash" else _fish(script))


def _bash(script: str) -> str:
    """Return typer's script for bash, changed so that it offers file names only for arguments that can be files."""
    asked = script.replace("$( env ", f"$( env {completing.KNOWS_MARK}=1 ")
    return asked.replace("    return 0\n", f"{_ON_MARK}    return 0\n")


def _fish(script: str) -> str:
    """Return typer's script for fish, changed so that it offers file names only for arguments that can be files.

    fish itself offers files if there are no other words.
    """
    asked = script.replace("(env ", f"(env {completing.KNOWS_MARK}=1 ").replace(
        '"env ', f'"env {completing.KNOWS_MARK}=1 '
    )
    return asked.replace(
        '(commandline -cp) aileron)"', r"(commandline -cp) aileron | string match --invert --entire \x01)" + '"', 1
    )


def _listed(kind: str) -> Callable[[str], list[str]]:
    """Return the completion for names or ids of this kind, which a running daemon lists (completing.py)."""

    def words(incomplete: str) -> list[str]:
        return completing.words_of(kind, incomplete)

    return words


action_names = _listed("action")
approval_ids = _listed("approval")
run_ids = _listed("run")
connector_names = _listed("connector")
binding_names = _listed("binding")
secret_names = _listed("secret")
session_ids = _listed("session")
grant_ids = _listed("grant")


def setting_names(incomplete: str) -> list[str]:
    """Return the names of all settings."""
    from aileron.config import SETTINGS

    return [key for key in SETTINGS if key.startswith(incomplete)]


def list_names(incomplete: str) -> list[str]:
    """Return the names of the settings that are lists."""
    from aileron.cli.settings import is_list

    return [key for key in setting_names(incomplete) if is_list(key)]


def list_entries(ctx: Any, incomplete: str) -> list[str]:
    """Return the entries of the list setting that the command line names, without the entries that it already gives.

    The result is empty if the file cannot be read.
    """
    from aileron.cli.settings import is_list, list_in_force, read_text
    from aileron.config import SETTINGS
    from aileron.home import Home
    from aileron.model.failure import AileronError

    key = str(ctx.params.get("key"))
    if key not in SETTINGS or not is_list(key):
        return []
    path = Home.from_environment().config
    try:
        found = list_in_force(key, read_text(path), path)
    except (AileronError, Problem, OSError):
        return []
    given = ctx.params.get("values") or []
    return completing.plain_words(incomplete, (entry for entry in found if entry not in given))


def input_words(ctx: Any, incomplete: str) -> list[str]:
    """Return `KEY=` for each input of the action on the command line that has no value yet."""
    given = ctx.params.get("arguments") or []
    return completing.input_words(str(ctx.params.get("name")), given, incomplete)
