"""Which credential a run uses: what is named, or the only one that serves; never a guess, and never more than was agreed to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.choosing import MAX_CHOICES, Choice, choices, credentials
from aileron.actions.manifest import parse_action
from aileron.actions.resolve import account_choices, check_as_resolved, resolve
from aileron.config import Settings
from aileron.model.credential import Candidate, Reach
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ConnectorManifest, CredentialNeed, OAuth2Provider
from aileron.model.names import BindingName, Fqn, HostPort
from aileron.model.plan import Plan
from aileron.model.request_signing import TokenGrant

MAIL, POST = "github://acme/mail", "github://acme/post"
PIN = "sha256:" + "ab" * 32
HOSTS = (HostPort("mail.example.com", 443),)
NEED = CredentialNeed(kind="oauth2", scope="Read and send your mail")
PROVIDER = OAuth2Provider(
    authorize_url="https://id.example.com/authorize",
    token_url="https://id.example.com/token",
    client_id="acme",
    scopes=("mail.read", "mail.send"),
)
Text = Callable[..., str]


def manifest(name: str = MAIL, **changes: Any) -> ConnectorManifest:
    """A connector that signs in."""
    fields: dict[str, Any] = {"hosts": HOSTS, "credential": NEED, "oauth2": PROVIDER, **changes}
    return ConnectorManifest(name=Fqn.parse(name), version="1.2.0", **fields)


AGREED = Reach.of(manifest())


def bound(identity: str, *, service: str = "mail", kind: str = "oauth2", **changes: Any) -> Candidate:
    """A binding made for what `manifest` asks for."""
    return Candidate(**{"name": BindingName(kind, service, identity), "reach": AGREED, **changes})


HOME, WORK = bound("home", account="mira@example.com"), bound("work")


class Vault:
    """Bindings by the last part of their connector's name."""

    def __init__(self, **found: Sequence[Candidate]) -> None:
        self._found = found

    def candidates(self, connector: str, kind: str) -> Sequence[Candidate]:
        """Those of that connector and kind."""
        return [one for one in self._found.get(connector.rpartition("/")[2], ()) if one.name.kind == kind]


def used(wanted: str | None, *manifests: ConnectorManifest, **found: Sequence[Candidate]) -> list[str]:
    """The names of what is used, in the order of the manifests."""
    asked = {str(one.name): one for one in manifests or (manifest(),)}
    return [str(use.binding) for use in credentials(wanted, asked, Vault(**found)).values() if use is not None]


def refused(wanted: str | None, *manifests: ConnectorManifest, **found: Sequence[Candidate]) -> Failure:
    """Why none is."""
    with pytest.raises(AileronError) as caught:
        used(wanted, *manifests, **found)
    failure = caught.value.failure
    assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_REQUIRED, Boundary.USER)
    return failure


def offered(*manifests: ConnectorManifest, **found: Sequence[Candidate]) -> tuple[Choice, ...]:
    """What there is to choose between."""
    return choices({str(one.name): one for one in manifests or (manifest(),)}, Vault(**found))


def test_the_only_one_is_used_with_its_account():
    """Nobody has to say what is not in doubt; a connector that needs nothing gets nothing."""
    free = manifest(POST, credential=None, oauth2=None)
    found = credentials(None, {"a": manifest(), "b": free}, Vault(mail=[HOME]))

    assert found["b"] is None
    assert found["a"] is not None
    assert (found["a"].connector, found["a"].binding, found["a"].account) == (MAIL, HOME.name, "mira@example.com")


@pytest.mark.parametrize(
    ("need", "options"),
    [
        (NEED, "--name oauth2/SERVICE/IDENTITY"),
        (CredentialNeed(kind="basic", scope="s"), "--name basic/SERVICE/IDENTITY --username USER --secret NAME"),
        (CredentialNeed(kind="api_key", scope="s"), "--name api_key/SERVICE/IDENTITY --secret NAME"),
    ],
)
def test_none_says_how_to_bind_one(need: CredentialNeed, options: str):
    """The whole command, as a fact and at the end of the message, with what the connector wants it for."""
    failure = refused(None, manifest(credential=need, oauth2=PROVIDER if need is NEED else None))
    setup = f"aileron binding setup {MAIL} {options}"

    assert failure.details == {"connector": MAIL, "kind": need.kind, "scope": need.scope, "setup": setup}
    assert failure.message.endswith(f"and has none: {setup}")
    assert need.scope in failure.message


