"""`aileron demo-server`: a small service on this machine, for a first connector and action."""

from __future__ import annotations

import errno
import secrets
import socket
from datetime import datetime
from typing import Annotated

from aileron.cli import output
from aileron.cli.declared import Option
from aileron.cli.problem import Problem
from aileron.model.visible import visible

__all__ = ["demo_server"]

_PORT = 8765


def demo_server(
    port: Annotated[int, Option("--port", metavar="PORT", min=1, max=65535, help="Port on localhost.")] = _PORT,
) -> None:
    """Start a small notes service to try your first action on.

    It needs an API key, keeps everything in memory, listens on localhost only, and runs until you press Ctrl-C.
    """
    import anyio

    listener = _listen(port)
    anyio.run(_serve, listener, f"localhost:{port}")
    output.note("\nstopped; the notes are gone")


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why, fix = "another program uses this port", f"aileron demo-server --port {port % 65535 + 1}"
        else:
            why, fix = error.strerror or str(error), "aileron demo-server --port PORT"
        raise Problem.usage(f"cannot use port {port}", why=why, fix=fix) from None


def _introduce(address: str, key: str) -> None:
    """Print everything that a person needs to use the server, because a newcomer has read no documentation yet."""
    output.print_facts([("address", f"http://{address}"), ("API key", key)])
    if address not in _allowed():
        output.note(
            "\nThis server speaks HTTP without TLS, which Aileron refuses unless you allow it. In another terminal:\n\n"
            f"  aileron config add egress.private_plain {address}"
        )
    output.note("\nRequests appear below. Press Ctrl-C to stop.\n")


def _allowed() -> set[str]:
    """Return the hosts that this home's config.toml lets Aileron reach without TLS; empty if it cannot be read."""
    from aileron.cli.settings import read_text
    from aileron.config import parse_settings
    from aileron.home import Home
    from aileron.model.failure import AileronError

    path = Home.from_environment().config
    try:
        return set(map(str, parse_settings(read_text(path), path).egress_private_plain))
    except (AileronError, Problem):  # `config add` reports what is wrong with it
        return set()


async def _serve(listener: socket.socket, address: str) -> None:
    import signal

    import anyio

    from aileron.cli.notes_server import NotesServer, serve

    key = f"demo-{secrets.token_hex(16)}"
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        _introduce(address, key)

        async def stopped() -> None:
            async for _ in signals:
                return

        await serve(NotesServer(key, _log).app, listener, stopped)


def _log(method: str, path: str, status: int) -> None:
    why = "  (missing or outdated API key)" if status == 401 else ""
    output.note(f"{datetime.now():%H:%M:%S}  {status}  {method} {visible(path)}{why}")
