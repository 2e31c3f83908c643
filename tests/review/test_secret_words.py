"""What a person sees before a secret is exchanged, or sent somewhere as a token."""

from __future__ import annotations

from aileron.model.consent import SecretConsent
from aileron.review.subject import consent_headline, subject_facts

THERE = "vault.example:8200"
ASKED = SecretConsent(
    name="mail",
    bindings=(),
    commitment="ef" * 32,
    reference=f"vault://{THERE}/secret/mail#password, with the token store-token",
    token_to=THERE,
)


def words(subject: SecretConsent) -> tuple[str, dict[str, object]]:
    """The sentence, and the facts below it."""
    said = "".join(span.text for span in consent_headline(subject))
    return said, dict(subject_facts(subject, None, lambda _: ""))


def test_who_gets_the_token_is_in_the_sentence_and_the_facts() -> None:
    """With the token's name, and what the secret is for so far."""
    said, facts = words(ASKED)
    assert said == f"Fetch the secret “mail” with a token that is sent to “{THERE}”"
    assert str(facts["token goes to"]).startswith(f"{THERE}, for the first time")
    assert str(facts["kept at"]).endswith("with the token store-token")
    assert (facts["used by"], "value" in facts) == ("nothing yet", False)


def test_an_exchange_says_nothing_of_a_token() -> None:
    """The control: of a value, and of one that changed where it is kept."""
    for subject in (
        SecretConsent(name="mail", bindings=("basic/mail/me",), commitment="ef" * 32),
        SecretConsent(name="mail", bindings=("basic/mail/me",), commitment="ef" * 32, reference="pass:mail"),
    ):
        said, facts = words(subject)
        assert said == "Replace the value of the secret “mail”"
        assert "token goes to" not in facts
        assert facts["used by"] == ["basic/mail/me"]
        assert "not shown" in str(facts["value"])
