"""Kill -9 of the supervisor at random points of runs, against a server that counts effects; a library and a program.

    python -m tests.faults.kills KILLS [SEED]

In each round several callers run at once, half of them with a gated action that a person approves; after a random time the
daemon is killed; a new one starts, and its record is compared with what the server saw and with what the callers were told.

Every run must meet these conditions, at whatever point it was hit:
- lost: a caller who was told that the run completed finds it completed, with exactly one effect
- doubled: never two effects, nor another one when the run is requested again with its key
- unrecorded: no effect without a durable `run.started` and `egress.sending`
- a question stays a question, an unused approval stays unused, and both are carried out when requested
- a run that had begun and has no outcome is `unknown`

Every run is sorted by the last event on record: its phase. A series of kills without a phase proves nothing about that phase,
so a series goes on (at most twice as long) until each was hit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import http.server
import json
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from aileron.client import Answer, DaemonUnreachable
from tests.support.home import DaemonHome, daemon_home

__all__ = ["PHASES", "Series", "kill_at_random"]

_PROBE: Final = Path(__file__).resolve().parents[1] / "support" / "connectors" / "probe"
_CREDENTIAL: Final = '[capabilities.credential]\nkind = "basic"\nscope = "Whatever the test server allows"\n'
_CALLERS: Final = 4
"""Callers at once, two for each action: each gives a kill another moment to fall in."""
_QUIET_S: Final = 10.0
"""Seconds to wait until everything that had left the killed daemon is counted."""

# The last event on record about a run → its phase. The order is that of a gated run.
_PHASE_OF: Final = {
    "approval.requested": "asked",
    "approval.decided": "approved",
    "approval.redeemed": "redeemed",
    "run.started": "started",
    "egress.sending": "sent",
    "egress.finished": "answered",
    "run.finished": "ended",
}
PHASES: Final = ("unasked", *_PHASE_OF.values())


class _Upstream:
    """A server that counts effects by path; each run has a path of its own."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self._active = 0
        changed = self._changed = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                with changed:
                    outer.effects[self.path] += 1
                self._answer()

            def handle(self) -> None:
                try:
                    with contextlib.suppress(ConnectionError):
                        super().handle()
                finally:
                    with changed:
                        outer._active -= 1
                        changed.notify_all()

            def _answer(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"done")

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # as CountingServer has it

            def process_request(self, request: Any, client_address: Any) -> None:
                with changed:
                    outer._active += 1
                super().process_request(request, client_address)

            def handle_error(self, *_: object) -> None:
                """Ignore the error: a client that is killed is expected here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve for the length of the block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(5)

    def settle(self) -> None:
        """Wait until everything that was sent before is counted: connections are accepted in their order, and end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_QUIET_S)
        connection.request("GET", "/")
        connection.getresponse().read()
        connection.close()
        with self._changed:
            if not self._changed.wait_for(lambda: self._active == 0, _QUIET_S):
                raise TimeoutError(f"{self._active} connections of a killed daemon are still open after {_QUIET_S} s")


@dataclasses.dataclass
class _Asked:
    """A run, as its caller knows it."""

    key: str
    gated: bool
    path: str
    answer: dict[str, Any] | None = None
    question: dict[str, Any] | None = None

    @property
    def told_completed(self) -> bool:
        """True if the caller has the result."""
        return self.answer is not None and "result" in self.answer


@dataclasses.dataclass
class Series:
    """The outcome of a series of kills."""

    seed: int
    kills: int = 0
    runs: int = 0
    lost: int = 0
    doubled: int = 0
    unrecorded: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    """Descriptions of all other faults."""
    phases: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def is_covered(self) -> bool:
        """True if kills fell in every phase."""
        return all(self.phases[phase] for phase in PHASES)

    def to_json(self) -> dict[str, Any]:
        """Return the series for a file of results."""
        return {**dataclasses.asdict(self), "phases": {phase: self.phases[phase] for phase in PHASES}}


