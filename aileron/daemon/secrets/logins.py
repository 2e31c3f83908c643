"""Starts the login processes before the first login, if an installed connector has logins, because starting them takes half a
second.

Runs in the daemon. Not here: the processes (aileron/logins/keeper.py), who may log in (egress).
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from aileron.logins.keeper import Keeper
from aileron.model.login import LoginProtocol
from aileron.registry.content import ContentStore
from aileron.threads import in_thread

__all__ = ["start_early"]

EARLY_S: Final = 5.0
"""Seconds after the daemon's start at which the login processes are started: the client that started the daemon has got its
response by then.
"""
_log = logging.getLogger(__name__)


async def start_early(connectors: ContentStore, logins: Keeper) -> None:
    """Start the login processes once. A failure is logged; the first login tries to start them again, and reports a failure."""
    await anyio.sleep(EARLY_S)
    try:
        await logins.start(await in_thread(_protocols, connectors))
    except OSError as error:
        _log.error("the process that logs in could not be started: %s", error)


def _protocols(connectors: ContentStore) -> frozenset[LoginProtocol]:
    """Return the login protocols of all installed connectors."""
    manifests = [entry.manifest for entry in connectors.list_connectors() if entry.manifest is not None]
    needs = [manifest.credential for manifest in manifests if manifest.credential is not None]
    return frozenset(target.protocol for need in needs for target in need.logins)
