"""Choice of the credential for a run: the named one, or the only one that serves; never a guess, and never more than
was approved.
"""

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
from tests.support.shaped import shaped

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
    """Return a connector that signs in."""
    fields: dict[str, Any] = {"hosts": HOSTS, "credential": NEED, "oauth2": PROVIDER, **changes}
    return ConnectorManifest(name=Fqn.parse(name), version="1.2.0", **fields)


AGREED = Reach.of(manifest())


def bound(identity: str, *, service: str = "mail", kind: str = "oauth2", **changes: Any) -> Candidate:
    """Return a binding made for what `manifest` asks for."""
    return Candidate(**{"name": BindingName(kind, service, identity), "reach": AGREED, **changes})


HOME, WORK = bound("home", account="mira@example.com"), bound("work")


class Vault:
    """A vault with bindings by the last part of their connector's name."""

    def __init__(self, **found: Sequence[Candidate]) -> None:
        self._found = found

    def candidates(self, connector: str, kind: str) -> Sequence[Candidate]:
        """Return the bindings of that connector and kind."""
        return [
            candidate for candidate in self._found.get(connector.rpartition("/")[2], ()) if candidate.name.kind == kind
        ]


def used(wanted: str | None, *manifests: ConnectorManifest, **found: Sequence[Candidate]) -> list[str]:
    """Return the names of the bindings used, in the order of the manifests."""
    asked = {str(connector.name): connector for connector in manifests or (manifest(),)}
    return [str(use.binding) for use in credentials(wanted, asked, Vault(**found)).values() if use is not None]


def refused(wanted: str | None, *manifests: ConnectorManifest, **found: Sequence[Candidate]) -> Failure:
    """Return the failure with which no credential is chosen."""
    with pytest.raises(AileronError) as caught:
        used(wanted, *manifests, **found)
    failure = caught.value.failure
    assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_REQUIRED, Boundary.USER)
    return failure


def offered(*manifests: ConnectorManifest, **found: Sequence[Candidate]) -> tuple[Choice, ...]:
    """Return the choices that are offered."""
    return choices({str(connector.name): connector for connector in manifests or (manifest(),)}, Vault(**found))


def test_the_only_matching_credential_is_used_and_its_account_shown() -> None:
    """The caller need not name the only credential; a connector that needs none gets none."""
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
def test_a_missing_credential_is_reported_with_the_command_to_bind_one(need: CredentialNeed, options: str) -> None:
    """The whole command is a fact and the end of the message, which also says what the connector wants the credential for."""
    failure = refused(None, manifest(credential=need, oauth2=PROVIDER if need is NEED else None))
    setup = f"aileron binding setup {MAIL} {options}"

    assert failure.details == {"connector": MAIL, "kind": need.kind, "scope": need.scope, "setup": setup}
    assert failure.message.endswith(f"and has none: {setup}")
    assert need.scope in failure.message


def test_a_read_only_binding_is_mentioned_when_a_writing_one_is_missing() -> None:
    """Operations that write cannot use a read-only credential, and the message says that one is bound."""
    reader = bound("reader", kind="login", read_only=True)
    database = manifest(credential=CredentialNeed(kind="login", scope="s"), oauth2=None)

    failure = refused(None, database, mail=[reader])

    assert "and has none that can write (what is bound only reads): aileron binding setup" in failure.message


def test_several_credentials_are_listed_with_their_accounts() -> None:
    """They are in order by name, with the accounts that are known; and each can then be named, in full or by identity."""
    failure = refused(None, mail=[WORK, HOME])

    assert failure.details["choices"] == ["oauth2/mail/home", "oauth2/mail/work"]
    assert failure.details["accounts"] == {"oauth2/mail/home": "mira@example.com"}
    assert "oauth2/mail/home (mira@example.com), oauth2/mail/work" in failure.message
    for name in ("work", "oauth2/mail/work", " work "):
        assert used(name, mail=[WORK, HOME]) == ["oauth2/mail/work"]


def test_an_unknown_credential_name_is_refused_with_the_names_that_exist() -> None:
    """The only credential is not used instead, and the failure is not the one for an ambiguous name."""
    for found in ([HOME], [HOME, WORK]):
        failure = refused("wrok", mail=found)
        assert failure.details["binding"] == "wrok"
        assert failure.details["choices"] == [str(candidate.name) for candidate in found]
        assert failure.message.startswith("this action has no credential bound as 'wrok'; there ")
    for name in ("", "home,", "home,wrok", "x" * 10_000):
        assert len(refused(name, mail=[HOME]).message) < 1000
    assert "there is none" in refused("home", manifest(credential=None, oauth2=None)).message


