"""kill -9 of the supervisor at every step of carrying out what a person agreed to: it is done, or it is asked about again.

For each point: no change without its signed decision on record, nothing installed that does not run, nothing that runs without
being agreed to, the chain verifies, and the person can have it done after all.
"""

from __future__ import annotations

import pytest

from aileron.client import DaemonUnreachable
from tests.support.approver import Approver
from tests.support.crashing_daemon import crashing_daemon
from tests.support.home import DaemonHome, daemon_home, probe_action
from tests.support.passkeys import Device

pytestmark = pytest.mark.jail

# Agreeing to an action: decided, redeemed, the text kept, the vault, consent.agreed, the file, action.added.
CASES = [
    *((point, count) for point in ("before_commit", "after_commit") for count in (1, 2, 3, 4)),
    *((f"{when}_{what}", 1) for when in ("before", "after") for what in ("agreed_text", "vault", "action_file")),
]


def installed(home: DaemonHome) -> bool:
    """Whether the action's file is there."""
    return (home.path / "actions" / "more.md").exists()


@pytest.mark.parametrize(("point", "count"), CASES)
def test_a_consent_is_carried_out_or_asked_about_again(point: str, count: int) -> None:
    """Whatever moment it was: what is there runs, what runs was agreed to, and asking again works."""
    approver, text = Approver(), probe_action("give_back", name="more")
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
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
def test_a_passkey_decides_and_is_on_record_or_is_made_again(point: str, count: int) -> None:
    """Whatever moment it was: in the vault it is on record once that is open, else it decides nothing; and the chain verifies."""
    approver = Approver()
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
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
        enrolled = [one["id"] for one in home.must("GET", "/v1/passkeys")["passkeys"]]
        added = home.must("GET", "/v1/audit?type=passkey.added")["events"]
        assert [one["passkey"] for one in added] == enrolled
        question = home.asked("gated")
        decided = device.decide(question["approval_id"])
        assert decided.is_error == (not enrolled)
        if not enrolled:
            device.enrol(approver)
            assert device.decide(question["approval_id"]).body["status"] == "approved"
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified


@pytest.mark.parametrize("point", ["before_vault", "after_vault", "before_commit", "after_commit"])
def test_a_passkey_whose_end_was_cut_short_decides_nothing_or_is_there_still(point: str) -> None:
    """Killed while it is revoked: record and vault say the same once that is open, and the chain verifies."""
    approver = Approver()
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
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
    """The decision, sent to a daemon that dies with it, and no other started for it."""
    body = approver.decision(home, approval_id)
    home.operator.ask("POST", f"/v1/action-approvals/{approval_id}/decide", body)


@pytest.mark.parametrize("replaces", [False, True])
def test_an_approver_who_was_named_in_the_last_moment_is_on_record_later(replaces: bool) -> None:
    """Killed between the vault and the ledger: opening the vault puts them on record, and they decide."""
    first, second = Approver(), Approver()
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
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
