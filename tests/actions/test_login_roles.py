"""Operations that run as a role that only reads have bindings of their own and use no others, and no other operation
uses theirs.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.choosing import choices, credentials
from aileron.model.credential import Candidate, Reach
from aileron.model.failure import AileronError, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest, CredentialNeed
from aileron.model.names import BindingName, Fqn, HostPort
from tests.support.refusals import refusal_of

DATABASE = "github://acme/database"
MANIFEST = ConnectorManifest(
    name=Fqn.parse(DATABASE),
    version="1.0.0",
    hosts=(HostPort("db.example.com", 5432),),
    credential=CredentialNeed(
        kind="login", scope="Query", logins=(LoginTarget.parse("postgres://db.example.com:5432"),)
    ),
)
BOTH: dict[str, Any] = {"manifests": {"writes": MANIFEST, "reads": MANIFEST}, "reading": frozenset({"reads"})}


def bound(identity: str, *, read_only: bool) -> Candidate:
    """Return a binding made for what the manifest asks for."""
    return Candidate(name=BindingName("login", "db", identity), reach=Reach.of(MANIFEST), read_only=read_only)


class Vault:
    """A vault with these bindings."""

    def __init__(self, *found: Candidate) -> None:
        self._found = found

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        """Return all bindings, for the one connector."""
        return list(self._found)


def used(*found: Candidate, wanted: str | None = None) -> dict[str, tuple[str, object]]:
    """Return, by key, the identity and the role of the credential used."""
    uses = credentials(wanted, bindings=Vault(*found), **BOTH)
    return {key: (use.binding.identity, use.login) for key, use in uses.items() if use is not None}


READER, OTHER = bound("reader", read_only=True), bound("other", read_only=True)
WRITER = bound("writer", read_only=False)


def test_each_operation_uses_the_binding_for_its_login_role() -> None:
    """The plan says which credential is the read-only one."""
    found = used(READER, WRITER)

    assert found["reads"] == ("reader", "read_only")
    assert found["writes"][0] == "writer"
    assert found["writes"][1] != "read_only"


@pytest.mark.parametrize(("there", "missing"), [(WRITER, " --read-only"), (READER, "")])
def test_a_missing_binding_for_a_login_role_is_reported_with_the_command_to_bind_it(
    there: Candidate, missing: str
) -> None:
    """A writing credential does not replace a read-only one, nor the reverse."""
    with pytest.raises(AileronError) as caught:
        used(there)

    failure = caught.value.failure
    assert failure.failure_class is FailureClass.BINDING_REQUIRED
    assert failure.details["setup"] == (
        f"aileron binding setup {DATABASE} --name login/SERVICE/IDENTITY --username USER --secret NAME{missing}"
    )
    assert failure.details.get("read_only") is (True if missing else None)


def test_a_choice_between_read_only_credentials_leaves_out_the_writing_one() -> None:
    """The writer serves only operations that write."""
    assert refusal_of(used, READER, OTHER, WRITER).details["choices"] == ["login/db/other", "login/db/reader"]
    assert used(READER, OTHER, WRITER, wanted="other")["reads"] == ("other", "read_only")
    offered = choices(BOTH["manifests"], Vault(READER, OTHER, WRITER), reading=BOTH["reading"])
    assert [choice.value for choice in offered] == ["other", "reader"]


@given(st.lists(st.booleans(), max_size=4), st.sampled_from([None, "0", "1", "login/db/2"]))
def test_a_binding_for_one_login_role_is_never_used_for_the_other_role(roles: list[bool], wanted: str | None) -> None:
    """This holds whatever is bound and whatever is named."""
    found = [bound(str(number), read_only=read_only) for number, read_only in enumerate(roles)]
    by_name = {str(binding.name): binding for binding in found}
    try:
        uses = credentials(wanted, bindings=Vault(*found), **BOTH)
    except AileronError as error:
        assert error.failure.failure_class is FailureClass.BINDING_REQUIRED  # noqa: PT017 - either is right
        return
    for key, use in uses.items():
        assert use is not None
        assert by_name[str(use.binding)].read_only is (key == "reads")
