"""A minimal plan, of which tests change one thing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.model.manifest import ApprovalRule, CredentialNeed, LimitsSpec
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, Step

MAIL, POST = "github://acme/mail", "github://acme/post"
NEED = CredentialNeed(kind="basic", scope="Send mail")


def use(identity: str, connector: str = MAIL) -> CredentialUse:
    """Return the credential `basic/mail/IDENTITY`."""
    return CredentialUse(connector=connector, binding=BindingName("basic", "mail", identity), need=NEED)


def step(connector: str = MAIL, *, hosts: tuple[str, ...] = ("mail.example.com:465",), **changes: Any) -> Step:
    """Return a step that sends."""
    credential = changes.pop("credential", use("home"))
    pin = ConnectorPin(connector, changes.pop("version", "1.2.0"), changes.pop("hash", "sha256:" + "ab" * 32))
    grant = Grant(hosts=tuple(map(HostPort.parse, hosts)), credential=credential)
    made = Step(id="send", connector=pin, op="send", args={}, idempotent=False, grant=grant, limits=LimitsSpec())
    return msgspec.structs.replace(made, **changes)


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Return the plan of a gated call that can be undone, with one credential."""
    return Plan(
        action="send-money",
        action_version="1.0.0",
        action_digest="sha256:" + "1" * 64,
        action_text="",
        args={"to": "ann@example.com", "amount": 10, "urgent": False},
        steps=(step(),),
        approval=ApprovalRule(required=True, irreversible=False),
    )
