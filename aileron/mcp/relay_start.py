"""Starting the daemon while the client is listened to: a thread that asks for it, and a descriptor that says when it is over.

Runs in the relay, and only where there is no daemon: what it imports is dear. Not here: how a daemon is started (aileron.client).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from aileron.client import Client, DaemonUnreachable

__all__ = ["Starting"]


class Starting:
    """One start that has begun. `done` is readable when it is over; aileron.client has the deadlines."""

    def __init__(self, home: str) -> None:
        self._home = Path(home)
        self._problem = ""
        self.done, self._over = os.pipe()
        # A daemon in both senses: the relay ends when its client does, and what was started here goes on.
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Why there is no daemon; empty if there is one. Call it when `done` is readable."""
        self._thread.join()
        os.close(self.done)
        return self._problem

    def _start(self) -> None:
        try:
            Client(self._home, operator=False).request("GET", "/healthz")
        except (DaemonUnreachable, OSError, ValueError) as error:
            self._problem = f"the daemon cannot be started: {error}"
        finally:
            os.close(self._over)
