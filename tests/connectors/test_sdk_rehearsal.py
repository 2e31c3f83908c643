"""The template's rehearsal before there is a connector: a whole invocation that leaves nothing behind."""

from __future__ import annotations

import os

import pytest

from aileron.model.json_value import JSONObject
from aileron_connector import loop, operation
from aileron_connector.rehearsal import rehearse


def _descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_the_template_s_rehearsal_leaves_operations_and_descriptors_unchanged() -> None:
    """Operations, descriptors and the running conversation are as before, however often it runs."""
    known, open_before = dict(operation.OPERATIONS), _descriptors()
    for _ in range(3):
        rehearse()
    assert known == operation.OPERATIONS
    assert _descriptors() <= open_before  # some of another test may have been closed
    with pytest.raises(RuntimeError, match="no invocation is running"):
        loop.current()


def test_the_template_s_rehearsal_is_a_whole_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template calls an operation with checked arguments. A failing rehearsal raises its error, and still
    leaves nothing.
    """
    called: list[tuple[str, object]] = []
    original = operation.call

    def call(name: str, args: JSONObject) -> object:
        called.append((name, original(name, args)))
        return called[-1][1]

    monkeypatch.setattr(operation, "call", call)
    rehearse()
    assert called == [("rehearsed", {"text": "x", "count": 2, "names": ["y"]})]

    def broken(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(loop, "serve", broken)
    open_before = _descriptors()
    with pytest.raises(OSError, match="no"):
        rehearse()
    assert "rehearsed" not in operation.OPERATIONS
    assert _descriptors() <= open_before
