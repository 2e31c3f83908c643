"""The question that a person sees before a secret is replaced, or sent somewhere as a token."""

from __future__ import annotations

import msgspec
import pytest

from aileron.cards.subject import consent_headline, subject_facts
from aileron.model.consent import SecretConsent

THERE = "vault.example:8200"
ASKED = SecretConsent(
    name="mail",
    bindings=(),
    commitment="ef" * 32,
    reference=f"vault://{THERE}/secret/mail#password, with the token store-token",
    token_to=THERE,
    token="store-token",
)


def words(subject: SecretConsent) -> tuple[str, dict[str, object]]:
    """Return the sentence, and the facts below it."""
    said = "".join(span.text for span in consent_headline(subject))
    return said, dict(subject_facts(subject, None, lambda _: ""))


def test_the_server_that_is_sent_a_token_is_named_in_the_cards_sentence_and_facts() -> None:
    """The facts also have the token's name, and what the secret is used for so far."""
    said, facts = words(ASKED)
    assert said == f"Send the secret “store-token” to “{THERE}”, to fetch “mail” with it"
    assert str(facts["token goes to"]).startswith(f"{THERE}, which has not had store-token yet")
    assert str(facts["kept at"]).endswith("with the token store-token")
    assert (facts["used by"], "value" in facts) == ("nothing yet", False)


def test_a_question_about_sending_a_token_needs_both_the_token_and_its_recipient() -> None:
    """A subject that has only the token or only its recipient is invalid."""
    for missing in ("token", "token_to"):
        with pytest.raises(ValueError, match="both, or neither"):
            msgspec.structs.replace(ASKED, **{missing: msgspec.UNSET})
        raw = msgspec.to_builtins(ASKED)
        del raw[missing]
        with pytest.raises(msgspec.ValidationError, match="both, or neither"):
            msgspec.convert(raw, SecretConsent)
    assert msgspec.convert(msgspec.to_builtins(ASKED), SecretConsent) == ASKED


def test_the_card_for_replacing_a_secret_mentions_no_token() -> None:
    """This is the control, both for a new value and for a secret that is now kept elsewhere."""
    for subject in (
        SecretConsent(name="mail", bindings=("basic/mail/me",), commitment="ef" * 32),
        SecretConsent(name="mail", bindings=("basic/mail/me",), commitment="ef" * 32, reference="pass:mail"),
    ):
        said, facts = words(subject)
        assert said == "Replace the value of the secret “mail”"
        assert "token goes to" not in facts
        assert facts["used by"] == ["basic/mail/me"]
        assert "not shown" in str(facts["value"])
