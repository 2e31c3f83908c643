"""Client certificates of a test's own authority, in one PEM value with their private keys, as a person would store them."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Final

import trustme

__all__ = ["ClientAuthority", "as_secret"]

_DAY: Final = datetime.timedelta(days=1)


def as_secret(issued: trustme.LeafCert) -> bytes:
    """Return the certificate chain, followed by the private key."""
    pieces = [*issued.cert_chain_pems, issued.private_key_pem]
    return b"".join(piece.bytes() for piece in pieces)


class ClientAuthority:
    """An authority that issues client certificates. `ca_file` is its certificate, for a server that verifies them.

    `has_intermediate`: another authority issues them, whose certificate is part of each chain.
    """

    def __init__(self, directory: Path, *, has_intermediate: bool = False) -> None:
        root = trustme.CA()
        self._ca = root.create_child_ca() if has_intermediate else root
        self.ca_file = directory / "client-ca.pem"
        root.cert_pem.write_to_path(str(self.ca_file))
        self._over_at = 0.0

    def issue(self, name: str = "mira@example.test", key: trustme.KeyType = trustme.KeyType.ECDSA) -> bytes:
        """Issue a certificate that is valid now."""
        return as_secret(self._ca.issue_cert(name, common_name=name, key_type=key))

    def issue_for(self, begins_in: int, ends_in: int, name: str = "mira@example.test") -> bytes:
        """Issue a certificate that is valid between two days, counted from now."""
        now = datetime.datetime.now(datetime.UTC)
        issued = self._ca.issue_cert(
            name, common_name=name, not_before=now + begins_in * _DAY, not_after=now + ends_in * _DAY
        )
        return as_secret(issued)

    def issue_for_seconds(self, ends_in_s: float, name: str = "mira@example.test") -> bytes:
        """Issue a certificate that expires soon: see `wait_until_over`."""
        now = datetime.datetime.now(datetime.UTC)
        until = (now + datetime.timedelta(seconds=ends_in_s)).replace(microsecond=0)
        self._over_at = until.timestamp()
        return as_secret(self._ca.issue_cert(name, common_name=name, not_before=now - _DAY, not_after=until))

    def wait_until_over(self) -> None:
        """Wait until the last certificate of `issue_for_seconds` has expired."""
        time.sleep(max(self._over_at - time.time(), 0.0) + 0.05)
