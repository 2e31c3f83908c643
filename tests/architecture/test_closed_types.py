"""A new member of a closed type is an error of the type checker at every place that has to know it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from aileron.daemon.consent_service.handlers.every_kind import ConsentHandlers
from aileron.model.consent import ConsentKind, Subject
from tests.cli.questions import SUBJECTS
from tests.support.plain_host import ROOT

FOUND = re.compile(
    r'^([\w/]+\.py):\d+: error: Argument 1 to "assert_never" has incompatible type "([^"]+)"', re.MULTILINE
)
NEW = (
    ("aileron/model/effect.py", '    PAY = "pay"\n', '    LEND = "lend"\n'),
    ("aileron/model/consent.py", '    HOST = "host"\n', '    LOAN = "loan"\n'),
    ("aileron/model/consent.py", "    | HostConsent\n", "    | LoanConsent\n"),
    ("aileron/model/manifest.py", 'CredentialKind = Literal["api_key"', ', "kerberos"'),
    ("aileron/model/login.py", 'LoginProtocol = Literal["smtp"', ', "ldap"'),
)
"""Closed types: the module of each, a text that ends with a member, and the new member that is added after it."""
LOAN = '''
class LoanConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="loan"):
    """The approval of a loan."""


'''
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
def test_a_new_member_is_a_type_error_at_each_place(tmp_path: Path) -> None:
    """Otherwise it would be a KeyError on the card that a person is about to read, or fall through without notice.

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
    for _, last, new in [added for added in NEW if added[0] == name]:
        assert source.count(last) == 1
        source = source.replace(last, last + new)
    return source.replace("\n\nSubject = (", f"\n{LOAN}Subject = (")


def test_each_kind_of_consent_has_a_subject() -> None:
    """The tag of a subject is its kind. A gated run is the only kind whose subject is not a consent's."""
    tags = {subject.__struct_config__.tag for subject in Subject.__args__}

    assert tags == set(ConsentKind) - {ConsentKind.ACTION}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_each_subject_gets_the_handler_of_its_kind(subject: Subject) -> None:
    """The type that a handler is made for is that of the subject; a class stands for its one instance."""
    handlers = ConsentHandlers(**get_type_hints(ConsentHandlers))

    (base,) = vars(handlers.of(subject))["__orig_bases__"]

    assert isinstance(subject, get_args(base))


def test_the_subjects_above_are_of_every_kind() -> None:
    """A kind without an example would be left out of the test above."""
    assert {type(subject) for subject in SUBJECTS.values()} >= set(get_args(Subject))
