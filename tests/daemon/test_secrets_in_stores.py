"""Secrets kept elsewhere, used from a jail: fetched by the daemon, lent, refused once they change, and stored nowhere."""

from __future__ import annotations

import base64
import json
import os
import shlex
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aileron.client import Answer
from tests.cli.command import Command
from tests.support.approver import Approver
from tests.support.canary import find, scan
from tests.support.home import PROBE, DaemonHome, daemon_home, word
from tests.support.key_value_store import TOKEN, KeyValueStore
from tests.support.memories import descendants_of, memory_of
from tests.support.password_store import PasswordStore, needs_pass
from tests.support.upstream import Seen, Upstream, answer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jail, needs_pass]

FIRST, SECOND, IN_PASS = "canary-one-in-a-store", "canary-two-in-a-store", "canary-three-in-pass"
BOUND = "basic/probe/me"
STEP_S = 60
"""Seconds for a step of the probe, several times the 10 s that the daemon takes for a secret (FETCH_S): which limit ends a run
must not depend on the machine.
"""


class World:
    """A home whose probe reaches a service that repeats what it was sent, with a key-value store and a password store."""

    def __init__(self, home: DaemonHome, store: KeyValueStore, passwords: PasswordStore, service: Upstream) -> None:
        self.home, self.store, self.passwords, self.service = home, store, passwords, service
        self.command = Command(home.path)
        self.sent: list[str] = []
        self.begun = threading.Event()
        self.goes_on = threading.Event()

    def keep_at(self, reference: str, name: str = "kept", token: str | None = "store-token") -> Answer:
        """Store a reference to a secret."""
        return self.home.ask(
            "PUT", f"/v1/secrets/{name}", {"reference": reference, **({"token": token} if token else {})}
        )

    def bind(self, secret: str = "kept") -> Answer:
        """Bind the secret to the probe, in place of the current binding."""
        self.home.ask("DELETE", f"/v1/bindings/{BOUND}")
        body = {"connector": PROBE, "name": BOUND, "username": "mira", "secret": secret}
        return self.home.ask("POST", "/v1/bindings", body)

    def keep_and_bind(self) -> None:
        """Store FIRST elsewhere and bind it."""
        self.store.value = FIRST
        assert word(self.keep_at(self.store.at("mail/home"))) == "ok"
        assert word(self.bind()) == "ok"

    def reopen(self) -> None:
        """Lock the vault and unlock it."""
        self.home.must("POST", "/v1/vault/lock")
        self.home.unlock()

    def fetch(self, *, with_credential: bool = True, path: str = "/") -> Answer:
        """Make a connector send a request to the service."""
        return self.home.run("fetch", {"with_credential": with_credential, "path": path})

    def sent_by_service(self) -> list[str]:
        """Return the Authorization fields that reached the service."""
        return [(seen.values("Authorization") or [""])[0] for seen in self.service.requests]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the recorded events of these types, oldest first."""
        rows = self.home.must("GET", "/v1/audit?limit=1000")["events"]
        return sorted((row for row in rows if row["type"] in kinds), key=lambda row: row["seq"])


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Start the home and its stores once; each test stores its own secret."""
    made: list[World] = []

    def service(seen: Seen) -> bytes | Iterable[bytes]:
        sent = (seen.values("Authorization") or [""])[0]
        made[0].sent.append(sent)
        if seen.target == "/wait":
            made[0].begun.set()
            made[0].goes_on.wait(20)
        decoded = base64.b64decode(sent.removeprefix("Basic ")).decode()
        return answer(f"you sent {sent}, which is {decoded}; others sent {IN_PASS} and {FIRST} and {SECOND}".encode())

    with PasswordStore() as passwords, KeyValueStore(FIRST) as store, Upstream(service) as upstream:
        passwords.insert("probe/me", f"{IN_PASS}\nuser: mira\n")
        before = {name: os.environ.get(name) for name in passwords.environment}
        os.environ.update(passwords.environment)
        try:
            with daemon_home() as home:
                hosts = [f"localhost:{upstream.port}", store.address]
                home.configure(f"[egress]\nprivate_plain = {json.dumps(hosts)}\n")
                home.install_probe(hosts[0], timeout_s=STEP_S)
                home.unlock()
                home.must("PUT", "/v1/secrets/store-token", {"value_base64": base64.b64encode(TOKEN).decode()})
                home.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
                made.append(World(home, store, passwords, upstream))
                yield made[0]
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_a_secret_kept_in_the_program_pass_is_lent_but_not_stored_by_aileron(world: World) -> None:
    """The jail's memory is searched while its request is in progress, and so are the response and the whole home.

    An ordinary user cannot read the memory of their own jails; tests/attacks runs this test as such a user too.
    """
    assert word(world.keep_at("pass:probe/me", token=None)) == "ok"
    assert word(world.bind()) == "ok"
    world.reopen()
    world.begun.clear()
    world.goes_on.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(world.fetch, path="/wait")
        assert world.begun.wait(20)
        daemon = world.home.daemon_pid
        assert daemon is not None
        jails = [memory_of(pid) for pid in descendants_of(daemon)] if os.geteuid() == 0 else []
        world.goes_on.set()
        got = running.result(25)

    wire = base64.b64encode(f"mira:{IN_PASS}".encode())
    assert world.sent[-1] == f"Basic {wire.decode()}"
    assert os.geteuid() != 0 or any(b"with_credential" in memory for memory in jails)
    said = json.dumps(got.body).encode()
    assert word(got) == "ok"
    assert b"you sent" in said
    for secret in (IN_PASS.encode(), wire):
        assert not any(secret in memory for memory in jails)
        assert not find(said, secret)
        assert not scan([world.home.path], secret)
    kinds = [row["type"] for row in world.events("secret.fetching", "egress.sending", "secret.fetch_failed")]
    assert kinds[-2:] == ["secret.fetching", "egress.sending"]
    fetching = world.events("secret.fetching")[-1]
    assert (fetching["name"], fetching["reference"], fetching["binding"]) == ("kept", "pass:probe/me", BOUND)


