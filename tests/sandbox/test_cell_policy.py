"""Tests that a cell's policy is checked when it is built: paths that could mean another path, numbers out of range."""

from __future__ import annotations

from typing import Any

import pytest

from aileron_sandbox.cell.policy import Bind, CellPolicy, Overlay

_USR = Bind("/usr", "/usr")


def _policy(**changed: Any) -> CellPolicy:
    return CellPolicy(**{"folder": "/work", "home": "/home/you", "binds": (_USR,), **changed})


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/a/./b", "/a//b", "//a", "/a/", "/a\0b"])
def test_an_ambiguous_path_is_refused(path: str) -> None:
    """Each field of the policy that takes a path is tried."""
    with pytest.raises(ValueError, match="absolute path"):
        Bind(path, "/usr")
    with pytest.raises(ValueError, match="absolute path"):
        Overlay("/a", path, "/b", "/c")
    for changed in (
        {"folder": path},
        {"masked": (path,)},
        {"files": ((path, b""),)},
        {"unix_listeners": (("a", path),)},
    ):
        with pytest.raises(ValueError, match="absolute path"):
            _policy(**changed)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"binds": ()}, "binds"),
        ({"tcp_listeners": (("web", 0),)}, "port"),
        ({"processes": 1}, "processes"),
        ({"memory_bytes": 1}, "memory_bytes"),
        ({"files": (("/etc/hosts", b"x" * 70000),)}, "bytes of a file"),
    ],
)
def test_a_value_out_of_its_range_is_refused(changed: dict[str, Any], what: str) -> None:
    """The value is never silently clamped."""
    with pytest.raises(ValueError, match=what):
        _policy(**changed)


def test_a_valid_cell_policy_is_accepted() -> None:
    """This is the positive control for the two refusals above."""
    assert _policy(tcp_listeners=(("web", 20480),)).binds == (_USR,)
