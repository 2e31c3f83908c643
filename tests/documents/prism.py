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
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.connector_tests.bench import LocalUpstream
from tests.documents.install import Tools
from tests.documents.table import Document
from tests.support.ports import reserve_ports
from tests.support.waiting import wait_listening

__all__ = ["Enforced", "enforcing", "enforcing_json"]

_START_S: Final = 90.0
_SEED: Final = "aileron"


@dataclasses.dataclass(frozen=True)
class Enforced:
    """A document, and the server that enforces it."""

    file: Path
    upstream: LocalUpstream


@contextlib.contextmanager
def enforcing(document: Document, tools: Tools) -> Iterator[Enforced]:
    """Run Prism with this document, which is JSON, until the end of the block."""
    with enforcing_json(json.loads((tools.documents / document.file).read_bytes()), tools) as at:
        yield at


@contextlib.contextmanager
def enforcing_json(document: dict[str, Any], tools: Tools) -> Iterator[Enforced]:
    """Run Prism with a document that is not in the cache, such as a part of one."""
    (port,) = reserve_ports(1)
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
            wait_listening(process, port, says=log.read_text, within_s=_START_S)
            yield Enforced(file, LocalUpstream.parse(f"http://localhost:{port}"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _placed(document: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the document with its service at this URL, and nowhere else."""
    document["servers"] = [{"url": url}]
    for item in document["paths"].values():
        for part in (item, *item.values()):
            if isinstance(part, dict):
                part.pop("servers", None)
    return document
