"""Detection of hosts whose name could be taken for that of a known host.

A host resembles a known host if its name contains the letters of the known host's domain, or if its own domain differs from
that domain by at most one letter.

Pure. The result only draws a person's attention, and allows or refuses nothing, because other hosts can be just as bad.

Rules
- A host below the domain of a known host does not count as a look-alike, because it has the same owner.
- Dots and hyphens are ignored; `0` equals `o`, and `1`, `i` and `l` are equal.

>>> looks_like("api.acme-example.test", ["api.acme.example"])
'api.acme.example'
>>> looks_like("files.acme.example", ["api.acme.example"]), looks_like("paste.example", ["api.acme.example"])
(None, None)

Source: docs/reference/console.md. Not here: letters of other alphabets (plan.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["looks_like"]

_LEAST: Final = 6
"""Minimum number of letters of a known domain for it to be compared; shorter ones are part of many names."""
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l", ".": None, "-": None})


def looks_like(host: str, known: Iterable[str]) -> str | None:
    """Return the known host name, without port, that `host` could be taken for.

    None if `host` is in the domain of a known host, or resembles none.
    """
    others = [(name, _domain(name)) for name in known]
    if any(host == domain or host.endswith(f".{domain}") for _, domain in others):
        return None
    return next((name for name, domain in others if _resembles(host, domain)), None)


def _domain(host: str) -> str:
    """Return the domain of a host, in which its owner may have more hosts: the host without its first label, if two
    labels remain.
    """
    _, _, rest = host.partition(".")
    return rest if "." in rest else host


def _resembles(host: str, domain: str) -> bool:
    ours, theirs = _letters(host), _letters(domain)
    if len(theirs) < _LEAST:
        return False
    return theirs in ours or _is_one_off(_letters(_domain(host)), theirs)


def _letters(name: str) -> str:
    return name.lower().translate(_ALIKE)


def _is_one_off(text: str, other: str) -> bool:
    """Return whether the two texts are equal, or differ by one inserted, removed or changed letter."""
    short, long = sorted((text, other), key=len)
    if len(long) - len(short) > 1:
        return False
    same = next((at for at, letter in enumerate(short) if letter != long[at]), len(short))
    return short[same:] == long[same + 1 :] or short[same + 1 :] == long[same + 1 :]
