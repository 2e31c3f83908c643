"""Consistency of the files that a release is made from: the version, the changelog, and the pinned builder."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from aileron import __version__

ROOT = Path(__file__).resolve().parents[2]
DATE = r"\d{4}-\d{2}-\d{2}"


def test_the_changelog_lists_the_versions_in_order() -> None:
    """Unreleased changes are on top, then this version, then older ones; each version has its release date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## (.*)$", text, re.MULTILINE)
    cut = [re.fullmatch(rf"\[(\d+\.\d+\.\d+)\] - {DATE}", heading) for heading in released]

    assert first == "[Unreleased]"
    assert None not in cut, released
    versions = [tuple(map(int, match[1].split("."))) for match in cut if match]
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(map(str, versions[0])) == __version__


def test_the_build_backend_is_pinned() -> None:
    """Another version would write other bytes, so its exact version is required."""
    pins = dict(
        line.split("==")
        for line in (ROOT / ".ci" / "release-tools.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]

    assert {re.split(r"[<>=~!]", line)[0] for line in asked} <= pins.keys()
    assert "cyclonedx-bom" in pins
