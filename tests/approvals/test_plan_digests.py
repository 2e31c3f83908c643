"""Digests of plans that earlier versions made: pending questions and recorded plans keep them."""

from __future__ import annotations

import msgspec
import pytest

from aileron.model.login import BoundLogin, LoginDetails, LoginTarget
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import Plan
from tests.approvals.conftest import step, use

PLAIN = "sha256:6de52fc42b883f424f86e8d8a9fcc17c34926741b17bd9c72a7304b40cf39faf"
LOGIN = "sha256:05af27f10b142f20a1a82a635c273c6dae1ccef8ea7ffc46d3d1503663ae3a35"


def with_login(plan: Plan) -> Plan:
    """Return the plan with a login, as plans were before they named the user who logs in."""
    need = CredentialNeed(kind="login", scope="Query", logins=(LoginTarget.parse("postgres://db.example.com:5432"),))
    return msgspec.structs.replace(plan, steps=(step(credential=msgspec.structs.replace(use("me"), need=need)),))


def test_a_plan_without_a_login_has_the_same_digest_as_in_versions_that_knew_no_logins(plan: Plan) -> None:
    """The digest is byte for byte the one from before plans named the user who logs in."""
    assert plan.digest == PLAIN
    assert Plan.from_json(plan.to_json()).digest == PLAIN


def test_an_older_plan_that_does_not_name_its_login_is_read_with_its_original_digest(plan: Plan) -> None:
    """The older plan says nothing about its login; a plan that does has another digest."""
    before = with_login(plan)
    (first,) = before.steps
    credential = msgspec.structs.replace(use("me"), bound=BoundLogin(username="me"))
    now = msgspec.structs.replace(
        before,
        steps=(msgspec.structs.replace(first, grant=msgspec.structs.replace(first.grant, credential=credential)),),
    )

    assert before.digest == LOGIN
    assert Plan.from_json(before.to_json()).digest == LOGIN
    assert now.digest != LOGIN


@pytest.mark.parametrize("field", LoginDetails.__struct_fields__)
def test_every_login_detail_is_part_of_a_plans_digest_and_of_the_comparison_of_logins(plan: Plan, field: str) -> None:
    """The test covers every field of the class, so also details that are added later."""
    default = getattr(LoginDetails(), field)
    said = msgspec.structs.replace(LoginDetails(), **{field: not default if isinstance(default, bool) else "x"})
    before, now = BoundLogin(username="me"), BoundLogin(username="me", details=said)
    digests = {
        msgspec.structs.replace(plan, steps=(step(credential=msgspec.structs.replace(use("me"), bound=bound)),)).digest
        for bound in (before, now)
    }

    assert len(digests) == 2
    assert len(before.changed_to(now)) == len(now.changed_to(before)) == 1
    assert before.changed_to(before) == now.changed_to(now) == ()
