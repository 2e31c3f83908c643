"""A new member of a closed type is an error of the type checker at every place that has to know it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import pytest

from aileron.daemon.consent_service.handlers.every_kind import ConsentHandlers
from aileron.model.consent import ConsentKind, Subject
from tests.cli.questions import SUBJECTS
from tests.support.plain_host import ROOT

FOUND = re.compile(
    r'^([\w/]+\.py):\d+: error: Argument 1 to "assert_never" has incompatible type "([^"]+)"', re.MULTILINE
)
LOAN = '''
class LoanConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="loan"):
    """The approval of a loan."""


'''


class _Added(NamedTuple):
    """A member added to the closed type `name` of a module: the text after its last member, and before its definition."""

    module: str
    name: str
    after: str
    before: str = ""


NEW = (
    _Added("aileron/model/effect.py", "Effect", '\n    LEND = "lend"'),
    _Added("aileron/model/consent.py", "ConsentKind", '\n    LOAN = "loan"'),
    _Added("aileron/model/consent.py", "Subject", " | LoanConsent", before=LOAN),
    _Added("aileron/model/manifest.py", "CredentialKind", ', "kerberos"'),
    _Added("aileron/model/login.py", "LoginProtocol", ', "ldap"'),
)
PLACES = {
    "Literal[Effect.LEND]": {"aileron/model/effect.py", "aileron/importing/effects.py"},
    "Literal[ConsentKind.LOAN]": {"aileron/model/consent.py", "aileron/cli/commands/done.py"},
    "LoanConsent": {
        "aileron/model/consent.py",
        "aileron/daemon/consent_service/handlers/every_kind.py",
        "aileron/cards/card.py",
        "aileron/cards/subject.py",
        "aileron/cards/weight.py",
    },
    "Literal['kerberos']": {
        "aileron/model/credential_kind.py",
        "aileron/model/credential.py",
        "aileron/vault/secret_form.py",
        "aileron/egress/inject.py",
        "aileron/connector_tests/fake_credentials.py",
        "aileron/cli/bind.py",
    },
    "Literal['ldap']": {"aileron/model/login.py", "aileron/logins/child.py"},
}
"""Modules that have to know each new member."""


@pytest.mark.slow
def test_a_new_member_of_a_closed_type_is_a_type_error_wherever_it_is_matched(tmp_path: Path) -> None:
    """Otherwise it would fail at run time, on a card that a person is about to read, or be ignored silently.

    Only the modules that the members concern are checked, each by itself: everything would take minutes.
    """
    paths = [path for path in (ROOT / "aileron").rglob("*.py") if _is_concerned(path)]
    for path in paths:
        name = str(path.relative_to(ROOT))
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(_extended(name, path.read_text(encoding="utf-8")), encoding="utf-8")

    options = ("--strict", "--config-file=", "--cache-dir=/dev/null", "--follow-imports=skip")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--explicit-package-bases", "aileron"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    found: dict[str, set[str]] = {}
    for place, member in FOUND.findall(checked.stdout):
        found.setdefault(member, set()).add(place)

    assert found == PLACES


def _is_concerned(path: Path) -> bool:
    return path.parent == ROOT / "aileron" / "model" or "assert_never" in path.read_text(encoding="utf-8")


def _extended(name: str, source: str) -> str:
    """Return a module's source with a new member of each closed type that it defines."""
    for added in [added for added in NEW if added.module == name]:
        definition, last = _definition(source, added.name)
        lines = source.encode().splitlines(keepends=True)
        start = len(b"".join(lines[: definition.lineno - 1]))
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        end = len(b"".join(lines[: last.end_lineno - 1])) + last.end_col_offset
        data = b"".join(lines)
        source = (data[:start] + added.before.encode() + data[start:end] + added.after.encode() + data[end:]).decode()
    return source


def _definition(source: str, name: str) -> tuple[ast.stmt, ast.stmt | ast.expr]:
    """Return the definition of the closed type `name`, an enumeration or an alias, and what ends with its last member."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(body=body) if statement.name == name:
                return statement, [member for member in body if isinstance(member, ast.Assign)][-1]
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Subscript(slice=ast.Tuple(elts=members))):
                if found == name:
                    return statement, members[-1]
            case ast.Assign(targets=[ast.Name(id=found)], value=union) if found == name:
                return statement, union
    raise AssertionError(f"{name} is no class or alias at the top of its module any more: say here where it is")


def test_each_kind_of_consent_has_a_subject() -> None:
    """The tag of a subject is its kind. A gated run is the only kind whose subject is not a consent's."""
    tags = {subject.__struct_config__.tag for subject in Subject.__args__}

    assert tags == set(ConsentKind) - {ConsentKind.ACTION}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_each_consent_subject_gets_the_handler_of_its_kind(subject: Subject) -> None:
    """A handler declares the type of subject that it accepts, which must match."""
    handlers = ConsentHandlers(**get_type_hints(ConsentHandlers))

    (base,) = vars(handlers.of(subject))["__orig_bases__"]

    assert isinstance(subject, get_args(base))


def test_the_examples_cover_every_kind_of_subject() -> None:
    """A kind without an example would be missing from the test above."""
    assert {type(subject) for subject in SUBJECTS.values()} >= set(get_args(Subject))
