"""Reading a secret from standard input: text and keys unchanged, PEM without the text between its blocks, and no DER."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from aileron.cli.problem import Problem
from aileron.cli.prompts import read_secret
from tests.support.client_certificates import ClientAuthority


def read(monkeypatch: pytest.MonkeyPatch, data: bytes) -> bytes:
    """Return the secret that is read from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return read_secret("key")


def in_der(pem: bytes) -> bytes:
    """Convert the certificate to DER, as a browser exports one."""
    command = ["openssl", "x509", "-outform", "der"]
    return subprocess.run(command, input=pem, capture_output=True, check=True, timeout=30).stdout


def test_a_der_certificate_is_refused_but_a_random_key_that_resembles_it_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """About one random key in 256 starts with the first byte of DER; such a key must be accepted."""
    der = in_der(ClientAuthority(tmp_path_factory.mktemp("authority")).issue())
    for whole in (der, b"\x30\x80" + der[4:] + b"\0\0"):
        with pytest.raises(Problem, match="is in the form DER; PEM is required"):
            read(monkeypatch, whole)
    rest = bytes(range(0x80, 0x100)) * 2
    for key in (
        b"\x30" + rest,
        b"\x30\x82\xff\xff" + rest,
        b"\x30\x81\xff" + rest,
        der[:-1],
        der + b"\x01",
        b"\x30\x80" + rest,
    ):
        assert read(monkeypatch, key) == key
