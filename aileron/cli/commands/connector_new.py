"""`aileron connector new`: a connector's repository from a template.

Runs here, without a daemon. template.py has the files, new_repository.py writes them and the key.

Source: docs/how-to/publish-a-connector.md, docs/reference/cli.md. Not here: `aileron connector import` (connector_import.py).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import Problem, parsed
from aileron.cli.publisher import KEY_VARIABLE
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.cli.new_repository import NewRepository

__all__ = ["Directory", "Key", "Name", "new"]

_COMMAND: Final = "aileron connector new"
Name = Annotated[str, Argument(metavar="NAME", help="Full name, such as github://OWNER/REPOSITORY.")]
Directory = Annotated[Path | None, Argument(metavar="DIR", help="Directory to create. Default: the last part of NAME.")]
Key = Annotated[
    Path | None,
    Option("--key", metavar="FILE", help="File for the private key. Default: DIR.signing-key, beside the directory."),
]


class Lang(enum.StrEnum):
    """Programming languages of a new connector."""

    PYTHON = "python"
    C = "c"


def new(
    name: Name,
    directory: Directory = None,
    op: Annotated[
        list[str] | None,
        Option("--op", metavar="OP", help="Operation to create, such as delete_note. Repeatable."),
    ] = None,
    host: Annotated[str, Option("--host", metavar="NAME:PORT", help="Host of the service to call.")] = (
        "api.example.com:443"
    ),
    lang: Annotated[Lang, Option("--lang", help="Programming language.")] = Lang.PYTHON,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create a connector's repository, which passes its tests.

    You also get a signing key, outside the repository. An existing key in FILE is reused. Each operation gets an action and test
    cases; its first word (list, get, add, change, delete …) selects the template.

    `aileron connector import` makes a connector from an OpenAPI document or an MCP server instead.
    """
    from aileron.cli.new_repository import NewRepository
    from aileron.cli.template import FIRST_OPERATIONS, repository
    from aileron.model.names import HostPort

    place = NewRepository.of(name, directory, key, command=_COMMAND)
    place.check_place(fix=f"{_COMMAND} {name} DIR")
    operations = op or FIRST_OPERATIONS[lang.value]
    _check_operations(operations, lang)
    address = parsed("--host", HostPort.parse, host)
    written = place.write(
        lambda public: repository(
            place.name, lang.value, public, place.key_file.name, operations=operations, host=address
        ),
        may_have_key=key is not None,
    )
    facts = {
        "directory": str(place.directory),
        "name": str(place.name),
        "fingerprint": written.fingerprint,
        "signing_key": str(place.key_file),
    }
    words = ((name.replace("_", " "), value) for name, value in facts.items())
    output.print_object({**facts, "files": written.files}, words, as_json=as_json)
    _tell_next(place, is_new_key=written.is_new_key)


def _check_operations(operations: Sequence[str], lang: Lang) -> None:
    from aileron.cli.template import check_operation

    for number, operation in enumerate(operations):
        if operation in operations[:number]:
            raise Problem.usage(f"--op {operation} is given twice")
        try:
            check_operation(operation, lang.value)
        except ValueError as error:
            raise Problem.usage(f"--op {error}") from None


def _tell_next(place: NewRepository, *, is_new_key: bool) -> None:
    key_file = visible(str(place.key_file))
    output.note(f"\nprivate key{'' if is_new_key else ' (existing)'}: {key_file}, outside the repository; keep it safe")
    if place.name.scheme == "github":
        output.note(f"CI signs with it:  gh secret set {KEY_VARIABLE} < {key_file}")
    else:
        output.note(
            f"no CI workflow is available for {place.name.scheme}: run `aileron connector release` with --key, or "
            f"set {KEY_VARIABLE}"
        )
    output.note(f"next:              aileron connector test {visible(str(place.directory))}")