def test_twenty_simultaneous_requests_fetch_a_secret_once(world: World) -> None:
    """A later request uses the fetched secret too."""
    world.keep_and_bind()
    world.reopen()
    before = len(world.store.seen)
    with ThreadPoolExecutor(20) as pool:
        got = list(pool.map(lambda _: word(world.fetch()), range(20)))
    assert set(got) == {"ok"}
    assert word(world.fetch()) == "ok"
    assert len(world.store.seen) == before + 1


def test_a_secret_that_changed_in_its_store_is_lent_only_after_approval(world: World) -> None:
    """Even requests without the credential are refused: the service might repeat the new secret."""
    world.keep_and_bind()
    world.reopen()
    world.store.value = SECOND
    sent = len(world.sent)
    for refused in (world.fetch(), world.fetch(with_credential=False)):
        assert word(refused) == "binding_failed"
        message = refused.body["error"]["message"]
        assert (
            f"the secret at {world.store.at('mail/home')} changed since you approved it: aileron binding rebind {BOUND}"
            in message
        )
        assert SECOND not in message
    assert len(world.sent) == sent
    assert world.events("secret.fetch_failed")[-1]["code"] == "changed"

    said = world.command("binding", "rebind", BOUND)
    assert (said.code, said.out) == (0, ""), said
    assert f"{BOUND} uses the secret that is at {world.store.at('mail/home')} now" in said.err
    got = world.fetch()
    assert (word(got), world.sent[-1]) == ("ok", f"Basic {base64.b64encode(f'mira:{SECOND}'.encode()).decode()}")
    assert SECOND not in json.dumps(got.body)


def test_the_previous_value_of_a_changed_secret_is_still_masked(world: World) -> None:
    """The service knows the earlier value and repeats it in a response."""
    world.keep_and_bind()
    assert word(world.fetch()) == "ok"
    world.store.value = SECOND
    assert world.command("binding", "rebind", BOUND).code == 0
    got = world.fetch(with_credential=False)
    said = json.dumps(got.body)
    assert word(got) == "ok"
    assert "others sent" in said
    assert FIRST not in said
    assert SECOND not in said