def test_one_that_only_reads_is_not_said_to_be_none():
    """Operations that write are not offered it, and the message says why: it is bound, and only reads."""
    reader = bound("reader", kind="login", read_only=True)
    database = manifest(credential=CredentialNeed(kind="login", scope="s"), oauth2=None)

    failure = refused(None, database, mail=[reader])

    assert "and has none that can write (what is bound only reads): aileron binding setup" in failure.message


def test_several_are_named_with_whose_they_are():
    """By name, in order, with the accounts that are known; and each can then be named, in full or by identity."""
    failure = refused(None, mail=[WORK, HOME])

    assert failure.details["choices"] == ["oauth2/mail/home", "oauth2/mail/work"]
    assert failure.details["accounts"] == {"oauth2/mail/home": "mira@example.com"}
    assert "oauth2/mail/home (mira@example.com), oauth2/mail/work" in failure.message
    for name in ("work", "oauth2/mail/work", " work "):
        assert used(name, mail=[WORK, HOME]) == ["oauth2/mail/work"]


def test_an_unknown_name_is_answered_with_what_there_is():
    """Not with the only one, and not with "several"."""
    for found in ([HOME], [HOME, WORK]):
        failure = refused("wrok", mail=found)
        assert failure.details["binding"] == "wrok"
        assert failure.details["choices"] == [str(one.name) for one in found]
        assert failure.message.startswith("this action has no credential bound as 'wrok'; there ")
    for name in ("", "home,", "home,wrok", "x" * 10_000):
        assert len(refused(name, mail=[HOME]).message) < 1000
    assert "there is none" in refused("home", manifest(credential=None, oauth2=None)).message


def test_one_name_for_two_credentials_does_not_say_which():
    """An identity that two have, and two names at once."""
    archive = bound("home", service="archive")

    assert "'home' matches several" in refused("home", mail=[HOME, archive]).message
    assert "'home,work' matches several" in refused("home,work", mail=[HOME, WORK]).message
    assert used("oauth2/archive/home", mail=[HOME, archive]) == ["oauth2/archive/home"]


def test_one_name_serves_every_connector_that_has_it():
    """And a name that only one of them has leaves the other's only choice alone."""
    both = manifest(), manifest(POST)
    found = {"mail": [HOME, WORK], "post": [bound("work", service="post"), bound("team", service="post")]}

    assert used("work", *both, **found) == ["oauth2/mail/work", "oauth2/post/work"]
    assert used("work,team", *both, mail=[HOME, WORK], post=[bound("team", service="post")])
    assert used("home", *both, mail=[HOME, WORK], post=[bound("me", service="post")])[1] == "oauth2/post/me"


def test_two_connectors_that_each_have_several_take_two_names():
    """Where no identity is common to both; one alone leaves the other in doubt, and that is said of the other."""
    both = manifest(), manifest(POST)
    found = {"mail": [HOME, WORK], "post": [bound("team", service="post"), bound("own", service="post")]}

    assert used("home,team", *both, **found) == ["oauth2/mail/home", "oauth2/post/team"]
    assert used("oauth2/post/own,oauth2/mail/work", *both, **found) == ["oauth2/mail/work", "oauth2/post/own"]
    failure = refused("home", *both, **found)
    assert (failure.details["connector"], failure.details["choices"]) == (POST, ["oauth2/post/own", "oauth2/post/team"])


# What was agreed to


WIDER = {
    "host b.example:443": ({"hosts": (*HOSTS, HostPort("b.example", 443))}, "rebind"),
    "scope mail.delete": (
        {"oauth2": msgspec.structs.replace(PROVIDER, scopes=(*PROVIDER.scopes, "mail.delete"))},
        "reauthorize",
    ),
    "application other at https://id.example.com/token, not acme at https://id.example.com/token": (
        {"oauth2": msgspec.structs.replace(PROVIDER, client_id="other")},
        "reauthorize",
    ),
    "application registered at https://id.example.com/r at https://id.example.com/token, "
    "not acme at https://id.example.com/token": (
        {"oauth2": msgspec.structs.replace(PROVIDER, client_id=None, registration_url="https://id.example.com/r")},
        "reauthorize",
    ),
    "application acme at https://id.example.com/token for https://mail.example.com/mcp, "
    "not acme at https://id.example.com/token": (
        {"oauth2": msgspec.structs.replace(PROVIDER, resource="https://mail.example.com/mcp")},
        "reauthorize",
    ),
    "application acme at https://evil.example/token, not acme at https://id.example.com/token": (
        {"oauth2": msgspec.structs.replace(PROVIDER, token_url="https://evil.example/token")},
        "reauthorize",
    ),
}


