"""Homes in which the probe connector can do all that it offers, for tests: it is installed, and its credential is bound.

    with probed_home(upstream.port) as home:
        home.add_probe_action("fetch", "path:string?")

Not here: homes with an approver (tests/support/approver.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.support.home import SECRET, DaemonHome, daemon_home

__all__ = ["lend_probe", "probed_home"]


def lend_probe(home: DaemonHome, host: str = "localhost:1", *, secret: bytes = SECRET, timeout_s: int = 10) -> None:
    """Install the probe connector, granted one host and `timeout_s` for a step; open the vault, and lend it the secret."""
    home.install_probe(host, timeout_s)
    home.unlock(secret)
    home.bind_probe()


@contextlib.contextmanager
def probed_home(port: int, settings: str = "", *, secret: bytes = SECRET, timeout_s: int = 10) -> Iterator[DaemonHome]:
    """Yield a home whose probe connector may reach this port of loopback; `settings` follow the permission in config.toml."""
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n{settings}')
        lend_probe(home, f"localhost:{port}", secret=secret, timeout_s=timeout_s)
        yield home
