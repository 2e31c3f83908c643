"""Prism, a server that answers as a document says and refuses what the document does not allow; for documents of the cache.

    with enforcing(document, tools) as at:     # `at.file` is what it enforces, `at.upstream` where it listens

The document is the published one, but for where its service is: it is at the server's own root, because Prism does not look at
the path of `servers`. Answers are made up, from a seed, so that two runs get the same ones.

Not here: what is called (contract.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.trial.bench import LocalUpstream
from tests.documents.install import Tools
from tests.documents.table import Document

__all__ = ["Enforced", "enforcing", "enforcing_json"]

_START_S: Final = 90.0
_SEED: Final = "aileron"


@dataclasses.dataclass(frozen=True)
class Enforced:
    """A document at a server."""

    file: Path
    upstream: LocalUpstream


@contextlib.contextmanager
def enforcing(document: Document, tools: Tools) -> Iterator[Enforced]:
    """Prism with this document, which is JSON, until the end of the block."""
    with enforcing_json(json.loads((tools.documents / document.file).read_bytes()), tools) as at:
        yield at


@contextlib.contextmanager
def enforcing_json(document: dict[str, Any], tools: Tools) -> Iterator[Enforced]:
    """The same with a document that is not in the cache, such as a part of one."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="ail-") as folder:
        file, log = Path(folder, "document.json"), Path(folder, "log")
        placed = _placed(document, f"http://localhost:{port}")
        file.write_text(json.dumps(placed), encoding="utf-8")
        options = ["--dynamic", "--errors", "--seed", _SEED, "--host", "127.0.0.1", "--port", str(port)]
        with log.open("wb") as written:
            process = subprocess.Popen(
                [tools.node, tools.prism, "mock", *options, file],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        try:
            _wait_ready(process, port, log)
            yield Enforced(file, LocalUpstream.parse(f"http://localhost:{port}"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _placed(document: dict[str, Any], url: str) -> dict[str, Any]:
    """The document with its service at this place, and nowhere else."""
    document["servers"] = [{"url": url}]
    for item in document["paths"].values():
        for part in (item, *item.values()):
            if isinstance(part, dict):
                part.pop("servers", None)
    return document


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"Prism does not listen; it said: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
