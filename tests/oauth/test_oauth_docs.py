"""docs/reference/sign-in.md against the code: every error with its sentence, and every number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from aileron.oauth import answers, callback, endpoint, jobs, minting, renew, signin, token_request
from aileron.oauth.problems import (
    MINTING,
    RENEWAL,
    SIGN_IN,
    ProviderError,
    ProviderProblem,
    heard,
    not_minted,
    not_renewed,
    not_signed_in,
    said,
)
from aileron.oauth.request import OURS

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "sign-in.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1]
    block = re.search(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    assert block
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in block[0].splitlines()[2:]]


TABLES: Final = {
    "Errors of a sign-in": SIGN_IN,
    "Errors of a renewal": RENEWAL,
    "Errors of a token request": MINTING,
}


@pytest.mark.parametrize(("heading", "table"), TABLES.items(), ids=list(TABLES))
def test_the_sign_in_reference_page_has_every_error_with_its_sentence(
    heading: str, table: dict[str, ProviderProblem]
) -> None:
    """The rows are in the order of the code, word for word."""
    assert rows(heading) == [
        [f"`{code}`", problem.what.format(host="HOST"), problem.fix.format(again="AGAIN", another="STORE")]
        for code, problem in table.items()
    ]


@pytest.mark.parametrize("code", [*SIGN_IN, "made_up", "made up"])
def test_every_sign_in_error_says_what_happened_and_what_to_do(code: str) -> None:
    """They are whole sentences with a host and a command, and no unfilled placeholder."""
    problem = said(code, "id.example") if code in SIGN_IN else heard(code, "id.example")
    error = not_signed_in(problem, "id.example", "aileron binding setup X")

    assert re.fullmatch(r"[^{}\n]{30,400}", str(error))
    assert "`aileron binding setup X`" in str(error) or code == "unsupported_token_type"
    assert error.failure.details["code"] == (code if code in SIGN_IN else "unknown_error")


@pytest.mark.parametrize("code", [*SIGN_IN, *RENEWAL])
def test_every_renewal_error_says_what_happened_and_what_to_do(code: str) -> None:
    """The sentence names the command that signs in again, or says that waiting helps."""
    problem = RENEWAL.get(code) or SIGN_IN[code]
    error = ProviderError(code, problem.what.format(host="id.example"), retriable=problem.retriable)
    sentence = str(not_renewed(error, "id.example", "aileron binding reauthorize X"))

    assert re.fullmatch(r"[^{}\n]{30,400}", sentence)
    assert "`aileron binding reauthorize X`" in sentence or "try again" in sentence or code == "unsupported_token_type"


@pytest.mark.parametrize("code", sorted({*SIGN_IN, *MINTING}))
def test_every_token_request_error_says_what_to_do(code: str) -> None:
    """The sentence names the command that binds or stores the secret again, or another remedy."""
    problem = MINTING.get(code) or SIGN_IN[code]
    error = ProviderError(code, problem.what.format(host="id.example"), retriable=problem.retriable)
    sentence = str(
        not_minted(error, "id.example", "aileron binding rebind X", "store another with `aileron secret set Y`")
    )

    assert re.fullmatch(r"[^{}\n]{30,400}", sentence)
    assert re.search(r"`aileron (binding rebind X|secret set Y)`|try again|expire on their own", sentence)


def test_the_numbers_on_the_sign_in_reference_page_are_those_of_the_code() -> None:
    """A change of one requires a change of the other."""
    pace = jobs.JobTiming()
    for text, value in {
        r"for (\d+) minutes. It takes one answer": signin.SIGN_IN_S / 60,
        r"After (\d+) of these": callback.MAX_TRIES,
        r"A connection has (\d+) seconds": callback.CONNECTION_S,
        r"of at most (\d+) KiB; at most": callback.HEAD_BYTES >> 10,
        r"at most (\d+) are waited for": callback.MAX_CONNECTIONS,
        r"object of at most (\d+) KiB": endpoint.MAX_ANSWER_BYTES >> 10,
        r"within (\d+) seconds \|": endpoint.EXCHANGE_S,
        r"\| (\d+) to 8192 visible": answers.MIN_TOKEN_CHARACTERS,
        r"8 to (\d+) visible": answers.MAX_TOKEN_CHARACTERS,
        r"\(1 to (\d+)\)": answers.MAX_INTERVAL_S,
        r"waits at most (\d+) seconds": pace.patience_s,
        r"younger than (\d+) seconds": pace.fresh_s,
        r"left alone for (\d+) seconds": pace.first_pause_s,
        r"up to (\d+)\. An access": pace.longest_pause_s,
        r"written every (\d+) seconds": pace.write_again_s,
        r"at most (\d+) bindings": renew.MAX_HELD,
        r"valid for (\d+) seconds and": token_request.ASSERTION_S,
        r"used for (\d+) minutes; no": minting.UNSAID_S / 60,
        r"for more than (\d+) hours": minting.USED_S / 3600,
    }.items():
        found = re.search(text, PAGE)
        assert found, text
        assert float(found[1]) == value, text


def test_every_parameter_of_the_authorization_request_has_a_row_on_the_sign_in_reference_page() -> None:
    """Parameters that Aileron reserves but never sends are left out."""
    sent = OURS - {"client_secret", "response_mode", "request", "request_uri"}

    assert sent == set(re.findall(r"`(\w+)`", "".join(row[0] for row in rows("In a browser on this machine"))))