def test_no_request_is_sent_to_the_host_of_a_bound_secret_before_the_secret_is_known(world: World) -> None:
    """Even a request without a credential is held back: the response could not be searched for the secret."""
    world.keep_and_bind()
    world.reopen()
    got = world.fetch(with_credential=False)
    assert word(got) == "ok"
    assert FIRST not in json.dumps(got.body)
    assert world.events("secret.fetching")[-1]["binding"] is None

    world.home.must("PUT", "/v1/secrets/store-token", {"value_base64": base64.b64encode(b"hvs.revoked").decode()})
    try:
        world.reopen()
        sent = len(world.sent)
        got = world.fetch(with_credential=False)
        assert word(got) == "binding_failed"
        assert "refuses the token store-token for it (403)" in got.body["error"]["message"]
        assert len(world.sent) == sent
    finally:
        world.home.must("PUT", "/v1/secrets/store-token", {"value_base64": base64.b64encode(TOKEN).decode()})
    assert word(world.fetch(with_credential=False)) == "ok"


def test_a_connector_is_not_told_where_a_secret_is_kept(world: World) -> None:
    """The store's server is unreachable: the connector learns only the secret's name, and that it may retry."""
    world.keep_and_bind()
    world.reopen()
    world.store.is_away = True
    try:
        got = world.fetch()
    finally:
        world.store.is_away = False
    said = json.dumps(got.body)
    assert word(got) == "network_error"
    assert "the secret 'kept' cannot be fetched now: the server that keeps it was not reached" in said
    assert world.store.address not in said
    assert "mail/home" not in said
    assert world.events("secret.fetch_failed")[-1]["code"] == "unreachable"
    assert word(world.fetch()) == "ok"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("pass:none/here", "has no such entry"),
        ("env-file:/home/me/.env", "an agent that runs as you could read the file"),
        ("op://Private/Mail/password", "there is no op of the system's"),
        ("vault://{store}/secret/none#password", "has no such secret (404)"),
        ("vault://{store}/secret/sealed#password", "unseal it, then try again"),
        ("vault://203.0.113.1:8200/secret/../x#y", "'..' cannot be a part of a path"),
    ],
    ids=["no-entry", "env-file", "no-program", "no-secret", "sealed", "no-reference"],
)
def test_a_reference_to_a_secret_that_cannot_be_fetched_is_not_stored(world: World, reference: str, why: str) -> None:
    """The person who stores it gets the reason."""
    text = reference.replace("{store}", world.store.address)
    got = world.keep_at(text, name="unfetched", token="store-token" if text.startswith("vault:") else None)
    assert got.is_error
    assert why in got.body["error"]["message"]
    assert "unfetched" not in [secret["name"] for secret in world.home.must("GET", "/v1/secrets")["secrets"]]


def test_a_reference_to_an_unusable_secret_is_not_stored(world: World) -> None:
    """The value is too short to be masked in responses, or has two lines."""
    for value, why in (("short", "has 5 bytes"), ("two lines\nof it", "contains a line end")):
        world.store.value = value
        got = world.keep_at(world.store.at("mail/home"), name="unfit")
        assert word(got) == "bad_input"
        assert why in got.body["error"]["message"]


def test_a_script_can_bind_a_secret_that_is_kept_elsewhere(world: World) -> None:
    """The commands then show where the secret is kept."""
    world.home.ask("DELETE", f"/v1/bindings/{BOUND}")
    world.store.value = FIRST
    reference = world.store.at("mail/home")
    given = ("--name", BOUND, "--username", "mira", "--from", reference, "--from-token", "store-token")
    world.command("binding", "setup", PROBE, *given).exits(0)
    assert word(world.fetch()) == "ok"
    shown = world.command("binding", "inspect", BOUND)
    assert f"{reference}, with the token store-token" in " ".join(shown.out.split())
    listed = world.command("secret", "list", "--json").json["secrets"]
    assert {"reference": reference, "token": "store-token"} in [secret.get("elsewhere") for secret in listed]
    world.store.value = SECOND
    world.command("binding", "rebind", BOUND, "--from", "pass:probe/me").exits(0)
    assert word(world.fetch()) == "ok"
    assert world.sent[-1] == f"Basic {base64.b64encode(f'mira:{IN_PASS}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("secret", "set", "x", "--from", "env-file:.env"), "an agent that runs as you could read the file"),
        (("secret", "set", "x", "--from-token", "y"), "--from-token belongs to --from"),
        (("binding", "setup", PROBE, "--from", "nowhere"), "is not a reference to a secret"),
        (("binding", "setup", PROBE, "--from", "pass:a", "--secret", "b"), "cannot be used together"),
    ],
    ids=["env-file", "token-alone", "no-reference", "both"],
)
def test_invalid_options_for_a_reference_to_a_secret_are_refused(
    world: World, words: tuple[str, ...], why: str
) -> None:
    """The command exits before it prompts for anything."""
    said = world.command(*words).exits(2)
    assert why in " ".join(said.err.split())


