"""The base that every room of the daemon needs: the home's files, the record, the vault, and the settings.

Runs in the daemon; built first (supervise.py). This module imports no room.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from aileron.actions.approved_texts import ApprovedTexts
from aileron.actions.store import ActionStore
from aileron.audit.log import Audit
from aileron.config import LiveSettings, Settings
from aileron.home import Home
from aileron.ledger.sqlite import Ledger
from aileron.registry.content import ContentStore
from aileron.registry.staging import PublishedTexts, Staging
from aileron.vault.vault import Vault

__all__ = ["Foundation"]


class Foundation(msgspec.Struct, frozen=True, kw_only=True):
    """The shared objects of one daemon, which its services get as one value. `wanted` are the settings of config.toml when the
    daemon starts. `review` is the base URL of the pages; `note_bound` is called when a credential has changed; `changing` is
    the lock held during every change to this home.
    """

    home: Home
    started_at: float
    settings: LiveSettings
    wanted: Settings
    port: int
    review: str
    layers: tuple[str, ...]
    ledger: Ledger
    audit: Audit
    vault: Vault
    actions: ActionStore
    connectors: ContentStore
    texts: ApprovedTexts
    staging: Staging
    published: PublishedTexts
    note_bound: Callable[[], None]
    changing: anyio.Lock