@pytest.mark.parametrize("new", WIDER)
def test_a_connector_that_asks_for_more_suspends_its_binding(new: str):
    """Told what is new and what to do; the version it was agreed for goes on."""
    changes, verb = WIDER[new]
    failure = refused(None, manifest(**changes), mail=[HOME])

    assert failure.details["widened"] == [new]
    assert failure.details["setup"] == f"aileron binding {verb} oauth2/mail/home"
    assert failure.details.get("signs_in") is (True if verb == "reauthorize" else None)
    assert failure.details["binding"] == "oauth2/mail/home"
    assert failure.message.endswith(f"asks for more than you approved ({new}): aileron binding {verb} oauth2/mail/home")
    assert used(None, mail=[HOME])


@pytest.mark.parametrize(
    "change",
    [{"token_url": "https://other.example/token"}, {"scopes": ("read", "write")}, {"audience": "https://api.example"}],
    ids=str,
)
def test_where_nobody_signs_in_agreeing_is_enough(change: dict[str, Any]):
    """Of tokens without a person, whatever is new: there is no sign-in to do again. Fewer scopes are no question."""
    grant = TokenGrant(
        grant="client_credentials",
        token_url="https://id.example/token",
        client_auth="client_secret_basic",
        scopes=("read",),
    )

    def asks(wanted: TokenGrant) -> ConnectorManifest:
        return manifest(credential=CredentialNeed(kind="oauth2_client", scope="s", token=wanted), oauth2=None)

    robot = bound("robot", kind="oauth2_client", reach=Reach.of(asks(grant)))
    failure = refused(None, asks(msgspec.structs.replace(grant, **change)), mail=[robot])

    assert failure.details["setup"] == "aileron binding rebind oauth2_client/mail/robot"
    assert "signs_in" not in failure.details
    assert used(None, asks(msgspec.structs.replace(grant, scopes=())), mail=[robot])


def test_another_way_on_the_wire_suspends():
    """A key that went in one header does not go in another; the same way passes."""
    before = CredentialNeed(kind="api_key", scope="s")
    after = CredentialNeed(kind="api_key", scope="s", header="X-Key", format="{key}")
    key = bound("home", kind="api_key", reach=Reach.of(manifest(credential=before, oauth2=None)))

    failure = refused(None, manifest(credential=after, oauth2=None), mail=[key])
    assert failure.details["setup"] == "aileron binding rebind api_key/mail/home"
    assert failure.details["widened"] == ["sent as X-Key: KEY, not as Authorization: Bearer KEY"]
    assert used(None, manifest(credential=before, oauth2=None), mail=[key])


def test_a_connector_that_asks_for_less_is_served():
    """Fewer hosts and scopes are no question."""
    less = manifest(hosts=(), oauth2=msgspec.structs.replace(PROVIDER, scopes=("mail.read",)))

    assert used(None, less, mail=[HOME]) == ["oauth2/mail/home"]


def test_a_binding_from_before_reach_was_kept_is_suspended():
    """It is bound anew once; what it was for is not known."""
    failure = refused(None, mail=[bound("home", reach=None)])

    assert failure.details["setup"] == "aileron binding rebind oauth2/mail/home"
    assert "created before Aileron recorded what a binding may reach" in failure.message


def test_it_is_the_version_of_the_step_that_counts():
    """Of two installed versions one asks for more: an action pinned to the other goes on."""
    wider = manifest(POST, hosts=(*HOSTS, HostPort("b.example", 443)))

    assert used(None, manifest(), mail=[HOME], post=[bound("home", service="post")])
    assert refused(None, manifest(), wider, mail=[HOME], post=[bound("home", service="post")]).details["widened"]


def test_a_suspended_one_is_no_choice_unless_it_is_named():
    """The other serves by itself; named, it is refused, and the other is not taken instead."""
    old = bound("home", reach=None)

    assert used(None, mail=[old, WORK]) == ["oauth2/mail/work"]
    assert refused("home", mail=[old, WORK]).details["binding"] == "oauth2/mail/home"
    assert refused(None, mail=[old, WORK, bound("team")]).details["choices"] == ["oauth2/mail/team", "oauth2/mail/work"]


