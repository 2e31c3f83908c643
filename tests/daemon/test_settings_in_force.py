"""A running daemon takes up changes of config.toml, as far as a person consented; its status says what is not in force."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from aileron.actions.approved_texts import ApprovedTexts
from aileron.audit.events import EgressEvent, Notice
from aileron.audit.log import Audit
from aileron.config import MAX_CONFIG_BYTES, LiveSettings, Settings, load_settings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.settings import SettingsInForce
from aileron.ledger import Ledger
from aileron.registry.content import ContentStore
from aileron.vault import Vault
from tests.support.approver import Approver
from tests.support.descriptors import at_most
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe
from tests.support.reused import reused
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
DEADLINE_S = 30.0


@pytest.fixture
def own_home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home whose probe has a grant for a server on this machine that the settings do not allow yet."""
    with daemon_home() as made:
        made.configure("")
        lend_probe(made, f"localhost:{upstream.port}")
        made.add_probe_action("effect", "path:string?", name="gated", gated=True)
        made.add_probe_action("effect", "path:string?", name="open")
        yield made


def allowed(upstream: CountingServer, key: str = "private_plain") -> str:
    """Return settings that allow the server."""
    return f'[egress]\n{key} = ["localhost:{upstream.port}"]\n'


def with_port(home: DaemonHome, text: str) -> str:
    """Return settings with the port that the daemon keeps there."""
    return f"[daemon]\nport = {home.must('GET', '/v1/status')['web'].rpartition(':')[2]}\n{text}"


def status_over(caller: http.client.HTTPConnection) -> dict[str, Any]:
    """Return the status, requested on a connection that stays open."""
    caller.request("GET", "/v1/status")
    found: dict[str, Any] = json.loads(caller.getresponse().read())
    return found


