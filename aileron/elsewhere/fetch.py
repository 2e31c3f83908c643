"""Fetches the value of a reference to a secret elsewhere, from the program or server that keeps it.

Runs in the daemon. Source: docs/reference/bindings.md, "Secrets that are kept elsewhere". Not here: when a value is fetched,
and whether it is the approved one.
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
    """The fetcher of secrets from other stores; one for each daemon.

    `environment` is the daemon's. The module that runs a program names the variables that the program gets. If HOME is not
    set, it is taken from the password database.
    """

    def __init__(self, stores: KeyValueStores, programs: Programs, environment: Mapping[str, str]) -> None:
        self.stores: Final = stores
        self._programs: Final = programs
        self._environment: Final = {**environment, "HOME": environment.get("HOME") or os.path.expanduser("~")}

    def pinned(self, reference: SecretReference, token: str | None) -> Elsewhere:
        """Return the reference pinned to the program that reads it, which is looked up now.

        Raise AileronError(binding_failed) if the program is not installed. Reads the file system.
        """
        program = None if reference.kind == "vault" else self._programs.found(reference.kind, str(reference))
        return Elsewhere(str(reference), program=program, token=token)

    async def fetch(self, elsewhere: Elsewhere, token: Secret | None, deadline: float) -> Secret:
        """Return the current value. `token` is the value of the secret that `elsewhere.token` names. `deadline` is in the time
        of `anyio.current_time()`.

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
