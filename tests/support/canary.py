"""Search for a secret in everything that was left behind, in every shape it could have taken.

The shapes are made here, by other means than in aileron/egress/scrub.py, and there are more of them: a test that looked with
the scrubber's own list would agree with its gaps. Compressed streams are opened, wherever in a file they begin.

>>> find(b"x=" + base64.b64encode(b"a secret of ours"), b"a secret of ours")
['base64, 0 before']
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import os
import quopri
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["find", "scan", "shapes"]


def shapes(secret: bytes) -> dict[str, bytes]:
    """Return every shape of the secret, by the name of its encoding."""
    text = secret.decode("utf-8")
    made = {
        "as it is": secret,
        "reversed": secret[::-1],
        "first half": secret[: (len(secret) + 1) // 2],
        "second half": secret[len(secret) // 2 :],
        "hex": binascii.hexlify(secret),
        "HEX": binascii.hexlify(secret).upper(),
        "hex with spaces": " ".join(f"{byte:02x}" for byte in secret).encode(),
        "hex with colons": ":".join(f"{byte:02x}" for byte in secret).encode(),
        "backslash x": "".join(f"\\x{byte:02x}" for byte in secret).encode(),
        "octal": "".join(f"\\{byte:03o}" for byte in secret).encode(),
        "numbers": ", ".join(str(byte) for byte in secret).encode(),
        "numbers, compact": ",".join(str(byte) for byte in secret).encode(),
        "base32": base64.b32encode(secret).rstrip(b"=")[:-2],
        "ascii85": base64.a85encode(secret)[:-2],
        "base85": base64.b85encode(secret)[:-2],
        "quoted printable": quopri.encodestring(secret, quotetabs=True).strip(),
        "uuencode": binascii.b2a_uu(secret[:45])[1:-2],
        "rot13": codecs.encode(text, "rot13").encode(),
        "percent": urllib.parse.quote(secret, safe="").encode(),
        "percent, as a path": urllib.parse.quote(secret).encode(),
        "percent, lower": "".join(
            char if char.isalnum() or char in "-._~" else f"%{ord(char):02x}" for char in text
        ).encode(),
        "percent, all": "".join(f"%{byte:02X}" for byte in secret).encode(),
        "percent, all, lower": "".join(f"%{byte:02x}" for byte in secret).encode(),
        "form": urllib.parse.quote_plus(secret).encode(),
        "json": json.dumps(text)[1:-1].encode(),
        "json of PHP": json.dumps(text)[1:-1].replace("/", "\\/").encode(),
        "json, all": "".join(f"\\u{ord(char):04x}" for char in text).encode(),
        "json, all, upper": "".join(f"\\u{ord(char):04X}" for char in text).encode(),
        "html, decimal": "".join(f"&#{ord(char)};" for char in text).encode(),
        "html, hex": "".join(f"&#x{ord(char):x};" for char in text).encode(),
        "utf-16-le": text.encode("utf-16-le"),
        "utf-16-be": text.encode("utf-16-be"),
        "utf-32-le": text.encode("utf-32-le"),
        "utf-32-be": text.encode("utf-32-be"),
        "spaced": " ".join(text).encode(),
    }
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + secret)
        clear = whole[-(-before * 4 // 3) : (before + len(secret)) * 4 // 3]
        made[f"base64, {before} before"] = clear
        made[f"base64url, {before} before"] = clear.replace(b"+", b"-").replace(b"/", b"_")
    return made


def find(data: bytes, *secrets: bytes) -> list[str]:
    """Return the names of the secrets' shapes that occur in the data or in compressed streams in it; each once."""
    return _find(data, _sought(secrets))


def scan(paths: Iterable[Path], *secrets: bytes, without: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return every file below these paths with a shape of a secret in its name or content. `without`: names to skip.

    A file that vanishes meanwhile, or may not be read, does not count: it was not left for other programs to find.
    """
    leaks, left_out, sought = {}, set(without), _sought(secrets)
    for path in paths:
        for folder, _folders, names in os.walk(path):
            for name in names:
                file = Path(folder) / name
                if name not in left_out and (found := _find_in_file(file, sought)):
                    leaks[str(file)] = found
    return leaks


def _sought(secrets: Iterable[bytes]) -> list[tuple[str, bytes]]:
    """Return every shape of each secret, with its name: once for all files, because long tokens make this slower than the
    search.
    """
    return [shape for secret in secrets for shape in shapes(secret).items()]


def _find(data: bytes, sought: list[tuple[str, bytes]]) -> list[str]:
    return sorted({name for layer in _layers(data) for name, shape in sought if shape in layer})


def _find_in_file(file: Path, sought: list[tuple[str, bytes]]) -> list[str]:
    found = _find(os.fsencode(str(file)), sought)
    try:
        if file.is_file() and not file.is_symlink():
            found += _find(file.read_bytes(), sought)
    except OSError:
        pass
    return found


def _layers(data: bytes) -> Iterator[bytes]:
    """Yield the data, and the content of each gzip or zlib stream in it (at most 16 MiB of each), two levels deep."""
    yield data
    for inner in _inflated(data):
        yield inner
        yield from _inflated(inner)


def _inflated(data: bytes) -> Iterator[bytes]:
    for magic, wbits in ((b"\x1f\x8b\x08", 31), (b"\x78\x01", 15), (b"\x78\x9c", 15), (b"\x78\xda", 15)):
        at = data.find(magic)
        while at >= 0:
            try:
                inner = zlib.decompressobj(wbits).decompress(memoryview(data)[at:], 16 << 20)
            except zlib.error:
                inner = b""
            if inner:
                yield inner
            at = data.find(magic, at + 1)
