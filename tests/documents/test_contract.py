"""Imported operations of five services, called in the real jail against a server that enforces the same document.

About 60 operations of each; with AILERON_DOCUMENTS=all every one, which takes some minutes.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections import Counter
from typing import Final

import pytest

from tests.documents.contract import CALLED, OF_DOCUMENT, OF_PRISM, calls
from tests.documents.install import Tools
from tests.documents.prism import enforcing
from tests.documents.table import named

pytestmark = [pytest.mark.jail, pytest.mark.timeout(600)]
MOST: Final = None if os.environ.get("AILERON_DOCUMENTS") == "all" else 60
UNSEEN_AT_MOST: Final = 0.1
"""Largest share of the calls for which Prism may fail by itself: with more, the test would say little."""


@pytest.mark.parametrize("name", CALLED)
def test_requests_and_responses_both_follow_the_document(name: str, tools: Tools) -> None:
    """Prism accepts the connector's requests, and the connector accepts Prism's responses."""
    made = list(calls(named(name), tools, most=MOST))

    assert len(made) >= 50
    assert {call.op: call.problem for call in made if call.problem is not None} == {}
    unseen = Counter(call.reason for call in made if call.reason is not None)
    assert set(unseen) <= {*OF_PRISM, *OF_DOCUMENT.values()}
    assert unseen.total() <= UNSEEN_AT_MOST * len(made)


def test_the_server_enforces_its_document(tools: Tools) -> None:
    """This is the control of the other test: a body without a required property is refused."""
    with enforcing(named("gitea"), tools) as at:
        place = f"http://{at.upstream.address}/repos/me/notes/issues"
        answers = [_posted(place, body) for body in ({}, {"title": "Call Jo"})]

    assert answers[0] in (422, 500)
    assert answers[1] == 201


def _posted(url: str, body: object) -> int:
    """Send a POST; return the status."""
    headers = {"Content-Type": "application/json", "Authorization": "token test"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