def test_a_name_that_matches_two_credentials_is_refused() -> None:
    """Two bindings share the identity, or the caller gives two names at once."""
    archive = bound("home", service="archive")

    assert "'home' matches several" in refused("home", mail=[HOME, archive]).message
    assert "'home,work' matches several" in refused("home,work", mail=[HOME, WORK]).message
    assert used("oauth2/archive/home", mail=[HOME, archive]) == ["oauth2/archive/home"]


def test_one_given_name_selects_the_credential_of_that_name_for_each_connector() -> None:
    """A connector without a credential of that name uses its only one."""
    both = manifest(), manifest(POST)
    found = {"mail": [HOME, WORK], "post": [bound("work", service="post"), bound("team", service="post")]}

    assert used("work", *both, **found) == ["oauth2/mail/work", "oauth2/post/work"]
    assert used("work,team", *both, mail=[HOME, WORK], post=[bound("team", service="post")])
    assert used("home", *both, mail=[HOME, WORK], post=[bound("me", service="post")])[1] == "oauth2/post/me"


def test_if_two_connectors_each_have_several_credentials_a_name_for_each_is_needed() -> None:
    """They share no identity. With only one name, the failure is about the connector that is still ambiguous."""
    both = manifest(), manifest(POST)
    found = {"mail": [HOME, WORK], "post": [bound("team", service="post"), bound("own", service="post")]}

    assert used("home,team", *both, **found) == ["oauth2/mail/home", "oauth2/post/team"]
    assert used("oauth2/post/own,oauth2/mail/work", *both, **found) == ["oauth2/mail/work", "oauth2/post/own"]
    failure = refused("home", *both, **found)
    assert (failure.details["connector"], failure.details["choices"]) == (POST, ["oauth2/post/own", "oauth2/post/team"])


# What was agreed to