def kill_at_random(kills: int, seed: int) -> Series:
    """Make `kills` rounds, or more if a phase was not hit yet, at most twice as many."""
    began = time.monotonic()
    series = Series(seed)
    upstream = _Upstream()
    with upstream.serving(), daemon_home() as home:
        _set_up(home, upstream.port)
        killer = _Killer(home, upstream, series)
        while series.kills < kills or (not series.is_covered and series.kills < 2 * kills):
            killer.round()
        if not home.must("GET", "/v1/audit/verify")["ok"]:
            series.wrong.append("the audit chain is broken")
    series.seconds = time.monotonic() - began
    return series


def _set_up(home: DaemonHome, port: int) -> None:
    """Install the probe connector without a credential: nobody opens a vault after each kill."""
    home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
    source = Path(tempfile.mkdtemp(prefix="ail-"))
    try:
        shutil.copytree(_PROBE, source / "probe")
        manifest = source / "probe" / "manifest.toml"
        text = manifest.read_text(encoding="utf-8")
        assert _CREDENTIAL in text
        manifest.write_text(text.replace(_CREDENTIAL, ""), encoding="utf-8")
        home.must("GET", "/healthz")
        home.install(source / "probe", f"localhost:{port}")
    finally:
        shutil.rmtree(source)
    home.add_probe_action("effect", "path:string", name="free")
    home.add_probe_action("effect", "path:string", name="gated", gated=True)


