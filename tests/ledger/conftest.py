"""Fixtures for a ledger on a real disk, with a clock that only the test moves: those of the audit, which stands on it."""

from __future__ import annotations

from tests.audit.conftest import clock, ledger, path

__all__ = ["clock", "ledger", "path"]
