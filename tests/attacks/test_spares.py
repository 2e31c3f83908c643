"""Attacks of connectors that wait for their next run: to look around, to get out, to stay, to send something first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.tally import Attack
from tests.support.early import EARLY, install_early, jails_with_threads, when_it_waited
from tests.support.home import PROBE, DaemonHome, daemon_home
from tests.support.probed import lend_probe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

_HOST = "localhost:4711"
_ACTION = "canary-action-name"
_TEXT = "canary-argument-text"


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """Provide a home with a secret, in which an honest connector runs as well."""
    with daemon_home() as home:
        lend_probe(home, secret=b"canary-secret-value")
        home.add_probe_action("give_back", "text:string", name="honest")
        yield home


def _early(home: DaemonHome) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = home.must("GET", "/v1/audit?type=connector.acted_early")["events"]
    return events


@pytest.mark.abuse_case("W1")
def test_a_spare_cannot_learn_which_run_it_will_get(attack: Attack, home: DaemonHome) -> None:
    """A preloaded jail sees nothing of action, arguments, hosts, run, session, vault or home before its run; afterwards
    it knows its own arguments.
    """
    install_early(home, host=_HOST)
    home.add_probe_action("tell", "text:string?", name=_ACTION, connector=EARLY)
    home.run(_ACTION, {"text": _TEXT})
    waited = when_it_waited(home, _ACTION, text=_TEXT)
    seen, audit_id = json.dumps(waited["seen"]), waited["audit_id"]
    canaries = {
        "the action": _ACTION,
        "an argument": _TEXT,
        "a host": _HOST,
        "the run": audit_id,
        "the secret": "canary-secret",
        "the home": str(home.path),
        "the connector's name": "aileron-tests",
        "another connector": PROBE.rpartition("/")[2] + "-",
    }
    attack.all_denied("reading it while it waits", False, {what: word in seen for what, word in canaries.items()})
    attack.denied("an environment", {}, waited["seen"]["environment"])
    attack.control("it sees that it is in a jail", "jail", waited["seen"]["host"][1])
    attack.control("the action's argument comes when it is told", _TEXT, waited["text"])


@pytest.mark.abuse_case("W1")
def test_two_spares_cannot_be_told_apart(attack: Attack, home: DaemonHome) -> None:
    """They differ only in numbers and addresses that are their own, so neither can tell its turn or its past use."""
    install_early(home)
    home.run("tell")
    first, second = (when_it_waited(home)["seen"] for _ in range(2))
    for what in ("environment", "listed", "links", "ids", "host"):
        attack.denied(f"telling two apart by {what}", True, _bare(first[what]) == _bare(second[what]))
    attack.control("and both see something", True, bool(first["listed"]))


def _bare(value: Any) -> str:
    """Return the value without digits: the kernel counts numbers of pipes for the whole machine."""
    return "".join(character for character in json.dumps(value) if not character.isdigit())


ACTS: dict[str, tuple[str, str, str | None]] = {
    "connecting": (
        "import socket\nsocket.create_connection(('93.184.216.34', 443))",
        "network",
        "93.184.216.34:443",
    ),
    "looking up a name": (
        "import socket\nsocket.create_connection(('waiting.example.com', 25))",
        "network",
        "waiting.example.com:25",
    ),
    "asking for a request before it is told anything": (
        "from aileron_sandbox.frames.codec import encode\nfrom aileron_sandbox.frames.frame_messages import HttpRequest\n"
        "message = HttpRequest(id=1, method='GET', url='http://localhost:1/', headers=[], credential=None, body='none')\n"
        "os.write(4, encode(message)[0])\ntime.sleep(60)",
        "frame",
        None,
    ),
    "answering before it is asked": (
        "from aileron_sandbox.frames.codec import encode\nfrom aileron_sandbox.frames.frame_messages import Result\n"
        "os.write(4, encode(Result(output='forged'))[0])\ntime.sleep(60)",
        "frame",
        None,
    ),
    "filling the log": ("while True: os.write(2, b'x' * 65536)", "output", None),
    "leaving": ("os._exit(0)", "exit", None),
    "computing": ("while True: pass", "resources", None),
}  # fmt: skip


@pytest.mark.abuse_case("W2")
@pytest.mark.parametrize("name", ACTS)
def test_a_spare_that_acts_early_is_ended_and_recorded(attack: Attack, home: DaemonHome, name: str) -> None:
    """A spare must wait for its run. The record has the reason, and the next run gets a new jail."""
    source, what, destination = ACTS[name]
    install_early(home, source)
    attack.control("it works when it is asked", True, home.run("tell").body["result"]["was_told"])
    events = wait_until(lambda: _early(home), "an early act is on record")
    attack.denied(name, (what, destination), (events[0]["what"], events[0].get("destination")))
    next_one = home.run("tell", {"text": "x"}).body["result"]
    attack.denied("its place in the next run", (True, "x"), (next_one["was_told"], next_one["text"]))
    attack.control("others go on", "x", home.run("honest", {"text": "x"}).body["result"]["text"])
    attack.denied("filling the record with it", 1, len(_early(home)))


_STAYS = (
    "import signal, threading\nfor number in range(1, 65):\n"
    "    with contextlib.suppress(OSError, ValueError): signal.signal(number, signal.SIG_IGN)\n"
    "for _ in range(4): threading.Thread(target=time.sleep, args=(3600,)).start()"
)


@pytest.mark.abuse_case("W3")
@pytest.mark.parametrize("ended_by", ["lock", "removal", "use", "stop"])
def test_a_spare_leaves_no_process_behind(attack: Attack, home: DaemonHome, ended_by: str) -> None:
    """Threads that ignore every signal end when the spare is used or discarded, and when the daemon stops."""
    install_early(home, _STAYS)
    home.run("tell")
    attack.control("it waits", True, wait_until(lambda: jails_with_threads(home) > 0, "it waits"))
    if ended_by == "lock":
        home.must("POST", "/v1/vault/lock")
    elif ended_by == "removal":
        home.must("DELETE", "/v1/actions/tell")
    elif ended_by == "stop":
        home.stop()
        attack.denied("holding up the daemon's end", None, home.daemon_pid)
        return
    else:
        first = when_it_waited(home)
        home.must("POST", "/v1/vault/lock")
        attack.control("it was used", False, first["was_told"])
    attack.denied(f"staying after {ended_by}", True, wait_until(lambda: jails_with_threads(home) == 0, "it is ended"))


@pytest.mark.abuse_case("W4")
def test_a_changed_connector_file_is_refused_although_a_spare_with_the_old_bytes_waits(
    attack: Attack, home: DaemonHome
) -> None:
    """The stored file changes while its old bytes are loaded in a spare: the next run is refused by the hash instead of
    using the spare. It runs again once the file is restored.
    """
    install_early(home)
    when_it_waited(home)
    store = home.path / "store" / "connectors" / "sha256"
    (entry,) = [path for path in store.iterdir() if b"tests/early" in (path / "manifest.toml").read_bytes()]
    file = entry / "connector"
    good = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    attack.denied("changing the file", "hash_mismatch", home.run("tell").body["error"]["class"])
    file.write_bytes(good)
    attack.control("with the file put back", 200, home.run("tell").status)