def test_a_changed_setting_applies_to_the_next_run_without_a_restart(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """The refusal names the setting; the run works once it is written, and is refused again once it is removed."""
    pid = own_home.daemon_pid
    without, allowing = with_port(own_home, ""), with_port(own_home, allowed(upstream))

    before = own_home.run("open").body["error"]
    own_home.configure(allowing)
    sent = own_home.run("open")
    own_home.configure(without)
    after = own_home.run("open").body["error"]

    assert (before["class"], before["details"]["reason"]) == ("capability_denied", "address_not_public")
    assert f"aileron config add egress.private_plain localhost:{upstream.port}" in before["message"]
    assert sent.status == 200
    assert after["details"]["reason"] == "address_not_public"
    assert own_home.daemon_pid == pid


def test_a_changed_setting_is_recorded_in_a_home_without_an_approver(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """The record comes before the run that uses the setting. Saving the same values again is no change."""

    def recorded(kind: str) -> list[dict[str, Any]]:
        own_home.must("GET", "/v1/status")
        events: list[dict[str, Any]] = own_home.must("GET", f"/v1/audit?type={kind}")["events"]
        return events

    own_home.configure(with_port(own_home, ""))
    (started,) = recorded("daemon.started")
    before = recorded("settings.changed")
    own_home.configure(with_port(own_home, allowed(upstream)))
    assert own_home.run("open").status == 200
    own_home.configure(f"# a comment\n{with_port(own_home, allowed(upstream))}")
    (changed,) = recorded("settings.changed")
    (requested,) = recorded("run.requested")
    own_home.stop()
    restarted = recorded("daemon.started")[0]

    assert before == []
    assert changed["settings"] == ["egress.private_plain"]
    assert changed["digest"] != started["digest"]
    assert changed["seq"] < requested["seq"]
    assert restarted["digest"] == changed["digest"]


def test_a_gated_action_whose_host_is_not_allowed_asks_no_question(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """An approval would be useless: the run is refused with the setting that fixes it. With it, a person is asked."""
    refused = own_home.run("gated").body["error"]
    assert (refused["class"], refused["details"]["reason"]) == ("capability_denied", "address_not_public")
    assert f"aileron config add egress.private_plain localhost:{upstream.port}" in refused["message"]
    assert own_home.must("GET", "/v1/action-approvals")["approvals"] == []
    assert [event["type"] for event in own_home.events(refused["audit_id"])] == ["run.refused"]

    own_home.configure(with_port(own_home, allowed(upstream)))
    assert own_home.run("gated").status == 202


def test_an_invalid_config_file_changes_no_setting(own_home: DaemonHome, upstream: CountingServer) -> None:
    """The status reports the problem; it also names a changed setting that needs a restart."""
    allowing = with_port(own_home, allowed(upstream))
    own_home.configure(allowing)
    own_home.configure("[egress\n")
    assert own_home.must("GET", "/v1/status")["settings_problem"] is not None
    own_home.configure(f'{allowing}[sandbox]\nmode = "landlock"\n')
    status = own_home.must("GET", "/v1/status")

    assert status["settings_problem"] is None
    assert status["settings_at_start"] == ["sandbox.mode"]
    assert "landlock" not in status["jail"]["layers"][:1]
    assert own_home.run("open").status == 200


@pytest.mark.abuse_case("R9")
def test_a_config_file_that_would_block_the_daemon_is_not_read(own_home: DaemonHome) -> None:
    """The file is a FIFO without a writer, or too large; a regular file afterwards is read."""
    path = own_home.path / "config.toml"
    before = path.read_text(encoding="utf-8")
    path.unlink()
    os.mkfifo(path, 0o600)
    waits = own_home.must("GET", "/v1/status")["settings_problem"]
    path.unlink()
    own_home.configure("#" * (MAX_CONFIG_BYTES + 1))
    is_long = own_home.must("GET", "/v1/status")["settings_problem"]
    own_home.configure(before)

    assert "is not a regular file" in waits
    assert "is larger than 1 MiB" in is_long
    assert own_home.must("GET", "/v1/status")["settings_problem"] is None


def test_a_config_file_that_could_not_be_opened_is_read_later(own_home: DaemonHome) -> None:
    """First no descriptor is free, then the certificate file is missing: the daemon retries although config.toml does
    not change again.
    """
    pid, certificates = own_home.daemon_pid, own_home.path / "certificates.pem"
    assert pid is not None
    log = own_home.path / "logs" / "daemon.log"
    changed = with_port(own_home, f'[egress]\nca_file = "{certificates}"\n{_CELL.format(jail="true")}')

    def changed_without_descriptors() -> None:
        own_home.configure("")
        with contextlib.closing(http.client.HTTPConnection("localhost", timeout=DEADLINE_S)) as caller:
            caller.sock = socket.socket(socket.AF_UNIX)
            caller.sock.connect(str(own_home.path / "run" / "operator.sock"))
            status_over(caller)  # it is accepted, and has its descriptor
            with at_most(pid, 3):
                own_home.configure(changed)
                status_over(caller)  # checks the file first; other checks need descriptors, too

    reused(changed_without_descriptors)
    without_certificates = own_home.must("GET", "/v1/status")
    certificates.touch()
    after = own_home.must("GET", "/v1/status")

    assert "config.toml: cannot be read: Too many open files" in log.read_text()
    assert "No such file" in without_certificates["settings_problem"]
    assert without_certificates["launch"]["jail"] is None
    assert (after["settings_problem"], after["launch"]["jail"]) == (None, True)
    assert own_home.daemon_pid == pid


def test_a_changed_setting_takes_effect_after_the_approver_signed(upstream: CountingServer) -> None:
    """A change leads to a question at once, and a refused run mentions it."""
    approver = Approver()
    with daemon_home() as home:
        home.configure("")
        lend_probe(home, f"localhost:{upstream.port}")
        home.add_probe_action("effect", "path:string?", name="free")
        approver.appoint(home)
        pid = home.daemon_pid
        home.configure(with_port(home, allowed(upstream)))

        refused = home.run("free").body["error"]
        status = home.must("GET", "/v1/status")
        (question,) = home.must("GET", "/v1/action-approvals")["approvals"]
        agreed = approver.decide(home, question["approval_id"])
        sent = home.run("free")

        assert refused["class"] == "capability_denied"
        assert refused["message"].startswith(
            f"localhost:{upstream.port} is in egress.private_plain of config.toml but not in effect: "
        )
        assert "add " not in refused["message"]
        assert (status["settings_waiting"], question["kind"]) == (["egress.private_plain"], "settings")
        assert (agreed.body["status"], sent.status) == ("completed", 200)
        assert home.must("GET", "/v1/status")["settings_waiting"] == []
        assert home.daemon_pid == pid


_CELL = """
[launch]
jail = {jail}

[launch.cell]
allow_read = ["/opt/toolchain"]
allow_hosts = ["npm", "*.example.com"]
memory_mb = 512
"""


def test_the_status_says_how_agents_are_started(own_home: DaemonHome) -> None:
    """A change of the file takes effect at once if there is no approver; an empty file means no choice was made."""
    before = own_home.must("GET", "/v1/status")["launch"]
    own_home.configure(with_port(own_home, _CELL.format(jail="false")))
    after = own_home.must("GET", "/v1/status")["launch"]

    assert (before["jail"], before["problem"], before["cell"]["allow_read"]) == (None, None, [])
    assert (before["cell"]["ask_hosts"], before["cell"]["memory_mb"]) == (True, 8192)
    assert (after["jail"], after["problem"]) == (False, None)
    assert after["cell"] == before["cell"] | {
        "allow_read": ["/opt/toolchain"],
        "allow_hosts": ["*.example.com", "npm"],
        "memory_mb": 512,
    }


def test_settings_that_widen_cells_need_the_approver() -> None:
    """Putting agents into cells takes effect at once; taking them out, or showing them more, needs a signature."""
    approver = Approver()
    with daemon_home() as home:
        home.configure("")
        home.unlock()
        approver.appoint(home)

        home.configure(with_port(home, _CELL.format(jail="true")))
        asked = home.must("GET", "/v1/status")
        (question,) = home.must("GET", "/v1/action-approvals")["approvals"]
        assert approver.decide(home, question["approval_id"]).body["status"] == "completed"
        agreed = home.must("GET", "/v1/status")["launch"]
        home.configure(with_port(home, _CELL.format(jail="false").replace("/opt/toolchain", "/home")))
        edited = home.must("GET", "/v1/status")["launch"]

        assert (asked["launch"]["jail"], asked["launch"]["cell"]["allow_read"]) == (True, [])
        assert asked["launch"]["cell"]["memory_mb"] == 512, "limits are as the file says"
        assert asked["settings_waiting"] == ["launch.cell.allow_hosts", "launch.cell.allow_read", "launch.jail"]
        assert (agreed["jail"], agreed["problem"], agreed["cell"]["allow_read"]) == (True, None, ["/opt/toolchain"])
        assert edited == agreed

        home.must("POST", "/v1/vault/lock")
        locked = home.must("GET", "/v1/status")["launch"]
        assert (locked["jail"], locked["cell"]["allow_read"], locked["cell"]["allow_hosts"]) == (True, [], [])
        assert "the vault is locked" in locked["problem"]


class GatedAudit(Audit):
    """A record whose notices wait for the test's leave. Without a call of `close_gate`, they do not wait."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._gate: tuple[anyio.Event, anyio.Event] | None = None

    def close_gate(self) -> tuple[anyio.Event, anyio.Event]:
        """Let notices wait. Return an event that is set when one waits, and an event to set for it to go on."""
        self._gate = anyio.Event(), anyio.Event()
        return self._gate

    async def note(self, event: Notice | EgressEvent) -> int:
        """Record an event, once the gate is open."""
        if self._gate is not None:
            is_waiting, is_open = self._gate
            is_waiting.set()
            await is_open.wait()
        return await super().note(event)


class Live(NamedTuple):
    """Settings in force without an approver, on a ledger of their own, and the ones that were told to others."""

    config: Path
    in_force: SettingsInForce
    settings: LiveSettings
    told: list[Settings]
    ledger: Ledger
    audit: GatedAudit

    def lock_after(self) -> float | None:
        """Return the setting `vault.lock_after` in force, in seconds."""
        return self.settings.now.vault_lock_after_s


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Put the default settings in force."""
    config, settings, told = tmp_path / "config.toml", LiveSettings(Settings()), list[Settings]()
    approver = ApproverState(Vault(tmp_path / "vault.json"), on_record=False)
    checks = ConsentChecks(
        approver,
        ApprovedTexts(tmp_path / "agreed"),
        ContentStore(tmp_path / "connectors").manifest,
        in_force=settings.now,
        wanted=settings.now,
    )

    async def ask() -> None:
        raise AssertionError("without an approver nobody is asked")

    with Ledger.open(tmp_path / "ledger.db", tmp_path, "0.2.0") as ledger:
        audit = GatedAudit(ledger)
        in_force = SettingsInForce(
            config,
            approver,
            checks,
            ask=ask,
            changed=told.append,
            settings=settings,
            wanted=settings.now,
            read=None,
            audit=audit,
        )
        yield Live(config, in_force, settings, told, ledger, audit)


@pytest.mark.anyio
async def test_a_function_that_reads_settings_returns_the_new_values_after_a_change(live: Live) -> None:
    """A function that was made before reads them, and is registered nowhere. Settings for the next start do not change."""
    is_desktop = live.settings.now.notify_desktop
    before = live.lock_after()
    live.config.write_text(f'[vault]\nlock_after = "5m"\n[notify]\ndesktop = {str(not is_desktop).lower()}\n')
    await live.in_force.look()

    assert (before, live.lock_after()) == (None, 300.0)
    assert live.settings.now.notify_desktop == is_desktop
    assert live.told == [live.settings.now] != [load_settings(live.config)]
    assert live.in_force.at_start == ["notify.desktop"]


@pytest.mark.anyio
async def test_a_setting_that_cannot_be_recorded_does_not_take_effect(live: Live) -> None:
    """The ledger is closed after the first change. The reason is told, and nobody gets the new settings."""
    live.config.write_text('[vault]\nlock_after = "5m"\n')
    await live.in_force.look()
    problem = live.in_force.problem
    live.ledger.close()
    live.config.write_text('[vault]\nlock_after = "9m"\n')
    await live.in_force.look()

    assert problem is None
    assert live.in_force.problem is not None
    assert (live.lock_after(), len(live.told)) == (300.0, 1)


@pytest.mark.anyio
async def test_approving_settings_while_another_settings_change_is_recorded_undoes_no_change(live: Live) -> None:
    """1. config.toml changes, and its record waits. 2. A person approves settings. 3. The record is written."""
    approved = {**live.settings.now.consented(), "egress.private": ["nas.home:443"]}
    live.config.write_text('[vault]\nlock_after = "5m"\n')
    is_waiting, is_open = live.audit.close_gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.in_force.look)
        with anyio.fail_after(DEADLINE_S):
            await is_waiting.wait()
        tasks.start_soon(live.in_force.agreed, approved)
        await anyio.wait_all_tasks_blocked()
        unchanged = live.lock_after(), live.settings.now.consented()["egress.private"]
        is_open.set()

    assert unchanged == (None, [])
    assert (live.lock_after(), live.settings.now.consented()["egress.private"]) == (300.0, ["nas.home:443"])
