"""Fetches the value of a reference to a secret from the program or server that stores the secret.

Runs in the daemon. Source: docs/reference/bindings.md, "Secrets that are kept elsewhere". Not here: the time of fetching, and
checking that a value is the approved one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere, SecretReference
from aileron.secret_stores.key_value import KeyValueStores
from aileron.secret_stores.one_password import from_op
from aileron.secret_stores.password_store import from_pass
from aileron.secret_stores.programs import Programs

__all__ = ["Fetcher"]


class Fetcher:
    """The fetcher of the secrets that are stored in other programs or servers. Each daemon has one.

    `environment` is the daemon's. Each program gets only the variables that its module lists. If HOME is not
    set, it is taken from the password database.
    """

    def __init__(self, stores: KeyValueStores, programs: Programs, environment: Mapping[str, str]) -> None:
        self._stores: Final = stores
        self._programs: Final = programs
        self._environment: Final = {**environment, "HOME": environment.get("HOME") or os.path.expanduser("~")}

    def pinned(self, reference: SecretReference, token: str | None) -> Elsewhere:
        """Return the reference together with the path of the program that reads it, which is looked up now and used
        from now on.

        Raises AileronError(binding_failed) if the program is not installed. Reads the file system.
        """
        program = None if reference.kind == "vault" else self._programs.found(reference.kind, str(reference))
        return Elsewhere(str(reference), program=program, token=token)

    async def fetch(self, elsewhere: Elsewhere, token: Secret | None, deadline: float) -> Secret:
        """Return the current value of the secret that is stored at `elsewhere`. `token` is the value of the secret that
        `elsewhere.token` names. `deadline` is in the time of `anyio.current_time()`.

        Raises AileronError: binding_failed if the store does not give the secret, network_error if a server cannot be reached.
        """
        reference, token_name = elsewhere.parsed, elsewhere.token or ""
        if reference.kind == "vault":
            assert token is not None, "checked when it was stored"
            return await self._stores.read(reference, token, token_name, deadline)
        program, environment = elsewhere.program, self._environment
        assert program is not None, "checked when it was stored"
        if reference.kind == "op":
            return await from_op(self._programs, program, reference, token, token_name, environment, deadline)
        return await from_pass(self._programs, program, reference, environment, deadline)
