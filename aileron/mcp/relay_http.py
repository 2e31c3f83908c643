"""AILERON_URL."""

from __future__ import annotations

__all__ = ["main"]


def main() -> int:
    """Later."""
    return 2
