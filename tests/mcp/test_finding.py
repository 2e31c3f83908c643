"""Finding one action of many by words: 60 requests written before any ranking existed, and properties that always hold."""

from __future__ import annotations

import random
import time

import pytest

from aileron.actions.manifest import parse_action
from aileron.mcp.finding import ALIKE, MAX_FOUND, MAX_TERMS, MAX_WORDS_CHARACTERS, USUAL_FOUND, Finder
from aileron.model.manifest import ActionFile
from tests.mcp.peers import action_text
from tests.support.many_actions import many_actions, requests

MANY = {name: parse_action(text, file=f"{name}.md") for name, text in many_actions().items()}


def found(words: str, *actions: ActionFile, limit: int = USUAL_FOUND) -> list[str]:
    """Return the names found among these actions, or among all 300."""
    return [action.name for action in Finder().find(words, actions or MANY.values(), limit)]


def action(name: str, **options: str) -> ActionFile:
    """Return an action with a body of its own."""
    return parse_action(action_text(name, **options), file=f"{name}.md")  # type: ignore[arg-type]


@pytest.mark.parametrize(("file", "count"), [("requests.txt", 60), ("requests_after.txt", 30)])
def test_every_sample_request_for_the_search_expects_one_or_two_existing_actions(file: str, count: int) -> None:
    """The sets have 300 actions, 60 requests and 30 later ones, each for one or two actions."""
    assert len(MANY) == 300
    assert len({words for words, _ in requests(file)}) == count
    for words, wanted in requests(file):
        assert 1 <= len(wanted) <= 2, words
        assert wanted <= MANY.keys(), words


@pytest.mark.parametrize("file", ["requests.txt", "requests_after.txt"])
def test_the_first_five_search_results_include_a_right_action_for_nine_of_ten_requests(file: str) -> None:
    """Two of three have it first. Both hold for the requests that the ranking was made with, and for those written after it."""
    finder = Finder()
    answers = [
        (words, wanted, [hit.name for hit in finder.find(words, MANY.values())]) for words, wanted in requests(file)
    ]
    missed = [words for words, wanted, names in answers if wanted.isdisjoint(names)]
    first = [words for words, wanted, names in answers if names[:1] and names[0] in wanted]

    assert len(missed) <= len(answers) // 10, missed
    assert len(first) >= len(answers) * 2 // 3


def test_search_results_do_not_depend_on_the_order_of_the_actions() -> None:
    """The answer does not depend on earlier requests either."""
    finder = Finder()
    shuffled = list(MANY.values())
    random.Random(7).shuffle(shuffled)
    for words, _ in requests():
        assert [hit.name for hit in finder.find(words, shuffled)] == found(words)


def test_search_results_that_match_equally_are_sorted_by_name() -> None:
    """The order of two actions with the same text is not left to chance."""
    same = [action(name, body="Sends a letter.") for name in ("letter-b", "letter-a")]

    assert found("send a letter", *same) == ["letter-a", "letter-b"]


def test_a_match_in_an_actions_name_ranks_above_a_match_in_its_description() -> None:
    """The name wins however often an author repeats the words in a description."""
    named, mentioned = action("send-letter"), action("paint-fence", body="Does not send a letter. " + "Paint. " * 5)

    assert found("send a letter", mentioned, named) == ["send-letter", "paint-fence"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("creating ISSUES", "create-issue"),
        ("issue's", "create-issue"),
        ("add a bug", "create-issue"),
        ("iss", "create-issue"),
        ("merged requests", "merge-request"),
        ("create_issue", "create-issue"),
        ("CreateIssue", "create-issue"),
    ],
)
def test_a_search_matches_word_endings_spelling_variants_and_synonyms(words: str, name: str) -> None:
    """The words are spelled as people, agents and programming interfaces spell them."""
    assert found(words, action("create-issue"), action("merge-request"), action("water-plants"))[0] == name


@pytest.mark.parametrize("words", ["", " ", "the of to", "zzz qqq", "!?…", "\x00\x1b[31m", "a"])
def test_a_search_for_words_without_meaning_finds_no_action(words: str) -> None:
    """The search returns no result rather than a guess."""
    assert found(words) == []


def test_text_of_a_search_beyond_the_length_limit_is_ignored() -> None:
    """Text beyond the bound is ignored, and takes no time."""
    words = ["stripe", *(f"word{number}" for number in range(MAX_TERMS)), "matrix"]
    begun = time.process_time()

    assert not any(name.startswith("matrix") for name in found(" ".join(words), limit=MAX_FOUND))
    assert found("stripe " + "x" * MAX_WORDS_CHARACTERS + " matrix") == found("stripe")
    assert found("create " * 100_000) == found("create")
    assert time.process_time() - begun < 5.0


def test_no_more_actions_are_found_than_the_limit_allows() -> None:
    """A smaller limit returns the beginning of the same list."""
    assert len(found("list")) == USUAL_FOUND
    assert len(found("list", limit=MAX_FOUND)) == MAX_FOUND
    assert found("list", limit=3) == found("list", limit=9)[:3]


def test_a_search_among_a_thousand_actions_is_fast() -> None:
    """A request takes some milliseconds once the texts are indexed; the bound is ten times that, for busy machines."""
    actions = [parse_action(text, file=f"{name}.md") for name, text in many_actions(1000).items()]
    finder = Finder()
    finder.find("create", actions)
    begun = time.process_time()
    for words, _ in requests():
        finder.find(words, actions)

    assert (time.process_time() - begun) / len(requests()) < 0.1


def test_no_line_of_synonyms_repeats_a_word() -> None:
    """A word may stand in several lines, because it can have several meanings."""
    for line in ALIKE:
        assert len(set(line.split())) == len(line.split()) >= 2, line
