"""The scripted model for a terminal: `python -m tests.agents.llm give_back text=hello` has one call as its script.

Prints the lines of configuration that lead the gateway to it, then what the model is shown. Ends with Ctrl-C. Every conversation
gets the same script. Not here: an agent (`aileron launch`).
"""

from __future__ import annotations

import sys
import threading

from tests.agents.llm.server import LanguageModel, Script


def main() -> None:
    """Serve until interrupted."""
    name, *pairs = sys.argv[1:] or ["list_pending"]
    args = dict(pair.split("=", 1) for pair in pairs)

    def script() -> Script:
        turn = yield name, args
        print(turn.shown.text, flush=True)

    with LanguageModel(script, again=True) as model:
        for provider in ("anthropic", "openai"):
            print(f'[gateway.upstreams.{provider}]\nurl = "http://127.0.0.1:{model.port}"', flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(model.problem if not model.turns else f"{len(model.turns)} turns")


if __name__ == "__main__":
    main()
