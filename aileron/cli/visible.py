"""Hostile text made harmless, for the commands: aileron/model/visible.py."""

from __future__ import annotations

from aileron.model.visible import visible, visible_json, visible_lines

__all__ = ["visible", "visible_json", "visible_lines"]
