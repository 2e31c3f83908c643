"""Starting the daemon while the relay goes on reading its client: a thread that requests it, and a descriptor that tells its end.

Runs in the relay, and only if there is no daemon: its imports are expensive. Not here: how a daemon is started (aileron.client).
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from aileron.client import Client, DaemonUnreachable

__all__ = ["Starting"]

DEADLINE_S: Final = 45.0
"""Seconds in all; aileron.client gives one start 30."""
_PAUSE_S: Final = 0.1


class Starting:
    """A start that has begun. `done` is readable when it is over."""

    def __init__(self, home: str) -> None:
        self._home = Path(home)
        self._problem = ""
        self.done, self._over = os.pipe()
        # A daemon in both senses: the relay ends when its client does, and what was started here goes on.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Return why there is no daemon; empty if there is one. Call it when `done` is readable."""
        self._thread.join()
        os.close(self.done)
        return self._problem

    def _run(self) -> None:
        try:
            self._start()
        except (DaemonUnreachable, OSError, ValueError) as error:
            self._problem = f"the daemon cannot be started: {error}"
        finally:
            os.close(self._over)

    def _start(self) -> None:
        """Start daemons until one answers. One that is about to end still holds its lock: a new one takes it for the daemon, and
        ends too.
        """
        client, until = Client(self._home, operator=False), time.monotonic() + DEADLINE_S
        while True:
            try:
                client.ask("GET", "/healthz")
                return
            except (FileNotFoundError, ConnectionRefusedError):
                client.start()
            except DaemonUnreachable as error:
                if error.__cause__ is None or time.monotonic() > until:
                    raise  # the path is too long, say
            if time.monotonic() > until:
                raise DaemonUnreachable(f"it was started and does not answer; see {self._home / 'logs' / 'daemon.log'}")
            time.sleep(_PAUSE_S)
