"""The words with which `aileron binding setup` asks for a user name: those of the kind of credential."""

from __future__ import annotations

from pathlib import Path

import pytest

from aileron.cli import bind
from aileron.cli.bind import BindOptions, BindRequest
from aileron.cli.supervisor import Supervisor
from aileron.model.credential_kind import CREDENTIAL_KINDS, CredentialFacts, UserNameRule, credential_facts
from aileron.model.login import LoginTarget

WORDS = {
    "api_key": None,
    "basic": "User name",
    "oauth2": None,
    "login": "User name",
    "aws_sigv4": "Access key ID",
    "hmac": None,
    "mtls": None,
    "digest": "User name",
    "oauth2_client": "Client ID",
}


class _AskedError(Exception):
    """The question that ends a test, in place of an answer."""


class _OpenVault(Supervisor):
    """A supervisor whose vault is open."""

    def open_or_create_vault(self) -> None:
        """Do nothing."""


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Provide a supervisor for a person at a terminal, whose first question is raised."""

    def asked(question: str, default: str | None = None) -> str:
        raise _AskedError(question)

    monkeypatch.setattr(bind, "can_ask", lambda: True)
    monkeypatch.setattr(bind, "ask", asked)
    return _OpenVault(home=tmp_path)


def _first_question(supervisor: Supervisor, kind: str, *logins: LoginTarget) -> str:
    wanted = BindRequest("github://a/b", kind, "Whatever", ("h:443",), logins=logins)
    source = "pass:a" if kind == "oauth2" else None
    with pytest.raises(_AskedError) as caught:
        bind.bind(supervisor, wanted, BindOptions(f"{kind}/a/me", source=source))
    return str(caught.value)


def test_each_credential_kind_has_its_own_word_for_a_user_name() -> None:
    """Each stands before a colon in a prompt; None: the kind has no user name."""
    rules = {kind: credential_facts(kind).username for kind in CREDENTIAL_KINDS}
    assert {kind: rule and rule.words for kind, rule in rules.items()} == WORDS


@pytest.mark.parametrize("kind", [kind for kind, words in WORDS.items() if words == "User name"])
def test_setup_for_a_credential_kind_with_a_user_name_asks_for_that_name_first(
    supervisor: Supervisor, kind: str
) -> None:
    """The words are those of the table above."""
    assert _first_question(supervisor, kind) == WORDS[kind]


@pytest.mark.parametrize("is_required", [True, False])
def test_the_user_name_prompt_uses_the_credential_kinds_own_word_for_a_user_name(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    """A kind whose user name is required may call it something else."""
    facts = CredentialFacts(UserNameRule("Key ID", is_required=is_required))
    monkeypatch.setattr(bind, "maybe_credential_facts", lambda _kind: facts)

    assert _first_question(supervisor, "basic") == "Key ID"


def test_setup_asks_for_a_user_name_if_a_stored_token_is_used_to_log_in(supervisor: Supervisor) -> None:
    """The kind `oauth2` has no user name of its own: the provider would have said whose token it is."""
    assert _first_question(supervisor, "oauth2", LoginTarget.parse("imap://imap.example.com:993")) == "User name"
