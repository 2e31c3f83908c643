"""Tests that the product's regular expressions mean the same on every supported Python.

Before Python 3.11.5 a possessive quantifier behind a group, and an atomic group, may count what did not match (gh-106052).
Debian 12 has 3.11.2, and a filter that is written with one passes text there that it drops elsewhere. A possessive quantifier
behind a set of characters works correctly.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("aileron", "sandbox", "connectors")
SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
POSSESSIVE = re.compile(r"\A[*+?]\+(?!\+)|\)(?:[*+?]|\{[0-9,]+\})\+(?!,;=)|\(\?>")
"""Pattern of a possessive quantifier behind a group, or at the start of a text, which may be put behind another text.

A match followed by `,;=` would be a list of characters (RFC 3986), and is left out.
"""


def _texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def _wrong(source: str) -> list[str]:
    return [text for text in _texts(source) if POSSESSIVE.search(SET.sub("[]", text))]


def test_no_regular_expression_has_a_possessive_quantifier_after_a_group() -> None:
    """Supported Python versions match it differently. The control: each form that the product once had is found."""
    for wrong in (r'r"(?:[a-z]++|b)++"', r'"a" + r"++|b"', r'r"(?:a|b){2,3}+"', r'r"(?>ab)"', r'b"(?:a)*+"'):
        assert _wrong(f"x = {wrong}") != [], wrong
    for right in (r'r"[a-z]++b"', r'r"[\x20-\x3f]*+"', r'''r"[!$&'()*+,;=]"''', r'r"(a)+"'):
        assert _wrong(f"x = {right}") == [], right

    found = {
        (str(path.relative_to(ROOT)), text)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for text in _wrong(path.read_text(encoding="utf-8"))
    }

    assert found == set()
