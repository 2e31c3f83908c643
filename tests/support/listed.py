"""Questions as the real daemon lists them, for daemons of a test's own making."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from aileron.api.approvals import ApprovalEntry
from aileron.review.listed import listed

__all__ = ["in_a_list"]


def in_a_list(asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what a list says of them (review/listed.py); what a test says of one itself stays, as does what is no question."""
    rows = [(one, entry) for one in asked if (entry := _entry(one)) is not None]
    files = {str(one.get("name")): one["granted_text"] for one in asked if one.get("granted_text")}
    stored = [
        (entry, json.dumps(one.get("plan") or one.get("subject")).encode(), bool(one.get("edits")))
        for one, entry in rows
    ]
    told = {entry.approval_id: msgspec.to_builtins(entry) for entry in listed(stored, files.get)}
    return [{**told.get(str(one.get("approval_id")), {}), **one} for one in asked]


def _entry(one: dict[str, Any]) -> ApprovalEntry | None:
    fields = {name: one[name] for name in ApprovalEntry.__struct_fields__ if name in one}
    try:
        entry = msgspec.convert(fields, ApprovalEntry)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(entry, asked_back="answered") if one.get("conversation") else entry
