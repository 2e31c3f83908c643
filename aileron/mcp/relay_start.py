"""Starting the daemon in a thread, while the relay continues to read its client. A descriptor signals that the start has ended.

Runs in the relay, and only if there is no daemon: its imports are expensive. Not here: the start itself (aileron.client).
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
"""Maximum number of seconds for all attempts to start a daemon; aileron.client allows 30 for one start."""
_PAUSE_S: Final = 0.1


class Starting:
    """A start of the daemon, in a thread. `done` is the descriptor of a pipe that becomes readable when the start has ended."""

    def __init__(self, home: str) -> None:
        self._home = Path(home)
        self._problem = ""
        self.done, self._over = os.pipe()
        # A daemon thread: the relay can end before the start has, and the started daemon keeps running.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Return the reason why there is no daemon, or an empty text if there is one. Call this method when `done` is
        readable.
        """
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
        """Start daemons until one answers. One start may not suffice: a new daemon exits at once while an old one,
        which is about to end, holds the lock.
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
                    raise  # such as a path that is too long
            if time.monotonic() > until:
                raise DaemonUnreachable(f"it was started and does not answer; see {self._home / 'logs' / 'daemon.log'}")
            time.sleep(_PAUSE_S)