class Signed(World):
    """A home with an approver and the same stores; nothing is bound in it yet."""

    def __init__(self, home: DaemonHome, world: World, approver: Approver) -> None:
        super().__init__(home, world.store, world.passwords, world.service)
        self.approver = approver

    def asked(self, answer: Answer) -> dict[str, Any]:
        """Check that an answer waits for approval, and return the question's subject."""
        assert answer.status == 202, answer.body
        subject: dict[str, Any] = self.approver.shown(self.home, answer.body["approval_id"])["subject"]
        return subject

    def agree(self, answer: Answer) -> None:
        """Approve the question of an answer."""
        self.approver.agree(self.home, answer)

    def kept_at(self) -> str | None:
        """Return where the binding's secret is kept."""
        found = self.home.must("GET", f"/v1/bindings/{BOUND}").get("elsewhere")
        return None if found is None else found["reference"]


@pytest.fixture(scope="module")
def signed(world: World) -> Iterator[Signed]:
    """Start the home with an approver once."""
    approver = Approver()
    with daemon_home() as home:
        hosts = [f"localhost:{world.service.port}", world.store.address, f"127.0.0.1:{world.store.port}"]
        home.configure(f"[egress]\nprivate_plain = {json.dumps(hosts)}\n")
        home.install_probe(hosts[0], timeout_s=STEP_S)
        home.unlock()
        home.must("PUT", "/v1/secrets/store-token", {"value_base64": base64.b64encode(TOKEN).decode()})
        home.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        approver.appoint(home)
        yield Signed(home, world, approver)


@pytest.fixture
def unbound(signed: Signed) -> Signed:
    """Remove the binding and the secret, neither of which needs approval."""
    signed.home.ask("DELETE", f"/v1/bindings/{BOUND}")
    signed.home.ask("DELETE", "/v1/secrets/kept")
    signed.store.value = FIRST
    return signed


@pytest.mark.abuse_case("S4")
def test_no_secret_is_sent_to_a_secret_server_as_its_token_before_approval(unbound: Signed) -> None:
    """A reference names the server and the token to send, so it could send a password to a hostile server. After
    approval the secret is fetched.
    """
    home, store = unbound.home, unbound.store
    home.must("PUT", "/v1/secrets/mail-password", {"value_base64": base64.b64encode(TOKEN).decode()})
    theirs = f"vault://127.0.0.1:{store.port}/secret/mail/home#password"
    seen = len(store.seen)
    answer = unbound.keep_at(theirs, token="mail-password")
    subject = unbound.asked(answer)
    assert (subject["token"], subject["token_to"]) == ("mail-password", f"127.0.0.1:{store.port}")
    assert subject["reference"] == f"{theirs}, with the token mail-password"
    assert len(store.seen) == seen
    assert "kept" not in [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]]
    unbound.approver.decide(home, answer.body["approval_id"], "deny")
    assert len(store.seen) == seen

    unbound.agree(unbound.keep_at(theirs, token="mail-password"))
    assert store.seen[-1].values("X-Vault-Token") == [TOKEN.decode()]
    assert len(store.seen) == seen + 1
    # The server gets that token already, so another secret there needs no question. Another token or server does.
    assert word(unbound.keep_at(theirs, "kept-too", "mail-password")) == "ok"
    seen = len(store.seen)
    for reference, token in ((theirs, "store-token"), (store.at("mail/home"), "mail-password")):
        assert "token_to" in unbound.asked(unbound.keep_at(reference, "kept-too", token))
    assert len(store.seen) == seen
    home.must("DELETE", "/v1/secrets/kept")
    home.must("DELETE", "/v1/secrets/kept-too")
    home.must("DELETE", "/v1/secrets/mail-password")


