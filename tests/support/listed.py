"""Questions as the real daemon lists them, for daemons of a test's own making."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from aileron.api.approvals import ApprovalEntry
from aileron.cards.listed import listed

__all__ = ["in_a_list"]


def in_a_list(asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the fields that a list adds to questions (cards/listed.py). The test's own fields stay, as do other entries."""
    rows = [(question, entry) for question in asked if (entry := _entry(question)) is not None]
    files = {str(question.get("name")): question["granted_text"] for question in asked if question.get("granted_text")}
    stored = [
        (entry, json.dumps(question.get("plan") or question.get("subject")).encode(), bool(question.get("edits")))
        for question, entry in rows
    ]
    told = {entry.approval_id: msgspec.to_builtins(entry) for entry in listed(stored, files.get)}
    return [{**told.get(str(question.get("approval_id")), {}), **question} for question in asked]


def _entry(question: dict[str, Any]) -> ApprovalEntry | None:
    fields = {name: question[name] for name in ApprovalEntry.__struct_fields__ if name in question}
    try:
        entry = msgspec.convert(fields, ApprovalEntry)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(entry, asked_back="answered") if question.get("conversation") else entry
