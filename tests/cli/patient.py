"""`aileron` that waits for the words of a daemon longer than somebody who types would: for tests of the words alone.

On a machine that stands still for a second a daemon that is there answers no sooner, and the real command offers nothing then.
"""

from __future__ import annotations

import sys

from aileron import __main__ as command
from aileron.cli import completing

__all__ = ["main"]


def main() -> int:
    """The exit code of the command in sys.argv."""
    completing._ANSWER_S = 20.0  # type: ignore[misc]
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
