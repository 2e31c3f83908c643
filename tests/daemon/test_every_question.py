"""Every state of every kind of question, at every surface that can show it: all surfaces show the same status.

The rows are made with the record's own methods on the home's ledger, while no daemon runs; a daemon makes those that only a
daemon can hold (a run in progress, a held one). A new kind or state fails here until it is made and shown as well.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.cards.question import state_words
from aileron.cli.app import main as aileron
from aileron.ledger import ApprovalState, Ledger
from aileron.model.consent import ConsentKind, HostConsent
from aileron.model.decision import Signature, moment
from aileron.model.failure import Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.outcome import Failed, RunStatus, Succeeded
from aileron.model.secret import Secret
from aileron.tui.app import Console, Hooks
from aileron.tui.daemon_client import DaemonClient
from tests.audit.conftest import a_plan
from tests.cli.questions import SUBJECTS
from tests.daemon.test_protocol import Agent
from tests.daemon.test_shares import waiting_home
from tests.support.attendant import Attendant
from tests.support.home import PASSPHRASE, DaemonHome, probe_action
from tests.support.paged import KeptApprover, PageClient
from tests.support.waiting import wait_until
from tests.tui.consoles import Shown

pytestmark = pytest.mark.jail

ROUTE = "/v1/action-approvals"
WORDS = {
    ApprovalState.PENDING: RunStatus.PENDING_APPROVAL,
    ApprovalState.APPROVED: RunStatus.APPROVED,
    ApprovalState.REDEEMED: RunStatus.COMPLETED,
    ApprovalState.DENIED: RunStatus.DENIED,
    ApprovalState.EXPIRED: RunStatus.EXPIRED,
    ApprovalState.CANCELLED: RunStatus.CANCELLED,
}
"""Status by which people and programs see each state of a consent."""
LISTED = (RunStatus.PENDING_APPROVAL, RunStatus.APPROVED)


class Made(NamedTuple):
    """A question, and the status that every surface must show."""

    id: str
    kind: ConsentKind
    status: RunStatus
    run: str | None = None


class _Maker:
    """A writer that calls the record as a daemon does; its decisions are signed, as those of this home are."""

    def __init__(self, audit: Audit, key_id: str, session: str) -> None:
        """Take the id of an open session of a cell: otherwise, a starting daemon withdraws the session's questions."""
        self._audit = audit
        self._key_id = key_id
        self._session = session

    async def consent(self, kind: ConsentKind, state: ApprovalState) -> Made:
        """Add a question in this state and return it."""
        wait_s = -1.0 if state is ApprovalState.EXPIRED else 3600.0
        subject = SUBJECTS[kind.value]
        if isinstance(subject, HostConsent):
            subject = msgspec.structs.replace(subject, session=self._session)
        row, _ = await self._audit.ask(f"{kind.value} {state.value}", subject, expires_at=time.time() + wait_s)
        await self._move(row.id, row.digest, state)
        return Made(row.id, kind, WORDS[state])

    async def run(self, status: RunStatus) -> Made | None:
        """Add a question whose run has this status; return None if only a daemon can hold such a run."""
        if status in (RunStatus.APPROVED, RunStatus.RUNNING):
            return None
        plan, asked = a_plan(), Invocation(action="send-email", args={"to": "a@example.com"}, scope=Scope.AGENT)
        wait_s = -1.0 if status is RunStatus.EXPIRED else 3600.0
        pending = await self._audit.pending(plan, asked, time.time() + wait_s)
        begun = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.UNKNOWN)
        ends = {word: state for state, word in WORDS.items()}
        await self._move(pending.approval_id, plan.digest, ApprovalState.REDEEMED if status in begun else ends[status])
        if status is RunStatus.COMPLETED:
            await self._audit.finished(pending.run_id, Succeeded(run_id=pending.run_id, result={"sent": 1}), 1)
        elif status is RunStatus.FAILED:
            failure = Failure(failure_class=FailureClass.NETWORK_ERROR, message="gone", boundary=Boundary.EXTERNAL)
            await self._audit.finished(pending.run_id, Failed(run_id=pending.run_id, failure=failure), 1)
        elif status is RunStatus.UNKNOWN:
            await self._audit.interrupted(pending.run_id)
        return Made(pending.approval_id, ConsentKind.ACTION, status, pending.run_id)

    async def _move(self, name: str, digest: str, state: ApprovalState) -> None:
        signed = Signature(
            key_id=self._key_id, at=moment(time.time()), signature="bm90IG9uZQ==", head=None, head_signature=None
        )

        async def decide(decision: Literal["approve", "deny"]) -> None:
            await self._audit.decide(name, decision, digest=digest, surface="operator", signed=signed)

        match state:
            case ApprovalState.PENDING:
                pass
            case ApprovalState.APPROVED:
                await decide("approve")
            case ApprovalState.REDEEMED:
                await decide("approve")
                await self._audit.redeem(name, digest)
            case ApprovalState.DENIED:
                await decide("deny")
            case ApprovalState.EXPIRED:
                assert name in await self._audit.expire_due()
            case ApprovalState.CANCELLED:
                await self._audit.cancel(name, surface="operator")


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with an approver, an action that runs until the end of the module, and one that is held."""
    with waiting_home() as (made, _):
        held = probe_action("linger", "seconds:number?", name="held", gated=True)
        held = held.replace("[approval]", "[approval]\nundo_window_s = 600")
        made.must("POST", "/v1/actions", {"text": held, "file": "a test"})
        KeptApprover(made).appoint(made)
        yield made


@pytest.fixture(scope="module")
def session(home: DaemonHome) -> Iterator[str]:
    """Return the session of an agent in a cell, whose process is not the one that decides."""
    with Attendant(home.path) as attendant:
        yield attendant.open(ask=True)["id"]


@pytest.fixture(scope="module")
def questions(home: DaemonHome, session: str) -> list[Made]:
    """Return a question of every kind in every state."""
    approver = KeptApprover.of(home)
    home.stop()

    async def make() -> list[Made]:
        with Ledger.open(home.path / "ledger.db", home.path, "0.1.0") as ledger:
            maker = _Maker(Audit(ledger), approver.key_id, session)
            consents = [kind for kind in ConsentKind if kind is not ConsentKind.ACTION]
            made = [await maker.consent(kind, state) for kind, state in itertools.product(consents, ApprovalState)]
            runs = [await maker.run(status) for status in RunStatus]
            return made + [run for run in runs if run is not None]

    made = anyio.run(make)
    home.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
    states: tuple[tuple[str, dict[str, str], RunStatus], ...] = (
        ("held", {}, RunStatus.APPROVED),
        ("ask-hold", {"path": "/never"}, RunStatus.RUNNING),
    )
    for action, args, status in states:
        asked = home.asked(action, args)
        assert approver.decide(home, asked["approval_id"]).status == 200
        made.append(Made(asked["approval_id"], ConsentKind.ACTION, status, asked["audit_id"]))
        wait_until(lambda: home.result(asked, wait=0)["status"] == status, status)  # noqa: B023 - called before the next
    return made


def test_these_tests_have_a_question_of_every_kind_in_every_state(questions: list[Made]) -> None:
    """The number follows from the closed sets in the code, so a new kind or state fails here until it is made."""
    consents = [kind for kind in ConsentKind if kind is not ConsentKind.ACTION]
    wanted: set[tuple[ConsentKind, RunStatus]] = {
        (kind, state.status) for kind, state in itertools.product(consents, ApprovalState)
    }
    wanted |= {(ConsentKind.ACTION, status) for status in RunStatus}

    assert {(question.kind, question.status) for question in questions} == wanted
    assert {state: state.status for state in ApprovalState} == WORDS


def test_every_route_shows_the_same_status_of_a_question(home: DaemonHome, questions: list[Made]) -> None:
    """The routes are the list, the question, its result, and the error of a decision that comes too late."""
    listed = {approval["approval_id"]: approval["status"] for approval in home.must("GET", ROUTE)["approvals"]}
    told = {}
    for question in questions:
        answers = [home.ask("GET", f"{ROUTE}/{question.id}"), home.ask("GET", f"{ROUTE}/{question.id}/result?wait=0")]
        answers += [home.ask("GET", f"/v1/runs/{question.run}")] if question.run else []
        assert [answer.status for answer in answers] == [200] * len(answers), (question, answers)
        told[question] = {answer.body["status"] for answer in answers}
        late = home.ask("POST", f"{ROUTE}/{question.id}/answer", {"answer": "x"})
        assert late.is_error, (question, late)
        told[question] |= {late.body["error"]["details"].get("status", question.status.value)}

    assert told == {question: {question.status.value} for question in questions}
    ours = {question.id: question.status.value for question in questions if question.status in LISTED}
    made = {question.id for question in questions}
    assert {name: status for name, status in listed.items() if name in made} == ours


def test_an_agent_sees_its_own_runs_but_no_consents(home: DaemonHome, questions: list[Made]) -> None:
    """HTTP and the Model Context Protocol agree for every state of a run."""
    with Agent(home.path / "run" / "mcp.sock") as agent:
        for question in questions:
            over_http = home.agent.request("GET", f"{ROUTE}/{question.id}/result")
            told = agent.call("check_action_status", id=question.id)
            if question.run is None:
                assert (over_http.status, told["error"]["class"]) == (404, "not_found"), question
            else:
                assert (over_http.body["status"], told["status"]) == (question.status.value, question.status.value), (
                    question
                )
        pending = {entry["approval_id"]: entry["status"] for entry in agent.call("list_pending")["pending"]}

    assert pending == {
        question.id: question.status.value for question in questions if question.run and question.status in LISTED
    }


def test_the_review_page_shows_questions_of_every_kind_and_state(home: DaemonHome, questions: list[Made]) -> None:
    """A pending question has a form to decide it; any other shows its status in words."""
    person = PageClient(home)
    assert person.unlock().status == 200
    queue = person.get("/approvals")
    assert queue.status == 200

    for question in questions:
        page = person.get(f"/approvals/{question.id}")
        assert page.status == 200, question
        if question.status is RunStatus.PENDING_APPROVAL:
            assert page.form("/approve"), question
        else:
            assert state_words(question.status) in page.words, question
        assert (question.id in queue.text) or question.status not in LISTED, question


def test_the_command_line_shows_questions_of_every_status(
    home: DaemonHome, questions: list[Made], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both agree with the other surfaces; the test shows one question for each status, of varying kinds."""
    monkeypatch.setenv("AILERON_HOME", str(home.path))
    assert aileron(["approval", "list", "--json"]) == 0
    listed = {
        approval["approval_id"]: approval["status"] for approval in json.loads(capsys.readouterr().out)["approvals"]
    }
    assert listed.items() >= {
        (question.id, question.status.value) for question in questions if question.status in LISTED
    }
    kinds = itertools.cycle(ConsentKind)
    for status in RunStatus:
        some = {question.kind: question for question in questions if question.status is status}
        question = some[next(kind for kind in kinds if kind in some)]
        assert aileron(["approval", "show", question.id]) == 0, question
        facts = dict(row.split("\t", 1) for row in capsys.readouterr().out.split("\n") if "\t" in row)
        assert facts["status"] == question.status.value, question


@pytest.mark.anyio
async def test_the_open_console_is_updated_when_a_consent_is_decided_elsewhere(home: DaemonHome) -> None:
    """The full-screen console shows the decision without a restart."""
    nobody = Hooks(check=lambda: None, ask=lambda _: Secret(b""), edit=str, take=lambda: None, let_go=lambda: None)
    app = Console(DaemonClient(home.path), nobody, who_else=lambda: "a test")
    async with app.run_test(size=(120, 100), notifications=True) as pilot:
        shown = Shown(app, pilot)
        await shown.until("daemon ok")
        asked = await anyio.to_thread.run_sync(put_secret, home)
        await shown.until(lambda: asked in app.waiting)
        decided = await anyio.to_thread.run_sync(KeptApprover.of(home).decide, home, asked)
        assert decided.status == 200, decided.body
        await shown.until(lambda: any("Replace the value" in row and " done" in row for row in shown.rows))


def put_secret(home: DaemonHome) -> str:
    """Replace the value of a bound secret, which needs consent, and return the question's id."""
    answer = home.ask("PUT", "/v1/secrets/pw", {"value_base64": "YW5vdGhlci1wYXNzd29yZA=="})
    assert answer.status == 202, answer.body
    return str(answer.body["approval_id"])
