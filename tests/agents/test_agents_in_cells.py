"""The five agents, as their makers publish them, each in a cell: the whole conversation of test_agents.py, and no secret leaves.

Not here: what each agent does with actions (test_agents.py), what a cell keeps from an agent (tests/launch, tests/attacks).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.agents import ALL
from tests.agents.llm.server import LAST_WORDS
from tests.agents.observe import UPSTREAM_KEY, Seen, cells, documented, observed
from tests.agents.script import GREETING, REASON
from tests.support.canary import find
from tests.support.home import PASSPHRASE, SECRET

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=list(ALL))
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """Return the observed conversation of one agent in a cell."""
    with observed(ALL[request.param], "--jail") as conversation:
        yield conversation


def test_the_conversation_in_a_cell_reaches_its_end(seen: Seen) -> None:
    """Ungated, approved and denied calls and requests to the model all get through the cell's sockets."""
    assert seen.model.is_finished, f"{seen.model.problem}\n{seen.ended.out[-3000:]}\n{seen.ended.err[-3000:]}"
    assert seen.ended.code == 0, seen.ended.err[-3000:]
    assert LAST_WORDS in seen.ended.out
    assert seen.session["cell"] is not None
    assert seen.notes.called is not None
    assert GREETING in seen.notes.called.text
    assert seen.notes.approved is not None
    assert "may I" in seen.notes.approved.text
    assert seen.notes.denied is not None
    assert REASON in seen.notes.denied.text


def test_an_agent_in_a_cell_behaves_as_the_reference_page_about_agents_says(seen: Seen) -> None:
    """Every row of docs/reference/agents.md is the same as for an agent outside a cell."""
    assert cells(seen) == documented()[seen.agent.name]


def test_the_key_and_the_token_stay_outside_the_cell(seen: Seen) -> None:
    """The model's key is added by the gateway; the session's token is in nothing that the agent wrote, said or sent."""
    secrets = (UPSTREAM_KEY.encode(), SECRET, PASSPHRASE.encode(), seen.tap.token.encode())

    assert [asked.key for asked in seen.model.turns] == [UPSTREAM_KEY] * len(seen.model.turns)
    assert seen.leaks == {}
    assert find((seen.ended.out + seen.ended.err).encode(), *secrets) == []


def test_an_agent_in_a_cell_does_not_change_its_configuration(seen: Seen) -> None:
    """The person's configuration is as it was, byte for byte."""
    assert seen.changed == []