class _Killer:
    def __init__(self, home: DaemonHome, upstream: _Upstream, series: Series) -> None:
        self._home = home
        self._upstream = upstream
        self._series = series
        self._random = random.Random(series.seed)
        self._window_s = self._undisturbed()

    def round(self) -> None:
        """Start callers, kill the daemon among them, start a new one, and check what it knows."""
        asked = self._new_callers()
        self._home.must("GET", "/healthz")
        delay_s = self._random.uniform(0, self._window_s)
        with ThreadPoolExecutor(_CALLERS) as pool:
            callers = [pool.submit(self._call, request) for request in asked]
            time.sleep(delay_s)  # the random point itself
            self._home.kill()
            for caller in callers:
                caller.result()
        self._upstream.settle()
        self._series.kills += 1
        for request in asked:
            self._check(request)

    def _undisturbed(self) -> float:
        """Return how long the callers take when nothing is killed: kills fall within this time."""
        taken = []
        for _ in range(3):
            began = time.monotonic()
            with ThreadPoolExecutor(_CALLERS) as pool:
                asked = self._new_callers()
                list(pool.map(self._call, asked))
            taken.append(time.monotonic() - began)
            assert all(request.told_completed for request in asked), asked
        return min(taken)

    def _new_callers(self) -> list[_Asked]:
        names = [secrets.token_hex(8) for _ in range(_CALLERS)]
        return [_Asked(name, index % 2 == 1, f"/effect/{name}") for index, name in enumerate(names)]

    def _call(self, request: _Asked) -> None:
        """Do what a caller does, and for a gated action its person, until the run is done or no daemon answers."""
        with contextlib.suppress(OSError, DaemonUnreachable, http.client.HTTPException, ValueError):
            answer = self._ask(request)
            if answer.status == 202:
                request.question = answer.body
                shown = self._home.operator.ask("GET", f"/v1/action-approvals/{answer.body['approval_id']}")
                request.question["digest"] = shown.body["digest"]
                self._home.operator.ask("POST", *self._approval(request))
                answer = self._home.agent.ask("GET", self._result_of(request), wait_s=30)
            request.answer = answer.body

    def _ask(self, request: _Asked) -> Answer:
        name = "gated" if request.gated else "free"
        path = f"/v1/actions/{name}/run?wait=30"
        return self._home.agent.ask(
            "POST", path, {"args": {"path": request.path}}, wait_s=30, headers={"Idempotency-Key": request.key}
        )

    @staticmethod
    def _approval(request: _Asked) -> tuple[str, dict[str, str]]:
        assert request.question is not None
        body = {"decision": "approve", "digest": request.question["digest"]}
        return f"/v1/action-approvals/{request.question['approval_id']}/decide", body

    @staticmethod
    def _result_of(request: _Asked) -> str:
        assert request.question is not None
        return f"/v1/action-approvals/{request.question['approval_id']}/result?wait=30"

    def _check(self, request: _Asked) -> None:
        """Compare the record, the upstream and the caller's word; then see it through, and compare again."""
        self._series.runs += 1
        effects = self._upstream.effects[request.path]
        run = self._found(request)
        if run is None:
            self._series.phases["unasked"] += 1
            self._expect(not request.told_completed, request, "the caller has a result of a run that is not on record")
            self._count_unrecorded(effects > 0)
        else:
            self._check_recorded(request, run, effects)
        self._series.doubled += effects > 1
        self._see_through(request, run, effects)

    def _found(self, request: _Asked) -> dict[str, Any] | None:
        name = "gated" if request.gated else "free"
        requested = self._home.must("GET", f"/v1/audit?type=run.requested&action={name}&limit=20")["events"]
        run_ids = [event["run"] for event in requested if event["args"]["path"] == request.path]
        self._expect(len(run_ids) <= 1, request, f"asked once, on record as {run_ids}")
        return self._home.must("GET", f"/v1/audit/{run_ids[0]}") if run_ids else None

    def _check_recorded(self, request: _Asked, run: dict[str, Any], effects: int) -> None:
        types = [event["type"] for event in run["events"]]
        last = types[-2] if types[-1] == "run.unknown" else types[-1]
        phase = _PHASE_OF[last]
        self._series.phases[phase] += 1
        self._count_unrecorded(effects > 0 and not {"run.started", "egress.sending"} <= set(types))
        expected = {"asked": "pending_approval", "approved": "approved", "ended": "completed"}.get(phase, "unknown")
        self._expect(run["status"] == expected, request, f"{phase} when it was hit, and now {run['status']}")
        self._series.lost += request.told_completed and (run["status"] != "completed" or effects != 1)
        self._expect(effects == 1 or phase not in ("answered", "ended"), request, f"{phase}, with {effects} effects")
        self._expect(
            effects == 0 or phase in ("sent", "answered", "ended"), request, f"{phase}, with {effects} effects"
        )

    def _see_through(self, request: _Asked, run: dict[str, Any] | None, effects: int) -> None:
        """Ask again with the same key, and approve what waits: one effect in the end, or no further one if the outcome is
        unknown.
        """
        again = self._ask(request)
        if again.status == 202:
            request.question = again.body
            if again.body["status"] == "pending_approval":
                shown = self._home.must("GET", f"/v1/action-approvals/{again.body['approval_id']}")
                request.question["digest"] = shown["digest"]
                decided = self._home.operator.ask("POST", *self._approval(request))
                self._expect(not decided.is_error, request, f"its approval was refused: {decided.body}")
            else:  # approved before the kill: whoever comes for it sees that it begins
                request.question["approval_id"] = self._home.must("GET", f"/v1/runs/{again.body['run_id']}")[
                    "approval_id"
                ]
            again = self._home.agent.ask("GET", self._result_of(request), wait_s=30)
        after = self._upstream.effects[request.path]
        if run is not None and run["status"] == "unknown":
            found = again.body.get("error", {}).get("class")
            self._expect(found == "outcome_unknown", request, f"asked again when nobody knows: {again.body}")
            self._series.doubled += after != effects
        else:
            self._expect("result" in again.body, request, f"asked again: {again.body}")
            self._series.doubled += after > 1
            self._series.lost += after < 1

    def _count_unrecorded(self, is_so: bool) -> None:
        self._series.unrecorded += is_so

    def _expect(self, holds: bool, request: _Asked, words: str) -> None:
        if not holds:
            self._series.wrong.append(
                f"{'gated' if request.gated else 'free'} {request.key} (round {self._series.kills}): {words}"
            )


def main() -> int:
    """Kill the given number of times, and print and keep the results. Return 1 if anything was not as it must be."""
    kills = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbits(32)
    print(f"{kills} kills at random points, seed {seed}", flush=True)
    series = kill_at_random(kills, seed)
    print(
        f"  {series.kills} kills, {series.runs} runs in {series.seconds:.0f} s: "
        f"{series.lost} lost, {series.doubled} doubled, {series.unrecorded} unrecorded"
    )
    print("  " + ", ".join(f"{phase} {series.phases[phase]}" for phase in PHASES))
    for words in series.wrong:
        print(f"  wrong: {words}")
    results = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "kills.json"
    results.write_text(json.dumps(series.to_json()) + "\n", encoding="utf-8")
    is_right = not (series.lost or series.doubled or series.unrecorded or series.wrong) and series.is_covered
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