WIDER: dict[str, tuple[dict[str, Any], str]] = {
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
def test_a_connector_version_that_asks_for_more_suspends_its_binding(new: str) -> None:
    """The failure says what is new and what to do; the version that the binding was approved for still runs."""
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
def test_a_wider_reach_of_client_credentials_needs_consent_but_no_sign_in(change: dict[str, Any]) -> None:
    """Client credentials need no person at a provider's page. Asking for fewer scopes needs no consent."""
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


def test_a_connector_version_that_sends_the_credential_differently_suspends_its_binding() -> None:
    """The new version sends the key in another header; with the same header, nothing changes."""
    before = CredentialNeed(kind="api_key", scope="s")
    after = CredentialNeed(kind="api_key", scope="s", header="X-Key", format="{key}")
    key = bound("home", kind="api_key", reach=Reach.of(manifest(credential=before, oauth2=None)))

    failure = refused(None, manifest(credential=after, oauth2=None), mail=[key])
    assert failure.details["setup"] == "aileron binding rebind api_key/mail/home"
    assert failure.details["widened"] == ["sent as X-Key: KEY, not as Authorization: Bearer KEY"]
    assert used(None, manifest(credential=before, oauth2=None), mail=[key])


def test_a_connector_that_asks_for_less_keeps_its_binding() -> None:
    """Fewer hosts and scopes need no consent."""
    less = manifest(hosts=(), oauth2=msgspec.structs.replace(PROVIDER, scopes=("mail.read",)))

    assert used(None, less, mail=[HOME]) == ["oauth2/mail/home"]


def test_a_binding_without_a_recorded_reach_is_suspended() -> None:
    """An old binding does not say what it was approved for, so the person must bind it again once."""
    failure = refused(None, mail=[bound("home", reach=None)])

    assert failure.details["setup"] == "aileron binding rebind oauth2/mail/home"
    assert "created before Aileron recorded what a binding may reach" in failure.message


def test_a_bindings_reach_is_checked_against_the_connector_version_of_the_step() -> None:
    """Two versions are installed and only the newer asks for more: an action pinned to the older one still runs."""
    wider = manifest(POST, hosts=(*HOSTS, HostPort("b.example", 443)))

    assert used(None, manifest(), mail=[HOME], post=[bound("home", service="post")])
    assert refused(None, manifest(), wider, mail=[HOME], post=[bound("home", service="post")]).details["widened"]


def test_a_suspended_binding_is_skipped_and_refused_if_named() -> None:
    """The other binding is used by default. If the suspended one is named, it is refused and not replaced."""
    old = bound("home", reach=None)

    assert used(None, mail=[old, WORK]) == ["oauth2/mail/work"]
    assert refused("home", mail=[old, WORK]).details["binding"] == "oauth2/mail/home"
    assert refused(None, mail=[old, WORK, bound("team")]).details["choices"] == ["oauth2/mail/team", "oauth2/mail/work"]


def test_if_all_bindings_are_suspended_the_caller_must_name_one() -> None:
    """Aileron does not guess which of them the person wants to bind again."""
    both = [bound("home", reach=None), bound("work", reach=None)]
    failure = refused(None, mail=both)

    assert failure.details["choices"] == ["oauth2/mail/home", "oauth2/mail/work"]
    assert "all 2 credentials are suspended; choose one" in failure.message
    assert refused("work", mail=both).details["setup"] == "aileron binding rebind oauth2/mail/work"


# What is offered


def test_a_choice_of_credentials_is_offered_only_if_several_are_usable() -> None:
    """Suspended bindings do not count, so there is none between one usable and several suspended ones."""
    for found in ([], [HOME], [HOME, bound("work", reach=None)], [bound("a", reach=None), bound("b", reach=None)]):
        assert offered(mail=found) == ()
    assert [choice.value for choice in offered(mail=[WORK, HOME])] == ["home", "work"]


def test_each_value_offered_for_the_credential_names_exactly_one_choice() -> None:
    """The value is an identity if that is unambiguous, and the full name otherwise; other connectors are never named."""
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


def test_offered_credentials_beyond_the_bound_are_counted_and_not_listed() -> None:
    """The list holds one beyond the bound, and building it takes no more work than that."""
    many = [bound(f"a{number:03}") for number in range(300)]

    assert len(offered(manifest(), manifest(POST), mail=many, post=many)) <= MAX_CHOICES + 1
    assert len(offered(mail=many)) == MAX_CHOICES + 1
    assert len(shaped(refused(None, mail=many).details)["choices"]) == MAX_CHOICES
    assert "and 268 more" in refused(None, mail=many).message


IDENTITIES = st.sampled_from(["home", "work", "team"])
REACHES = st.sampled_from([AGREED, msgspec.structs.replace(AGREED, hosts=()), None])


def _candidates(*services: str) -> st.SearchStrategy[list[Candidate]]:
    """Return bindings of one connector; a name belongs to one connector."""
    binding = st.builds(
        bound,
        IDENTITIES,
        service=st.sampled_from(services),
        reach=REACHES,
        account=st.sampled_from(["mira@example.com", None]),
    )
    return st.lists(binding, max_size=4, unique_by=lambda found: found.name)


OF_MAIL, OF_POST = _candidates("mail", "archive"), _candidates("post", "chat")
FULL = st.builds("oauth2/{}/{}".format, st.sampled_from(["mail", "archive", "post", "chat"]), IDENTITIES)
WANTED = st.none() | st.lists(IDENTITIES | FULL, min_size=1, max_size=2).map(",".join)


def _meant(candidates: Sequence[Candidate], wanted: str | None) -> list[Candidate]:
    names = set() if wanted is None else set(wanted.split(","))
    return [candidate for candidate in candidates if {str(candidate.name), candidate.name.identity} & names]


@given(mail=OF_MAIL, post=OF_POST, wanted=WANTED)
def test_a_credential_is_never_guessed(mail: list[Candidate], post: list[Candidate], wanted: str | None) -> None:
    """A run uses the credential that is named, or the only one that serves. It never uses one of two, a suspended one,
    or another connector's.
    """
    asked = {"mail": manifest(), "post": manifest(POST)}
    bound_to: Mapping[str, list[Candidate]] = {"mail": mail, "post": post}
    expected = {
        key: _meant(found, wanted) or [candidate for candidate in found if candidate.reach == AGREED]
        for key, found in bound_to.items()
    }
    names = set() if wanted is None else set(wanted.split(","))
    known = {name for candidate in (*mail, *post) for name in (str(candidate.name), candidate.name.identity)}
    is_clear = names <= known and all(
        len(candidates) == 1 and candidates[0].reach == AGREED for candidates in expected.values()
    )
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
def test_every_offered_choice_of_credentials_is_accepted_and_none_is_missing(
    mail: list[Candidate], post: list[Candidate]
) -> None:
    """Each value selects exactly the credentials that it stands for; together they are every combination of those that serve."""
    asked, vault = {"mail": manifest(), "post": manifest(POST)}, Vault(mail=mail, post=post)
    found = choices(asked, vault)
    serving = [[candidate for candidate in some if candidate.reach == AGREED] for some in (mail, post)]

    if found:
        assert len(found) == len(serving[0]) * len(serving[1])
    else:
        assert not all(serving) or [len(some) for some in serving] == [1, 1]
    for choice in found:
        uses = credentials(choice.value, asked, vault)
        names = [use.binding for use in uses.values() if use is not None]
        assert all(candidate.name in names for candidate in choice.uses)


# In a plan


class Store:
    """A store of one connector, whatever its bytes are."""

    def __init__(self, *manifests: ConnectorManifest) -> None:
        self._manifests = {str(connector.name): connector for connector in manifests}

    def manifest(self, pin: Any) -> ConnectorManifest:
        """Return the manifest as it was made."""
        return self._manifests[pin.name]


def planned(text: str, binding: str | None, vault: Vault, found: ConnectorManifest | None = None) -> Plan:
    """Return the plan of one run."""
    invocation = Invocation(action="send-email", args={"to": "ann"}, scope=Scope.AGENT, binding=binding)
    return resolve(
        invocation,
        parse_action(text, file="a.md"),
        connectors=Store(found or manifest()),
        bindings=vault,
        settings=Settings(),
    )


def test_a_plan_names_the_credential_and_account_it_uses(action_text: Text) -> None:
    """Kind, scope and account are in the plan, so they are shown, approved and recorded; another account makes another plan."""
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


def test_naming_the_only_credential_does_not_change_the_plan(action_text: Text) -> None:
    """The plan is the same whether the caller names the only credential or not."""
    named, only = (
        planned(action_text(), "home", Vault(mail=[HOME, WORK])),
        planned(action_text(), None, Vault(mail=[HOME])),
    )

    assert named == only
    assert named.args == {"to": "ann"}


def test_the_endpoints_of_a_sign_in_provider_are_reserved_in_a_connectors_grant(action_text: Text) -> None:
    """All endpoints of the provider are reserved, once each; without a provider none is."""
    provider = msgspec.structs.replace(
        PROVIDER,
        device_authorization_url="https://id.example.com/device",
        revocation_url="https://id.example.com/token",
    )
    (step,) = planned(action_text(), None, Vault(mail=[HOME]), manifest(oauth2=provider)).steps
    (free,) = planned(action_text(), None, Vault(), manifest(credential=None, oauth2=None)).steps

    assert step.grant.reserved == ("https://id.example.com/device", "https://id.example.com/token")
    assert free.grant.reserved == ()


def test_an_action_offers_choices_of_its_own_connectors_only(action_text: Text) -> None:
    """The connectors are found by the action's pins; the preview's connectors are among them."""
    found = account_choices(
        parse_action(action_text(), file="a.md"), connectors=Store(manifest()), bindings=Vault(mail=[HOME, WORK])
    )

    assert [(choice.value, [candidate.account for candidate in choice.uses]) for choice in found] == [
        ("home", ["mira@example.com"]),
        ("work", [None]),
    ]


AS_WORK = ('capabilities = ["send_email"]', 'capabilities = ["send_email"]\nidentity = "work"')


def test_an_action_uses_only_the_credential_of_the_identity_it_names(action_text: Text) -> None:
    """The other credential makes it no choice, and a caller cannot name it."""
    vault, work = Vault(mail=[HOME, WORK]), action_text(AS_WORK)
    (step,) = planned(work, None, vault).steps

    assert step.grant.credential is not None
    assert step.grant.credential.binding == WORK.name
    assert planned(work, "work", vault) == planned(work, None, vault)
    assert account_choices(parse_action(work, file="a.md"), connectors=Store(manifest()), bindings=vault) == ()
    with pytest.raises(AileronError) as caught:
        planned(work, "home", vault)
    assert caught.value.failure.details["choices"] == ["oauth2/mail/work"]
    with pytest.raises(AileronError, match="2 credentials fit"):
        planned(action_text(), None, vault)


def test_an_action_whose_identity_has_no_credential_says_how_to_bind_one(action_text: Text) -> None:
    """The credential of another identity is not used in its place, and the command names the identity."""
    with pytest.raises(AileronError) as caught:
        planned(action_text(AS_WORK), None, Vault(mail=[HOME]))

    assert caught.value.failure.failure_class is FailureClass.BINDING_REQUIRED
    assert caught.value.failure.message.startswith(f"{MAIL} needs a credential of work of kind oauth2")
    assert caught.value.failure.details["setup"] == f"aileron binding setup {MAIL} --name oauth2/SERVICE/work"
