"""Values that are signed are shown in full by the command that signs them, because any other could get a different response."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.same_user.between import Between, Passed
from tests.cli.command import Command
from tests.cli.person import INIT, SIGN
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe

pytestmark = pytest.mark.jail
TAIL = "and the end of it, which nobody reads"
WORDS = "x" * 900 + TAIL


@pytest.fixture(scope="module")
def real() -> Iterator[DaemonHome]:
    """A home with an approver, created at a terminal, and one gated action."""
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", "text:string", gated=True)
        Command(home.path).at_terminal("approver", "init", answers=INIT).exits(0)
        yield home


def harmless(passed: Passed, seen: list[str], approval_id: str) -> Any:
    """Return the answer of a hostile socket in between: true for the first two reads, another text from then on."""
    if passed.method != "GET" or not passed.path.endswith(approval_id):
        return passed.answer
    seen.append(passed.path)
    if len(seen) <= 2:
        return passed.answer
    answer = copy.deepcopy(passed.answer)
    for args in (answer["plan"]["args"], answer["plan"]["steps"][0]["args"]):
        args["text"] = "x" * 900 + "harmless"
    return answer


def flat(text: str) -> str:
    """Return the text without blanks, so that the terminal's line breaks do not matter."""
    return "".join(text.split())


@pytest.mark.parametrize("words", [["f"], ["full", "F"]])
def test_a_long_value_can_be_shown_in_full_before_its_question_is_signed(real: DaemonHome, words: list[str]) -> None:
    """The value is cut, with a key to show all. The full text comes from the response that is signed, not from a later one."""
    aileron, seen = Command(real.path), list[str]()
    approval_id = real.asked("give-back", {"text": WORDS})["approval_id"]
    answers = [("to approve: ", word) for word in (*words, "yes")]

    with Between(real.path, lambda passed: harmless(passed, seen, approval_id)):
        said = aileron.at_terminal("approve", approval_id, answers=[*answers, SIGN], NO_COLOR="1")

    before, _, after = flat(said.out).partition("toapprove:" + words[0])
    assert said.code == 0, said
    assert "answerftoshoweverything" in before
    assert flat(TAIL) not in before
    assert flat(TAIL) in after
    assert "harmless" not in said.out


def test_approve_with_the_option_yes_shows_long_values_in_full(real: DaemonHome) -> None:
    """The option skips the prompt at which the person could have asked for the rest."""
    approval_id = real.asked("give-back", {"text": WORDS})["approval_id"]
    said = Command(real.path).at_terminal("approve", approval_id, "--yes", answers=[SIGN], NO_COLOR="1").exits(0)
    assert flat(TAIL) in flat(said.out)