def test_where_all_of_several_are_suspended_which_is_asked_first():
    """Nobody guesses which of them to bind anew either."""
    both = [bound("home", reach=None), bound("work", reach=None)]
    failure = refused(None, mail=both)

    assert failure.details["choices"] == ["oauth2/mail/home", "oauth2/mail/work"]
    assert "all 2 credentials are suspended; choose one" in failure.message
    assert refused("work", mail=both).details["setup"] == "aileron binding rebind oauth2/mail/work"


# What is offered


def test_only_a_real_choice_is_offered():
    """One, one that serves among suspended ones, and none: nothing to choose."""
    for found in ([], [HOME], [HOME, bound("work", reach=None)], [bound("a", reach=None), bound("b", reach=None)]):
        assert offered(mail=found) == ()
    assert [choice.value for choice in offered(mail=[WORK, HOME])] == ["home", "work"]


def test_a_choice_is_spelled_so_that_it_means_one():
    """An identity where that says it, else names in full; and of no connector that the action does not use."""
    archive = bound("home", service="archive")
    assert [choice.value for choice in offered(mail=[HOME, archive])] == ["oauth2/archive/home", "oauth2/mail/home"]

    both = manifest(), manifest(POST)
    found = {"mail": [HOME, WORK], "post": [bound("work", service="post"), bound("team", service="post")]}
    assert [choice.value for choice in offered(*both, **found)] == [
        "home,team",
        "oauth2/mail/home,oauth2/post/work",  # both have a work, so that word alone would mean two
        "oauth2/mail/work,oauth2/post/team",
        "work",
    ]
    assert offered(mail=[HOME], other=[HOME, WORK]) == ()


def test_more_than_can_be_read_are_marked_as_more():
    """One beyond the bound, and no more work than that."""
    many = [bound(f"a{number:03}") for number in range(300)]

    assert len(offered(manifest(), manifest(POST), mail=many, post=many)) <= MAX_CHOICES + 1
    assert len(offered(mail=many)) == MAX_CHOICES + 1
    assert len(refused(None, mail=many).details["choices"]) == MAX_CHOICES
    assert "and 268 more" in refused(None, mail=many).message


IDENTITIES = st.sampled_from(["home", "work", "team"])
REACHES = st.sampled_from([AGREED, msgspec.structs.replace(AGREED, hosts=()), None])


def _candidates(*services: str) -> st.SearchStrategy[list[Candidate]]:
    """Bindings of one connector; a name is one connector's."""
    one = st.builds(
        bound,
        IDENTITIES,
        service=st.sampled_from(services),
        reach=REACHES,
        account=st.sampled_from(["mira@example.com", None]),
    )
    return st.lists(one, max_size=4, unique_by=lambda found: found.name)


OF_MAIL, OF_POST = _candidates("mail", "archive"), _candidates("post", "chat")
FULL = st.builds("oauth2/{}/{}".format, st.sampled_from(["mail", "archive", "post", "chat"]), IDENTITIES)
WANTED = st.none() | st.lists(IDENTITIES | FULL, min_size=1, max_size=2).map(",".join)


def _meant(candidates: Sequence[Candidate], wanted: str | None) -> list[Candidate]:
    names = set() if wanted is None else set(wanted.split(","))
    return [one for one in candidates if {str(one.name), one.name.identity} & names]


@given(mail=OF_MAIL, post=OF_POST, wanted=WANTED)
def test_nothing_is_ever_guessed(mail: list[Candidate], post: list[Candidate], wanted: str | None):
    """Used: the one that is named, or the only one that serves. Never one of two, never a suspended one, never another's."""
    asked = {"mail": manifest(), "post": manifest(POST)}
    bound_to: Mapping[str, list[Candidate]] = {"mail": mail, "post": post}
    expected = {
        key: _meant(found, wanted) or [one for one in found if one.reach == AGREED] for key, found in bound_to.items()
    }
    names = set() if wanted is None else set(wanted.split(","))
    known = {name for one in (*mail, *post) for name in (str(one.name), one.name.identity)}
    is_clear = names <= known and all(len(one) == 1 and one[0].reach == AGREED for one in expected.values())
    if not is_clear:
        with pytest.raises(AileronError) as caught:
            credentials(wanted, asked, Vault(mail=mail, post=post))
        assert caught.value.failure.failure_class is FailureClass.BINDING_REQUIRED
        assert {"setup", "choices"} & set(caught.value.failure.details)
        return
    for key, use in credentials(wanted, asked, Vault(mail=mail, post=post)).items():
        assert use is not None
        assert (use.binding, use.account) == (expected[key][0].name, expected[key][0].account)