def test_the_command_prints_how_to_bind_a_secret_after_its_servers_token_is_approved(unbound: Signed) -> None:
    """A script cannot wait for the decision; the printed command binds the secret under its new name."""
    home, reference = unbound.home, f"vault://127.0.0.1:{unbound.store.port}/secret/mail/home#password"
    home.must("PUT", "/v1/secrets/new-token", {"value_base64": base64.b64encode(TOKEN).decode()})
    given = ("--name", BOUND, "--username", "mira", "--from", reference, "--from-token", "new-token")
    said = unbound.command("binding", "setup", PROBE, *given).exits(75)
    how = next(line for line in said.err.splitlines() if "fix: aileron binding setup" in line).partition(
        "fix: aileron "
    )[2]
    assert how == f"binding setup {PROBE} --name {BOUND} --username mira --secret probe-me"
    # A question has that name now, so the secret of another binding with the same last words gets another name.
    other = f"vault://{unbound.store.address}/secret/mail/home#password"
    also = unbound.command("binding", "setup", PROBE, *given[:4], "--from", other, "--from-token", "new-token")
    assert unbound.approver.shown(home, also.out.strip())["subject"]["name"] == "probe-me-2"
    assert unbound.approver.decide(home, also.out.strip(), "deny").status == 200
    subject = unbound.approver.shown(home, said.out.strip())["subject"]
    assert (subject["name"], subject["token_to"]) == ("probe-me", f"127.0.0.1:{unbound.store.port}")
    assert unbound.approver.decide(home, said.out.strip()).status == 200
    bound = unbound.command(*shlex.split(how)).exits(75)
    assert unbound.approver.decide(home, bound.out.strip()).status == 200
    assert word(unbound.fetch()) == "ok"
    home.must("DELETE", f"/v1/bindings/{BOUND}")
    home.must("DELETE", "/v1/secrets/probe-me")
    home.must("DELETE", "/v1/secrets/new-token")


def test_a_slow_secret_server_blocks_no_other_decision_or_run(unbound: Signed) -> None:
    """The server answers an approved request slowly; meanwhile secrets are stored and connectors run."""
    home, store = unbound.home, unbound.store
    value = {"value_base64": base64.b64encode(TOKEN).decode()}
    home.must("PUT", "/v1/secrets/slow-token", value)
    asked = unbound.keep_at(store.at("slow"), token="slow-token")
    assert unbound.asked(asked)["token"] == "slow-token"
    store.goes_on.clear()
    before = len(store.seen)
    try:
        with ThreadPoolExecutor(1) as pool:
            deciding = pool.submit(unbound.approver.decide, home, asked.body["approval_id"])
            wait_until(lambda: len(store.seen) > before, "the server is asked")
            home.must("PUT", "/v1/secrets/other", value)
            unbound.agree(unbound.bind("other"))
            assert word(unbound.fetch()) == "ok"
            assert not deciding.done()
            store.goes_on.set()
            assert deciding.result(25).status == 200
    finally:
        store.goes_on.set()
    assert "kept" in [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]]
    home.must("DELETE", f"/v1/bindings/{BOUND}")
    for name in ("kept", "other", "slow-token"):
        home.must("DELETE", f"/v1/secrets/{name}")


@pytest.mark.abuse_case("S4")
def test_an_invalid_name_for_a_secret_servers_token_is_refused_before_any_question(unbound: Signed) -> None:
    """A missing secret cannot be a store's token, nor can a secret that is itself kept elsewhere."""
    for token in ("nothing-here", "kept"):
        got = unbound.keep_at(unbound.store.at("mail/home"), token=token)
        assert (word(got), "is no value in this vault" in got.body["error"]["message"]) == ("invalid_request", True)


@pytest.mark.abuse_case("S5")
def test_a_secret_replaced_while_its_question_is_pending_is_not_lent(unbound: Signed) -> None:
    """Only the value that was fetched for the question is approved."""
    assert word(unbound.keep_at("pass:probe/me", token=None)) == "ok"
    unbound.agree(unbound.bind())
    unbound.agree(unbound.keep_at(unbound.store.at("mail/home")))  # the store gets its token for the first time
    assert word(unbound.keep_at(unbound.store.at("mail/home"))) == "ok"  # the place and the token are approved already
    unbound.store.value = SECOND
    asked = unbound.keep_at(unbound.store.at("mail/home"))
    assert "token_to" not in unbound.asked(asked)
    unbound.store.value = "canary-that-came-after-the-question"
    unbound.agree(asked)
    assert word(unbound.fetch()) == "ok"
    assert unbound.sent_by_service()[-1] == f"Basic {base64.b64encode(f'mira:{SECOND}'.encode()).decode()}"
    unbound.reopen()
    got = unbound.fetch()
    assert (word(got), got.body["error"]["details"]["code"]) == ("binding_failed", "changed")


