"""Finding one action of many by words: 60 requests that were written before anything ranked them."""

from __future__ import annotations

from aileron.actions.manifest import parse_action
from tests.support.many_actions import many_actions, requests

MANY = {name: parse_action(text, file=f"{name}.md") for name, text in many_actions().items()}


def test_the_requests_mean_actions_that_there_are():
    """300 actions, 60 requests, each for one or a few of them."""
    assert len(MANY) == 300
    assert len(requests()) == 60
    assert len({words for words, _ in requests()}) == 60
    for words, wanted in requests():
        assert 1 <= len(wanted) <= 2, words
        assert wanted <= MANY.keys(), words
