"""The `aileron` command with a longer wait for the daemon's completions: for tests of the offered words alone.

On a machine that stalls for a second a running daemon answers no sooner, and the real command offers nothing then.
"""

from __future__ import annotations

import sys

from aileron import __main__ as command
from aileron.cli import completing

__all__ = ["main"]


def main() -> int:
    """Run the command in sys.argv and return its exit code."""
    completing._ANSWER_S = 20.0  # type: ignore[misc]
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