@given(mail=OF_MAIL, post=OF_POST)
def test_whatever_is_offered_is_taken_and_covers_all(mail: list[Candidate], post: list[Candidate]):
    """Each value gives just what it was said to give; together they are every combination of those that serve."""
    asked, vault = {"mail": manifest(), "post": manifest(POST)}, Vault(mail=mail, post=post)
    found = choices(asked, vault)
    serving = [[one for one in some if one.reach == AGREED] for some in (mail, post)]

    if found:
        assert len(found) == len(serving[0]) * len(serving[1])
    else:
        assert not all(serving) or [len(some) for some in serving] == [1, 1]
    for choice in found:
        uses = credentials(choice.value, asked, vault)
        names = [use.binding for use in uses.values() if use is not None]
        assert all(one.name in names for one in choice.uses)


# In a plan


class Store:
    """One connector, whatever its bytes."""

    def __init__(self, *manifests: ConnectorManifest) -> None:
        self._manifests = {str(one.name): one for one in manifests}

    def manifest(self, pin: Any) -> ConnectorManifest:
        """As it was made."""
        return self._manifests[pin.name]


def planned(text: str, binding: str | None, vault: Vault, found: ConnectorManifest | None = None) -> Plan:
    """The plan of one run."""
    invocation = Invocation(action="send-email", args={"to": "ann"}, scope=Scope.AGENT, binding=binding)
    return resolve(
        invocation,
        parse_action(text, file="a.md"),
        connectors=Store(found or manifest()),
        bindings=vault,
        settings=Settings(),
    )


def test_a_plan_says_whose_credential_it_uses(action_text: Text):
    """Kind, scope and account are in it, so they are shown, approved and on record; another account is another plan."""
    vault = Vault(mail=[HOME, WORK])
    (step,) = planned(action_text(), "home", vault).steps
    use = step.grant.credential

    assert use is not None
    assert (use.need.kind, use.need.scope, use.account) == ("oauth2", "Read and send your mail", "mira@example.com")
    other = Vault(mail=[msgspec.structs.replace(HOME, account="eve@example.com")])
    assert planned(action_text(), None, other).digest != planned(action_text(), "home", vault).digest
    with pytest.raises(AileronError, match="request the run again"):
        check_as_resolved(
            planned(action_text(), "home", vault), connectors=Store(manifest()), bindings=other, settings=Settings()
        )


def test_which_one_was_named_is_no_argument(action_text: Text):
    """The same plan, however it came to be the one that is used."""
    named, only = (
        planned(action_text(), "home", Vault(mail=[HOME, WORK])),
        planned(action_text(), None, Vault(mail=[HOME])),
    )

    assert named == only
    assert named.args == {"to": "ann"}


def test_a_providers_own_endpoints_are_reserved(action_text: Text):
    """All it has, once each; without a provider there is nothing to reserve."""
    provider = msgspec.structs.replace(
        PROVIDER,
        device_authorization_url="https://id.example.com/device",
        revocation_url="https://id.example.com/token",
    )
    (step,) = planned(action_text(), None, Vault(mail=[HOME]), manifest(oauth2=provider)).steps
    (free,) = planned(action_text(), None, Vault(), manifest(credential=None, oauth2=None)).steps

    assert step.grant.reserved == ("https://id.example.com/device", "https://id.example.com/token")
    assert free.grant.reserved == ()


def test_what_an_action_offers_is_of_its_own_connectors(action_text: Text):
    """By its pins; the preview's are among them."""
    found = account_choices(
        parse_action(action_text(), file="a.md"), connectors=Store(manifest()), bindings=Vault(mail=[HOME, WORK])
    )

    assert [(choice.value, [one.account for one in choice.uses]) for choice in found] == [
        ("home", ["mira@example.com"]),
        ("work", [None]),
    ]
