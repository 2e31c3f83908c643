"""Program that is started in an agent's place: it records what it was given, and does what STAND_IN says.

Put under an agent's name into a directory of PATH (`placed`). It writes one JSON object to $STAND_IN_RECORD when it begins: argv,
environment, folder, pid, the group of the terminal, what its parent's environment shows. Then, by STAND_IN:

    exit:N       end with N                        kill:N    end by signal N; raw:N the same, the terminal left raw
    interrupt    wait for SIGINT, say so and how often SIGCONT came before, end 5
    stop         wait for SIGCONT, say so, end 4
    term         wait for SIGTERM, say so, end 9   wait      wait until it is killed
    detach       start a process that leaves its family, which writes its pid and its parent's beside the record; wait as above
    version      print a version and end 0
    mcp          be a client of the server that OPENCODE_CONFIG_CONTENT registers, and record its answers

It uses the standard library only. Real agents are in tests/agents.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tty
from pathlib import Path
from typing import Any

__all__ = ["placed"]

_DEADLINE_S = 20.0


def placed(directory: Path, *names: str) -> Path:
    """Write it into a directory under these names, and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P {__file__} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return directory


def main() -> int:
    """Record what was given and do what STAND_IN says."""
    if os.environ.get("STAND_IN") == "version":
        print("stand-in 1.0")
        return 0
    told, _, number = os.environ.get("STAND_IN", "exit:0").partition(":")
    ready, wake = os.pipe()
    waits = {"interrupt": signal.SIGINT, "stop": signal.SIGCONT, "term": signal.SIGTERM}
    for awaited in waits.values():
        signal.signal(awaited, lambda got, _: os.write(wake, bytes([got])) and None)
    _record(told)
    if told == "exit":
        return int(number)
    if told == "raw":
        tty.setraw(0)
    if told in ("kill", "raw"):
        os.kill(os.getpid(), int(number))
    if told == "mcp":
        return 0
    if told == "detach":
        _detach()
    print("agent ready", flush=True)
    seen: list[int] = []
    while not seen or seen[-1] != waits.get(told):
        seen.append(os.read(ready, 1)[0])
        if told == "interrupt" and seen[-1] == signal.SIGCONT:
            print("agent goes on", flush=True)
    print(f"agent went on {seen.count(signal.SIGCONT)} times", flush=True)
    print(f"agent saw {waits[told].name}", flush=True)
    return {"interrupt": 5, "stop": 4, "term": 9}[told]


def _detach() -> None:
    if os.fork():
        return
    parent = os.pidfd_open(os.getpid())
    if os.fork():
        os._exit(0)
    # Its children have another parent before its end is reported, exit_notify() in kernel/exit.c.
    select.select([parent], [], [], _DEADLINE_S)
    path = Path(os.environ["STAND_IN_RECORD"] + ".detached")
    path.with_suffix(".new").write_text(json.dumps([os.getpid(), os.getppid()]), encoding="utf-8")
    path.with_suffix(".new").rename(path)
    signal.pause()


def _record(told: str) -> None:
    record = {
        "argv": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.fsencode(os.getcwd()).decode("utf-8", "backslashreplace"),
        "pid": os.getpid(),
        "is_in_foreground": _is_in_foreground(),
        "of_parent": _environment_of_parent(),
        "mcp": _asked() if told == "mcp" else None,
    }
    path = Path(os.environ["STAND_IN_RECORD"])
    path.with_suffix(".new").write_text(json.dumps(record), encoding="utf-8")
    path.with_suffix(".new").rename(path)


def _environment_of_parent() -> str | None:
    try:
        return Path(f"/proc/{os.getppid()}/environ").read_bytes().decode("utf-8", "replace")
    except PermissionError:  # the first process of a cell
        return None


def _is_in_foreground() -> bool | None:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal
        return None


def _asked() -> list[Any]:
    """Return the answers to the first two requests of every client."""
    server = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["mcp"]["aileron"]
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "stand-in", "version": "1"}}
    with subprocess.Popen(
        server["command"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **server["environment"]},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for number, (method, given) in enumerate([("initialize", params), ("tools/list", {})], start=1):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": given}) + "\n")
            if number == 1:
                process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            process.stdin.flush()
            # A notification, say that the tools have changed, may come in between.
            said = map(json.loads, process.stdout)
            answers.append(next(message for message in said if message.get("id") == number))
        process.stdin.close()
    return answers


if __name__ == "__main__":
    sys.exit(main())