@pytest.mark.abuse_case("S5")
def test_replacing_a_secret_needs_approval_while_its_binding_is_pending(unbound: Signed) -> None:
    """Otherwise the person would approve a credential with another value than the one in the question."""
    unbound.home.must("PUT", "/v1/secrets/kept", {"value_base64": base64.b64encode(FIRST.encode()).decode()})
    asked = unbound.bind()
    assert asked.status == 202
    swapped = unbound.home.ask("PUT", "/v1/secrets/kept", {"value_base64": base64.b64encode(SECOND.encode()).decode()})
    assert unbound.asked(swapped)["bindings"] == [BOUND]
    assert unbound.asked(unbound.keep_at("pass:probe/me", token=None))["bindings"] == [BOUND]
    unbound.agree(asked)
    assert word(unbound.fetch()) == "ok"
    assert unbound.sent_by_service()[-1] == f"Basic {base64.b64encode(f'mira:{FIRST}'.encode()).decode()}"


@pytest.mark.abuse_case("S5")
def test_the_approver_signs_where_a_secret_is_kept(unbound: Signed) -> None:
    """The signed subject names the place; an approved binding fails if the place changed meanwhile."""
    home, at_store = unbound.home, unbound.store.at("mail/home")
    assert word(unbound.keep_at("pass:probe/me", token=None)) == "ok"
    asked = unbound.bind()
    assert unbound.asked(asked)["reference"] == "pass:probe/me, read by /usr/bin/pass"
    exchanged = unbound.keep_at(at_store)
    assert unbound.asked(exchanged)["bindings"] == [BOUND]
    unbound.agree(exchanged)
    decided = unbound.approver.decide(home, asked.body["approval_id"])
    assert "hash_mismatch" in json.dumps(decided.body), decided.body
    assert home.must("GET", "/v1/bindings")["bindings"] == []

    unbound.agree(unbound.bind())
    changed = unbound.keep_at("pass:probe/me", token=None)
    subject = unbound.asked(changed)
    assert (subject["kind"], subject["bindings"]) == ("secret", [BOUND])
    assert unbound.kept_at() == at_store
    unbound.agree(changed)
    assert unbound.kept_at() == "pass:probe/me"
    assert unbound.keep_at("pass:probe/me", token=None).status == 200


@pytest.mark.abuse_case("S5")
def test_replacing_a_secret_fails_if_a_binding_was_added_after_the_question(unbound: Signed) -> None:
    """The approval must name every binding that uses the secret; one that was revoked meanwhile does no harm."""
    assert word(unbound.keep_at("pass:probe/me", token=None)) == "ok"
    unbound.agree(unbound.bind())
    other = {"connector": PROBE, "name": "basic/probe/other", "username": "mira", "secret": "kept"}
    value = {"value_base64": base64.b64encode(SECOND.encode()).decode()}
    asked = unbound.home.ask("PUT", "/v1/secrets/kept", value)
    assert unbound.asked(asked)["bindings"] == [BOUND]
    unbound.agree(unbound.home.ask("POST", "/v1/bindings", other))
    decided = unbound.approver.decide(unbound.home, asked.body["approval_id"])
    assert "hash_mismatch" in json.dumps(decided.body), decided.body
    assert unbound.kept_at() == "pass:probe/me"

    asked = unbound.home.ask("PUT", "/v1/secrets/kept", value)
    assert unbound.asked(asked)["bindings"] == [BOUND, "basic/probe/other"]
    unbound.home.must("DELETE", "/v1/bindings/basic/probe/other")
    unbound.agree(asked)
    assert unbound.kept_at() is None


@pytest.mark.abuse_case("S5")
def test_a_new_approver_sees_where_secrets_are_kept(unbound: Signed) -> None:
    """The inventory has each reference, also one that was stored without a signature, for approval with the rest."""
    assert word(unbound.keep_at("pass:probe/me", token=None)) == "ok"
    unbound.agree(unbound.bind())
    inventory = unbound.home.must("GET", "/v1/approver/inventory")["inventory"]
    assert {"name": "kept", "kept_at": "pass:probe/me, read by /usr/bin/pass"} in inventory["references"]
    (bound,) = inventory["bindings"]
    assert bound["reference"] == "pass:probe/me, read by /usr/bin/pass"
