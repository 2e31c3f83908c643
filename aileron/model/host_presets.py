"""Short names for the hosts that package managers need, such as `--allow-host npm`. A closed table. Pure.

A preset has only the hosts that an ordinary installation of public packages reaches; other registries must be given in full.
Each preset also lets data out, to anybody who can publish at the registry (docs/explanation/limitations.md).

>>> resolved_hosts(["crates", "example.com"])
('crates.io', 'index.crates.io', 'static.crates.io', 'example.com')

Source: the documentation of each registry; the observed requests of the tools. Not here: the grammar of hosts (names.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

__all__ = ["HOST_PRESETS", "resolved_hosts"]

HOST_PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "npm": ("registry.npmjs.org",),
        "pypi": ("pypi.org", "files.pythonhosted.org"),
        "github": (
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "objects.githubusercontent.com",
            "raw.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ),
        "crates": ("crates.io", "index.crates.io", "static.crates.io"),
        "go": ("proxy.golang.org", "sum.golang.org"),
        "debian": ("deb.debian.org", "security.debian.org"),
    }
)


def resolved_hosts(given: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts in `given` with the name of each preset replaced by the preset's hosts, in the given order, each
    at most once.
    """
    return tuple(dict.fromkeys(host for name in given for host in HOST_PRESETS.get(name, (name,))))
