"""Releases of the reference connectors, as they are in this repository."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.registry.connector_build import Application
from aileron.registry.release import release
from aileron.registry.signatures import SigningKey
from tests.support.plain_host import ROOT

BOUND: dict[str, dict[str, Any]] = {
    "google": {"application": Application(client_id="a-client", client_secret=Secret(b"a-secret"))},
    "caldav": {"hosts": [HostPort("cal.example.com", 443)]},
    "matrix": {"hosts": [HostPort("matrix.example.com", 443)]},
    "github": {},
    "telegram": {},
    "stripe": {},
}


@pytest.mark.parametrize("name", sorted(BOUND))
def test_a_reference_connector_is_released_with_all_of_its_actions(name: str) -> None:
    """Each archive passes the checks of an install, and says by itself where it is published."""
    folder = ROOT / "connectors" / name
    key = SigningKey(Secret(b"r" * 32))
    done = release(folder, "0.1.0", parse=parse_action, fits=check_action, key=key, **BOUND[name])

    actions = sorted(path.parent.name for path in folder.glob("actions/*/action.md"))
    assert [artifact.tag for artifact in done.artifacts] == [
        "v0.1.0",
        *(f"actions/{action}/v0.1.0" for action in actions),
    ]
    assert {artifact.name.split("/actions/")[0] for artifact in done.artifacts} == {
        f"github://aileron/connector-{name}"
    }
