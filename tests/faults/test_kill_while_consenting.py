"""Kill -9 of the supervisor at every step of carrying out a person's consent: the change is made, or it is asked about again.

At each point, no change lacks its signed decision on record, everything installed runs, and everything that runs has consent.
The chain verifies, and the person can still have the change made.
"""

from __future__ import annotations

import pytest

from aileron.client import DaemonUnreachable
from tests.support.approver import Approver
from tests.support.crashing_daemon import crashing_daemon
from tests.support.home import DaemonHome, daemon_home, probe_action
from tests.support.passkeys import Device
from tests.support.probed import lend_probe

pytestmark = pytest.mark.jail

# Agreeing to an action: decided, redeemed, the text kept, the vault, consent.agreed, the file, action.added.
CASES = [
    *((point, count) for point in ("before_commit", "after_commit") for count in (1, 2, 3, 4)),
    *((f"{when}_{what}", 1) for when in ("before", "after") for what in ("agreed_text", "vault", "action_file")),
]


def installed(home: DaemonHome) -> bool:
    """Return whether the action's file exists."""
    return (home.path / "actions" / "more.md").exists()


@pytest.mark.parametrize(("point", "count"), CASES)
def test_a_consent_interrupted_by_a_kill_is_carried_out_or_can_be_asked_for_again(point: str, count: int) -> None:
    """The action is never installed without a consent, and asking again always works."""
    approver, text = Approver(), probe_action("give_back", name="more")
    with daemon_home() as home:
        lend_probe(home)
        approver.appoint(home)
        home.stop()
        daemon = crashing_daemon(home.path, point, count)
        home.unlock()
        answer = home.ask("POST", "/v1/actions", {"text": text, "file": "x"})
        approval_id = answer.body["approval_id"]
        with pytest.raises((DaemonUnreachable, OSError)):
            approver_ask(home, approver, approval_id)
        assert daemon.wait(10) == -9
        was_installed = installed(home)

        home.unlock()
        events = home.must("GET", "/v1/audit?order=oldest&limit=1000")["events"]
        decided = [
            event for event in events if event["type"] == "approval.decided" and event["approval"] == approval_id
        ]
        assert bool(decided) or not was_installed, "a change without its decision"
        if installed(home):
            assert home.run("more").status == 200, "what is there runs"
        again = home.ask("POST", "/v1/actions", {"text": text, "file": "x", "replace": True})
        if again.status == 202:
            assert approver.agree(home, again)["status"] == "completed"
        assert home.run("more").status == 200
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified


# Agreeing to a passkey: decided, redeemed, the decision spent in the vault, the passkey in the vault, passkey.added.
ENROLLING = [
    *((point, count) for point in ("before_commit", "after_commit") for count in (1, 2, 3)),
    *((f"{when}_vault", count) for when in ("before", "after") for count in (1, 2)),
]


@pytest.mark.parametrize(("point", "count"), ENROLLING)
def test_a_passkey_enrollment_interrupted_by_a_kill_completes_or_can_be_repeated(point: str, count: int) -> None:
    """A passkey in the vault is on record once the vault is open; otherwise it decides nothing. The chain verifies."""
    approver = Approver()
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", name="gated", gated=True)
        approver.appoint(home)
        device = Device(home)
        home.stop()
        daemon = crashing_daemon(home.path, point, count)
        home.unlock()
        approval_id = device.made().body["approval_id"]
        with pytest.raises((DaemonUnreachable, OSError)):
            approver_ask(home, approver, approval_id)
        assert daemon.wait(10) == -9

        home.unlock()
        enrolled = [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]]
        added = home.must("GET", "/v1/audit?type=passkey.added")["events"]
        assert [event["passkey"] for event in added] == enrolled
        question = home.asked("gated")
        decided = device.decide(question["approval_id"])
        assert decided.is_error == (not enrolled)
        if not enrolled:
            device.enrol(approver)
            assert device.decide(question["approval_id"]).body["status"] == "approved"
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified


@pytest.mark.parametrize("point", ["before_vault", "after_vault", "before_commit", "after_commit"])
def test_a_passkey_revocation_interrupted_by_a_kill_is_complete_or_not_made(point: str) -> None:
    """The daemon is killed while the passkey is revoked: record and vault agree once the vault is open, and the chain
    verifies.
    """
    approver = Approver()
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", name="gated", gated=True)
        approver.appoint(home)
        device = Device(home)
        device.enrol(approver)
        home.stop()
        daemon = crashing_daemon(home.path, point, 1)
        home.unlock()
        with pytest.raises((DaemonUnreachable, OSError)):
            home.operator.ask("DELETE", f"/v1/passkeys/{device.key_id}")
        assert daemon.wait(10) == -9

        home.unlock()
        is_there = bool(home.must("GET", "/v1/passkeys")["passkeys"])
        assert is_there == (point == "before_vault")
        assert bool(home.must("GET", "/v1/audit?type=passkey.removed")["events"]) == (not is_there)
        question = home.asked("gated")
        assert device.decide(question["approval_id"]).is_error == (not is_there)
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified


def approver_ask(home: DaemonHome, approver: Approver, approval_id: str) -> None:
    """Send the decision to a daemon that dies of it, without starting another daemon."""
    body = approver.decision(home, approval_id)
    home.operator.ask("POST", f"/v1/action-approvals/{approval_id}/decide", body)


@pytest.mark.parametrize("replaces", [False, True])
def test_an_approver_named_just_before_a_kill_is_recorded_when_the_vault_is_opened(replaces: bool) -> None:
    """The daemon dies between writing the vault and the ledger: opening the vault completes the ledger."""
    first, second = Approver(), Approver()
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", name="gated", gated=True)
        if replaces:
            first.appoint(home)
        home.stop()
        daemon = crashing_daemon(home.path, "after_appointment", 1)
        home.unlock()
        body = second.appointment(home, first if replaces else None)
        with pytest.raises((DaemonUnreachable, OSError)):
            home.operator.ask("POST", "/v1/approver", body)
        assert daemon.wait(10) == -9

        home.unlock()
        question = home.asked("gated")

        assert home.must("GET", "/v1/approver")["key_id"] == second.key_id
        assert second.decide(home, question["approval_id"]).body["status"] == "approved"
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified
