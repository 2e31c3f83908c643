"""A reference to a secret elsewhere → its value, from whoever keeps it.

Runs in the daemon. Source: docs/reference/bindings.md, "Secrets that are kept elsewhere". Not here: when, and whether it is the
value that was approved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from aileron.elsewhere.key_value import KeyValueStores
from aileron.elsewhere.one_password import from_op
from aileron.elsewhere.password_store import from_pass
from aileron.elsewhere.programs import Programs
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere, SecretReference

__all__ = ["Fetcher"]


class Fetcher:
    """One for each daemon. `environment` is the daemon's: what a program gets of it is named where it is run. Without HOME, that
    is what the password database says.
    """

    def __init__(self, stores: KeyValueStores, programs: Programs, environment: Mapping[str, str]) -> None:
        self.stores: Final = stores
        self._programs: Final = programs
        self._environment: Final = {**environment, "HOME": environment.get("HOME") or os.path.expanduser("~")}

    def pinned(self, reference: SecretReference, token: str | None) -> Elsewhere:
        """The reference with the program that reads it, found now. AileronError(binding_failed) where it is not installed.

        Looks at files.
        """
        program = None if reference.kind == "vault" else self._programs.found(reference.kind, str(reference))
        return Elsewhere(str(reference), program=program, token=token)

    async def fetch(self, elsewhere: Elsewhere, token: Secret | None, deadline: float) -> Secret:
        """The value as it is there now. `token` is the value of the one that is named. `deadline` as in `anyio.current_time()`.

        AileronError(binding_failed), (network_error).
        """
        reference, token_name = elsewhere.parsed, elsewhere.token or ""
        if reference.kind == "vault":
            assert token is not None, "checked when it was stored"
            return await self.stores.read(reference, token, token_name, deadline)
        program, environment = elsewhere.program, self._environment
        assert program is not None, "checked when it was stored"
        if reference.kind == "op":
            return await from_op(self._programs, program, reference, token, token_name, environment, deadline)
        return await from_pass(self._programs, program, reference, environment, deadline)
