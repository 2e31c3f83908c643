"""All reference connectors in one home: an agent never takes an action of one for an action of another."""

from __future__ import annotations

import collections

from aileron.actions.manifest import parse_action
from aileron.model.names import tool_name
from tests.support.plain_host import ROOT


def test_no_two_reference_connectors_have_an_action_with_the_same_name() -> None:
    """The tool names differ too: a person with mail by IMAP and by Google installs both. A folder has its action's name."""
    folders = sorted(ROOT.glob("connectors/*/actions/*/action.md"))
    actions = [parse_action(path.read_text(), file=str(path), allow_placeholder=True) for path in folders]
    owners = collections.defaultdict(set)
    for path, action in zip(folders, actions, strict=True):
        owners[tool_name(action.name)].add(path.parents[2].name)

    assert len({path.parents[2] for path in folders}) == 12
    assert {tool: names for tool, names in owners.items() if len(names) > 1} == {}
    assert [action.name for action in actions] == [path.parent.name for path in folders]
