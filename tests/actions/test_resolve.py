"""Resolution of an invocation to an exact plan: what is granted, and which check refuses what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.actions.resolve import (
    check_as_resolved,
    preview_plan,
    resolve,
    used_credentials,
    with_args,
)
from aileron.config import Settings
from aileron.model.credential import Candidate, Reach
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.login import BoundLogin, LoginDetails, LoginTarget
from aileron.model.manifest import (
    ConnectorManifest,
    CredentialNeed,
    HostFunction,
    LimitsSpec,
    OAuth2Provider,
    Operation,
)
from aileron.model.names import BindingName, Fqn, HostPort
from aileron.model.plan import MAX_ARGS_BYTES, ConnectorPin, Plan, PlannedPreview, Step
from tests.support.refusals import refusal_of
from tests.support.shaped import shaped

PIN = "sha256:" + "ab" * 32
MAIL, POST = "github://acme/mail", "github://acme/post"
HOSTS = (HostPort("mail.example.com", 443), HostPort("localhost", 8080), HostPort("nas.lan", 443))
BASIC = CredentialNeed(kind="basic", scope="Send mail")
OAUTH = OAuth2Provider(authorize_url="https://a", token_url="https://b", client_id="c", scopes=("chat:write",))
WIRE = {"api_key": "header Authorization: Bearer {key}"}
HOME, WORK = BindingName("basic", "mail", "home"), BindingName("basic", "mail", "work")
Text = Callable[..., str]


def manifest(name: str = MAIL, **changes: Any) -> ConnectorManifest:
    """Return a manifest with three hosts and no credential."""
    fields = {"hosts": HOSTS, "imports": frozenset({HostFunction.HTTP}), **changes}
    return ConnectorManifest(name=Fqn.parse(name), version="1.2.0", **fields)


class Store:
    """The store as `resolve` sees it: by name. It remembers which pins it was asked for."""

    def __init__(self, *manifests: ConnectorManifest) -> None:
        self._manifests = {str(manifest.name): manifest for manifest in manifests}
        self.asked: list[ConnectorPin] = []

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """Return the manifest. Raise AileronError (not found) if it is not installed."""
        self.asked.append(pin)
        if pin.name not in self._manifests:
            raise AileronError(FailureClass.NOT_FOUND, f"{pin} is not installed")
        return self._manifests[pin.name]


class Vault:
    """A vault by connector: a name stands for a binding of what `manifest` asks for, a candidate for itself."""

    def __init__(self, **bound: Sequence[BindingName | Candidate]) -> None:
        self._bound = bound

    def candidates(self, connector: str, kind: str) -> Sequence[Candidate]:
        """Return the candidates of that connector and kind."""
        bound = [
            binding if isinstance(binding, Candidate) else Candidate(name=binding, reach=reach(binding.kind))
            for binding in self._bound.get(connector.split("/")[-1], ())
        ]
        return [candidate for candidate in bound if candidate.name.kind == kind]


def reach(kind: str, **changes: Any) -> Reach:
    """Return the reach that a binding of that kind was approved for: what `manifest` asks for."""
    agreed = Reach(hosts=tuple(sorted(map(str, HOSTS))), wire=WIRE.get(kind, kind))
    if kind == "oauth2":
        agreed = msgspec.structs.replace(agreed, scopes=OAUTH.scopes, client=f"{OAUTH.client_id} at {OAUTH.token_url}")
    return msgspec.structs.replace(agreed, **changes)


def plan(text: str, args: dict[str, Any], *manifests: ConnectorManifest, **more: Any) -> Plan:
    """Resolve the action file `text`."""
    invocation = Invocation(action="send-email", args=args, scope=Scope.AGENT, binding=more.get("binding"))
    return resolve(
        invocation,
        parse_action(text, file="a.md"),
        connectors=Store(*(manifests or (manifest(),))),
        bindings=more.get("vault", Vault()),
        settings=more.get("settings", Settings()),
    )


def only_step(*args: Any, **more: Any) -> Step:
    """Return the only step of the plan."""
    (step,) = plan(*args, **more).steps
    return step


def refusal(*args: Any, **more: Any) -> Failure:
    """Return the failure with which no plan is made."""
    with pytest.raises(AileronError) as caught:
        plan(*args, **more)
    return caught.value.failure


def test_the_digest_of_a_plan_covers_everything_that_would_be_done(action_text: Text) -> None:
    """The digest thus covers action, arguments, pin, operation, hosts, limits and approval."""
    found = plan(action_text(), {"to": "ann", "count": 3})
    (step,) = found.steps

    assert (found.action, found.action_version, found.args) == ("send-email", "1.2.0", {"to": "ann", "count": 3})
    assert found.action_text == action_text()
    assert step.connector == ConnectorPin(MAIL, "1.2.0", PIN)
    assert (step.id, step.op, step.idempotent) == ("send", "send_email", False)
    assert step.args == {"to": "ann", "count": 3, "subject": "From ann: hello"}
    assert (step.grant.hosts, step.grant.imports) == (HOSTS, frozenset({HostFunction.HTTP}))
    assert (step.grant.plain, step.grant.private, step.grant.credential) == (frozenset(), frozenset(), None)
    assert found.approval.required
    assert Plan.from_json(found.to_json()) == found
    assert found.digest != plan(action_text(), {"to": "ann", "count": 4}).digest


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "argument 'to': missing; expected a string"),
        ({"to": 5}, "argument 'to': an integer; expected a string"),
        ({"to": None}, "argument 'to': null; expected a string"),
        ({"to": ["a"]}, "argument 'to': an array; expected a string"),
        ({"to": {"a": 1}}, "argument 'to': an object; expected a string"),
        ({"to": "\ud800"}, "argument 'to': a string that is not valid Unicode"),
        ({"to": "a", "count": True}, "argument 'count': a boolean; expected an integer"),
        ({"to": "a", "count": "3"}, "argument 'count': a string; expected an integer"),
        ({"to": "a", "count": 3.0}, "argument 'count': a number with a fraction or exponent; expected an integer"),
        ({"to": "a", "count": 2**53}, "argument 'count': an integer of 2**53 or more; expected an integer"),
        ({"to": "a", "count": None}, "argument 'count': null; expected an integer below 2**53; leave an"),
        ({"to": "a", "cuont": 1}, "argument 'cuont': no such input; did you mean 'count'?"),
        ({"to": "a", "zzz": 1}, "argument 'zzz': no such input; declared: to, count"),
    ],
)
def test_a_wrong_argument_is_reported_with_the_expected_type(
    action_text: Text, args: dict[str, Any], message: str
) -> None:
    """Values are not converted and unknown arguments not ignored; the message does not repeat the value."""
    failure = refusal(action_text(), args)

    assert (failure.failure_class, failure.boundary) == (FailureClass.BAD_INPUT, Boundary.ACTION)
    assert message in failure.message


def test_all_wrong_arguments_are_reported_at_once(action_text: Text) -> None:
    """An agent can correct the call in one go."""
    failure = refusal(action_text(), {"count": "x", "zzz": 1})

    assert set(shaped(failure.details)["arguments"]) == {"to", "count", "zzz"}


@pytest.mark.abuse_case("T6")
def test_many_unknown_arguments_are_counted_and_not_listed(action_text: Text) -> None:
    """A request of a megabyte can have a hundred thousand; neither response nor work grows with them."""
    failure = refusal(action_text(), {"to": "a", **{f"z{number}{'z' * 1000}": 1 for number in range(500)}})

    assert len(shaped(failure.details)["arguments"]) == 10
    assert max(map(len, shaped(failure.details)["arguments"])) == 65  # one more for the mark
    assert failure.message.endswith("; 490 more are not inputs")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("number", [1, 1.5, -0.0, 2**53 - 1], [True, "1", float("nan"), float("inf"), 2.0**53]),
        ("integer", [0, -(2**53) + 1], [False, 1.5, -(2**53)]),
        ("boolean", [True, False], [0, 1, "true"]),
        ("string", ["", "x"], [b"x", 1, False]),
    ],
)
def test_each_input_type_accepts_only_its_own_values(
    action_text: Text, kind: str, good: list[Any], bad: list[Any]
) -> None:
    """Booleans are not integers, and a value that JSON cannot represent is refused."""
    text = action_text(('type = "integer"', f'type = "{kind}"'))

    for value in good:
        assert only_step(text, {"to": "a", "count": value}).args["count"] == value
    for value in bad:
        assert refusal(text, {"to": "a", "count": value}).failure_class is FailureClass.BAD_INPUT


def test_a_missing_optional_input_leaves_its_key_out(action_text: Text) -> None:
    """The key is also left out of nested tables and arrays; a given value keeps its type there."""
    nested = ('count = "${args.count}"', 'count = "${args.count}"\nmany = [1, "${args.count}", {a = "${args.count}"}]')

    assert only_step(action_text(nested), {"to": "a"}).args == {"to": "a", "subject": "From a: hello", "many": [1, {}]}
    assert only_step(action_text(nested), {"to": "a", "count": 7}).args["many"] == [1, 7, {"a": 7}]


def test_an_argument_cannot_override_a_value_fixed_in_the_file(action_text: Text) -> None:
    """The agent cannot change what the file fixes."""
    assert only_step(action_text(('to = "${args.to}"', 'to = "boss"')), {"to": "eve"}).args["to"] == "boss"


def test_an_argument_that_looks_like_a_reference_is_not_expanded(action_text: Text) -> None:
    """A value that looks like a reference is passed on unchanged."""
    step = only_step(action_text(), {"to": "${args.count}", "count": 3})

    assert step.args["to"] == "${args.count}"
    assert step.args["subject"] == "From ${args.count}: hello"


@given(to=st.text(st.characters(codec="utf-8"), max_size=50))
def test_any_text_argument_reaches_the_plan_unchanged(action_text: Text, to: str) -> None:
    """The text is exactly the agent's, whole or inside a longer string."""
    step = only_step(action_text(), {"to": to})

    assert (step.args["to"], step.args["subject"]) == (to, f"From {to}: hello")


def test_numbers_and_booleans_inside_a_text_are_spelled_as_json(action_text: Text) -> None:
    """Each value has exactly one spelling, the canonical one."""
    for kind, value, spelled in (("boolean", True, "true"), ("number", 1.0, "1"), ("integer", -3, "-3")):
        text = action_text(
            ('type = "integer"', f'type = "{kind}"'),
            ("required = false", "required = true"),
            ("From ${args.to}: hello", "x${args.count}y"),
        )
        assert only_step(text, {"to": "a", "count": value}).args["subject"] == f"x{spelled}y"


def test_arguments_too_large_for_one_frame_are_refused(action_text: Text) -> None:
    """Arguments that could never be sent to the jail are refused before a person is asked."""
    assert only_step(action_text(), {"to": "x" * 20_000})
    failure = refusal(action_text(), {"to": "x" * MAX_ARGS_BYTES})

    assert failure.failure_class is FailureClass.BAD_INPUT
    assert f"at most {MAX_ARGS_BYTES}" in failure.message


def test_an_operation_outside_the_actions_capabilities_is_denied(action_text: Text) -> None:
    """The connector has the operation, but the action must also list it. With the operation listed, it runs."""
    denied = refusal(action_text(('["send_email"]', '["list_emails"]')), {"to": "a"})

    assert (denied.failure_class, denied.boundary) == (FailureClass.CAPABILITY_DENIED, Boundary.ACTION)
    assert denied.details["connector"] == f"{MAIL}@1.2.0"
    assert denied.details["requested"] == "op:send_email"
    assert denied.details["granted"] == ["op:list_emails"]
    assert only_step(action_text(('["send_email"]', '["list_emails", "send_email"]')), {"to": "a"})


@pytest.mark.parametrize("word", ["oauth2", "chat:write", "Post messages"])
def test_a_credential_kind_or_scope_listed_as_capability_allows_all_operations(action_text: Text, word: str) -> None:
    """Older files are written this way; it works only if the connector has such a credential."""
    text = action_text(('["send_email"]', f'["{word}"]'))
    need = CredentialNeed(kind="oauth2", scope="Post messages")
    vault = Vault(mail=[BindingName("oauth2", "mail", "me")])

    assert only_step(text, {"to": "a"}, manifest(credential=need, oauth2=OAUTH), vault=vault)
    assert refusal(text, {"to": "a"}).failure_class is FailureClass.CAPABILITY_DENIED


def test_a_connector_that_is_not_installed_is_not_found(action_text: Text) -> None:
    """The store's own error passes through, for exactly the pin of the file."""
    store = Store()
    with pytest.raises(AileronError, match="is not installed") as caught:
        resolve(
            Invocation(action="send-email", args={"to": "a"}, scope=Scope.AGENT),
            parse_action(action_text(), file="a.md"),
            connectors=store,
            bindings=Vault(),
            settings=Settings(),
        )

    assert caught.value.failure.failure_class is FailureClass.NOT_FOUND
    assert store.asked == [ConnectorPin(MAIL, "1.2.0", PIN)]


def test_a_private_or_plain_host_must_be_in_both_the_manifest_and_the_settings(action_text: Text) -> None:
    """A setting alone grants no host, and neither does a manifest alone."""
    settings = Settings(
        egress_private=frozenset({HostPort("nas.lan", 443), HostPort("other.lan", 443)}),
        egress_private_plain=frozenset({HostPort("localhost", 8080), HostPort("localhost", 1)}),
    )
    grant = only_step(action_text(), {"to": "a"}, settings=settings).grant

    assert grant.plain == {HostPort("localhost", 8080)}
    assert grant.private == {HostPort("localhost", 8080), HostPort("nas.lan", 443)}
    assert only_step(action_text(), {"to": "a"}).grant.private == frozenset()


def test_a_missing_credential_is_reported_with_the_command_to_bind_one(action_text: Text) -> None:
    """A connector with exactly one binding uses that one."""
    needy = manifest(credential=BASIC)
    failure = refusal(action_text(), {"to": "a"}, needy)
    bound = only_step(action_text(), {"to": "a"}, needy, vault=Vault(mail=[HOME]))

    assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_REQUIRED, Boundary.USER)
    setup = f"aileron binding setup {MAIL} --name basic/SERVICE/IDENTITY --username USER --secret NAME"
    assert setup in failure.message
    assert bound.grant.credential is not None
    assert (bound.grant.credential.binding, bound.grant.credential.need) == (HOME, BASIC)


def test_a_binding_of_another_kind_or_connector_is_not_used(action_text: Text) -> None:
    """A credential is used only for what it was bound for."""
    needy = manifest(credential=BASIC)

    for vault in (Vault(mail=[BindingName("api_key", "mail", "home")]), Vault(post=[HOME])):
        assert refusal(action_text(), {"to": "a"}, needy, vault=vault).failure_class is FailureClass.BINDING_REQUIRED


def test_one_of_several_bindings_is_never_guessed(action_text: Text) -> None:
    """A run that names none is refused with the choices; a binding that is named in full or by identity is used."""
    needy, vault = manifest(credential=BASIC), Vault(mail=[HOME, WORK])
    failure = refusal(action_text(), {"to": "a"}, needy, vault=vault)

    assert failure.failure_class is FailureClass.BINDING_REQUIRED
    assert failure.details["choices"] == ["basic/mail/home", "basic/mail/work"]
    for name in ("work", "basic/mail/work"):
        grant = only_step(action_text(), {"to": "a"}, needy, vault=vault, binding=name).grant
        assert grant.credential is not None
        assert grant.credential.binding == WORK


def test_an_unknown_binding_name_is_refused(action_text: Text) -> None:
    """A misspelled name must not fall back to the only binding, or to running without a credential."""
    needy = manifest(credential=BASIC)

    for manifests, vault in ((needy, Vault(mail=[HOME])), (manifest(), Vault()), (needy, Vault(mail=[HOME, WORK]))):
        failure = refusal(action_text(), {"to": "a"}, manifests, vault=vault, binding="wrok")
        assert failure.failure_class is FailureClass.BINDING_REQUIRED


def test_an_identity_that_names_two_bindings_is_refused(action_text: Text) -> None:
    """Two credentials with the same identity are ambiguous."""
    vault = Vault(mail=[HOME, BindingName("basic", "archive", "home")])
    failure = refusal(action_text(), {"to": "a"}, manifest(credential=BASIC), vault=vault, binding="home")

    assert "'home' matches several" in failure.message


def test_each_connector_of_an_action_has_its_own_binding(action_text: Text) -> None:
    """The action has two connectors and names one binding, which serves the connector that it was made for."""
    second = f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.2.0"\nhash = "{PIN}"\ncapabilities = ["post"]\n'
    step = f'[[execute]]\nid = "post"\nconnector = "{POST}"\nop = "post"\n\n[[inputs]]\nname = "to"'
    text = action_text(("[match]", second + "[match]"), ('[[inputs]]\nname = "to"', step))
    chat = BindingName("basic", "chat", "me")
    both = (manifest(credential=BASIC), manifest(POST, credential=BASIC))

    found = plan(text, {"to": "a"}, *both, vault=Vault(mail=[HOME, WORK], post=[chat]), binding="work")
    assert [step.grant.credential.binding for step in found.steps if step.grant.credential] == [WORK, chat]
    assert [step.args for step in found.steps][1] == {"to": "a"}


def test_a_step_is_idempotent_only_if_file_and_manifest_say_so(action_text: Text) -> None:
    """A missing key means no; a manifest that says never overrides the action file."""
    said = action_text(("idempotent = false", "idempotent = true"))

    assert not only_step(action_text(("idempotent = false", "")), {"to": "a"}).idempotent
    assert only_step(said, {"to": "a"}).idempotent
    assert not only_step(said, {"to": "a"}, manifest(idempotent_by_default=False)).idempotent


# Previews

PREVIEW = (
    ('["send_email"]', '["send_email", "get_draft"]'),
    (
        'expires_in = "10m"\n',
        'expires_in = "10m"\n\n[approval.preview]\nop = "get_draft"\nmultiline = ["Text"]\n\n[approval.preview.inputs]\n'
        'id = "draft of ${args.to}"\ncount = "${args.count}"\n\n'
        '[approval.preview.render]\n"To" = "a.b"\n"Text" = "c"\n"A last one" = "d"\n',
    ),
)


def previewed(found: Plan) -> PlannedPreview:
    """Return the preview, which must exist."""
    assert found.preview is not None
    return found.preview


def test_the_step_of_a_preview_can_only_read(action_text: Text) -> None:
    """The step has the same connector, hosts and credential, but no streams or WebSockets, a limit of five seconds, and
    only its own inputs.
    """
    everything = frozenset(HostFunction)
    needy = manifest(credential=BASIC, imports=everything, limits=LimitsSpec(timeout_s=30), idempotent_by_default=False)
    found = plan(action_text(*PREVIEW), {"to": "ann", "count": 3}, needy, vault=Vault(mail=[HOME]))
    step, preview = previewed(found).step, previewed(found)

    assert (step.id, step.op, step.connector) == ("preview", "get_draft", found.steps[0].connector)
    assert step.args == {"id": "draft of ann", "count": 3}
    assert (step.idempotent, step.limits.timeout_s, step.limits.memory_mb) == (True, 5, 64)
    assert step.grant == msgspec.structs.replace(
        found.steps[0].grant, read_only=True, imports=everything - {HostFunction.TCP, HostFunction.WEBSOCKET}
    )
    assert step.grant.credential is not None
    assert preview.render == (("To", "a.b"), ("Text", "c"), ("A last one", "d"))
    assert preview.multiline == {"Text"}
    assert not found.steps[0].grant.read_only
    assert HostFunction.TCP in found.steps[0].grant.imports
    assert Plan.from_json(found.to_json()) == found


def test_a_preview_that_logs_in_may_open_streams_and_uses_the_read_only_role(action_text: Text) -> None:
    """Egress restricts these streams to reading; the step under approval uses the writing role and its credential."""
    need = CredentialNeed(kind="login", scope="All", logins=(LoginTarget.parse("postgres://nas.lan:443"),))
    database = manifest(
        credential=need,
        imports=frozenset({HostFunction.TCP}),
        operations=(
            Operation(name="send_email", rest=True),
            Operation(name="get_draft", rest=True, login="read_only"),
        ),
    )
    writer, reader = (
        Candidate(name=BindingName("login", "db", name), reach=Reach.of(database), read_only=name == "reader")
        for name in ("writer", "reader")
    )
    found = plan(action_text(*PREVIEW), {"to": "ann"}, database, vault=Vault(mail=[reader, writer]))
    (step,), preview = found.steps, previewed(found).step

    assert preview.grant.imports == {HostFunction.TCP}
    assert preview.grant.read_only
    assert step.grant.credential is not None
    assert preview.grant.credential is not None
    assert (step.grant.credential.binding, step.grant.credential.login) == (writer.name, msgspec.UNSET)
    assert (preview.grant.credential.binding, preview.grant.credential.login) == (reader.name, "read_only")
    assert Plan.from_json(found.to_json()) == found


def test_the_login_details_of_a_binding_are_part_of_the_digest(action_text: Text) -> None:
    """They are user, database, host key and role. An older plan without them still parses, and has another digest."""
    need = CredentialNeed(kind="login", scope="All", logins=(LoginTarget.parse("postgres://nas.lan:443"),))
    database = manifest(credential=need, imports=frozenset({HostFunction.TCP}))
    logins = [
        None,
        BoundLogin(username="ada"),
        BoundLogin(username="eve"),
        BoundLogin(username="ada", details=LoginDetails(database="shop")),
        BoundLogin(username="ada", details=LoginDetails(host_key="ssh-ed25519 AAAA")),
        BoundLogin(username="ada", details=LoginDetails(read_only=True)),
    ]
    plans = []
    for login in logins:
        bound = Candidate(name=BindingName("login", "db", "me"), reach=Reach.of(database), login=login)
        plans.append(plan(action_text(), {"to": "ann"}, database, vault=Vault(mail=[bound])))

    assert len({resolved.digest for resolved in plans}) == len(plans)
    assert [Plan.from_json(resolved.to_json()) for resolved in plans] == plans
    uses = [shaped(resolved.to_json())["steps"][0]["grant"]["credential"] for resolved in plans]
    assert [use.get("bound") for use in uses[:2]] == [None, {"username": "ada"}]


def test_a_credential_that_does_not_log_in_has_no_login_in_its_plan(action_text: Text) -> None:
    """The plan keeps the digest that it had before logins existed."""
    name = BindingName("basic", "mail", "me")
    plans = [
        plan(
            action_text(),
            {"to": "ann"},
            manifest(credential=BASIC),
            vault=Vault(mail=[Candidate(name=name, reach=reach("basic"), login=login)]),
        )
        for login in (None, BoundLogin(username="ada"))
    ]

    assert plans[0] == plans[1]
    assert "bound" not in shaped(plans[0].to_json())["steps"][0]["grant"]["credential"]


def test_a_preview_gets_no_more_time_than_its_connector(action_text: Text) -> None:
    """The shorter of the two limits applies."""
    short = manifest(limits=LimitsSpec(timeout_s=2))

    assert previewed(plan(action_text(*PREVIEW), {"to": "a"}, short)).step.limits.timeout_s == 2


def test_the_digest_of_a_plan_covers_what_its_preview_reads_and_shows(action_text: Text) -> None:
    """Another label, path, order or input makes another plan."""
    text = action_text(*PREVIEW)
    digests = {
        plan(text, {"to": "ann"}).digest,
        plan(text, {"to": "bob"}).digest,
        plan(action_text(), {"to": "ann"}).digest,
    }
    for old, new in (('"a.b"', '"a.c"'), ('"To"', '"From"'), ('["Text"]', "[]"), ('"draft of', '"drafts of')):
        digests.add(plan(text.replace(old, new), {"to": "ann"}).digest)

    assert len(digests) == 7


def test_a_preview_needs_its_connector_and_credential_like_a_step(action_text: Text) -> None:
    """Both must exist before a person is asked, even if no step uses that connector."""
    second = (
        f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.2.0"\nhash = "{PIN}"\ncapabilities = ["get_draft"]\n\n'
    )
    text = action_text(
        PREVIEW[1], ("[match]", second + "[match]"), ('op = "get_draft"', f'op = "get_draft"\nconnector = "{POST}"')
    )
    mail, post = manifest(), manifest(POST, credential=BASIC)
    chat = BindingName("basic", "chat", "me")

    assert refusal(text, {"to": "a"}, mail).failure_class is FailureClass.NOT_FOUND
    assert refusal(text, {"to": "a"}, mail, post).failure_class is FailureClass.BINDING_REQUIRED
    found = plan(text, {"to": "a"}, mail, post, vault=Vault(post=[chat]))
    assert previewed(found).step.grant.credential is not None
    assert found.steps[0].grant.credential is None


def test_a_preview_whose_arguments_are_too_large_for_one_frame_is_refused(action_text: Text) -> None:
    """Each must be within the bound, or the run is refused before a person is asked."""
    twice = ("draft of ${args.to}", "${args.to}${args.to}${args.to}")

    assert plan(action_text(*PREVIEW), {"to": "x" * 20_000})
    assert "step 'preview'" in refusal(action_text(*PREVIEW, twice), {"to": "x" * 20_000}).message


def test_a_previews_own_plan_has_one_step_and_no_approval(action_text: Text) -> None:
    """The plan keeps the action and arguments on record; an action without a preview has no such plan."""
    found = plan(action_text(*PREVIEW), {"to": "ann"})
    reading = preview_plan(found)

    assert reading.steps == (previewed(found).step,)
    assert (reading.approval.required, reading.approval.undo_window_s, reading.preview) == (False, 0, None)
    assert (reading.action, reading.action_digest, reading.args) == (found.action, found.action_digest, found.args)
    with pytest.raises(AileronError, match="has no preview"):
        preview_plan(plan(action_text(), {"to": "ann"}))


# Other arguments


ARGUMENTS = st.fixed_dictionaries(
    {"to": st.text(st.characters(codec="utf-8"), max_size=20)}, optional={"count": st.integers(-5, 5)}
)


@given(before=ARGUMENTS, after=ARGUMENTS)
def test_a_plan_with_edited_arguments_equals_the_plan_of_a_request_with_these_arguments(
    action_text: Text, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The plan is the same byte for byte, with the preview; with its own arguments a plan stays as it is."""
    text = action_text(*PREVIEW)
    first = plan(text, before)

    assert with_args(first, after, connectors=Store(manifest())).digest == plan(text, after).digest
    assert with_args(first, before, connectors=Store(manifest())) == first


def test_editing_arguments_changes_nothing_else_in_the_plan(action_text: Text) -> None:
    """The edit reads no file or binding again, so later changes to them do not get into the plan."""
    first = plan(action_text(*PREVIEW), {"to": "ann"}, manifest(credential=BASIC), vault=Vault(mail=[HOME]))
    odd = msgspec.structs.replace(first.steps[0], limits=LimitsSpec(timeout_s=7), idempotent=True)
    edited = with_args(msgspec.structs.replace(first, steps=(odd,)), {"to": "bob"}, connectors=Store(manifest()))

    assert edited.args == {"to": "bob"}
    assert edited.steps[0].args == {"to": "bob", "subject": "From bob: hello"}
    assert previewed(edited).step.args == {"id": "draft of bob"}
    assert msgspec.structs.replace(edited.steps[0], args=odd.args) == odd
    assert edited.digest != first.digest


@pytest.mark.parametrize("args", [{}, {"to": 5}, {"to": "a", "zzz": 1}, {"to": "a", "count": "3"}])
def test_edited_arguments_are_checked_like_those_of_a_run(action_text: Text, args: dict[str, Any]) -> None:
    """The rules are those of the action text inside the plan."""
    first = plan(action_text(), {"to": "ann"})
    assert refusal_of(with_args, first, args, connectors=Store(manifest())) == refusal(action_text(), args)


def test_edited_arguments_too_large_for_one_frame_are_refused(action_text: Text) -> None:
    """The edit must not bypass the limit on arguments."""
    with pytest.raises(AileronError, match=f"at most {MAX_ARGS_BYTES}"):
        with_args(plan(action_text(), {"to": "ann"}), {"to": "x" * MAX_ARGS_BYTES}, connectors=Store(manifest()))


FORGED = [
    lambda found: msgspec.structs.replace(found, action_text=found.action_text.replace("hello", "bye")),
    lambda found: msgspec.structs.replace(found, steps=()),
    lambda found: msgspec.structs.replace(found, steps=(msgspec.structs.replace(found.steps[0], op="get_draft"),)),
    lambda found: msgspec.structs.replace(found, preview=None),
]


@pytest.mark.parametrize("forge", FORGED)
def test_a_plan_that_differs_from_the_action_text_inside_it_cannot_be_edited(
    action_text: Text, forge: Callable[[Plan], Plan]
) -> None:
    """The result would mix two sources; the control is an unmodified plan."""
    found = plan(action_text(*PREVIEW), {"to": "ann"})
    assert (
        refusal_of(with_args, forge(found), {"to": "bob"}, connectors=Store(manifest())).failure_class
        is FailureClass.HASH_MISMATCH
    )
    assert with_args(found, {"to": "bob"}, connectors=Store(manifest()))


# A plan against its file


def _grant(found: Plan, **changes: Any) -> Plan:
    """Return the plan with another grant of the preview."""
    step = previewed(found).step
    step = msgspec.structs.replace(step, grant=msgspec.structs.replace(step.grant, **changes))
    return msgspec.structs.replace(found, preview=msgspec.structs.replace(previewed(found), step=step))


def _preview_step(found: Plan, **changes: Any) -> Plan:
    step = msgspec.structs.replace(previewed(found).step, **changes)
    return msgspec.structs.replace(found, preview=msgspec.structs.replace(previewed(found), step=step))


def _another_credential(found: Plan) -> Plan:
    credential = previewed(found).step.grant.credential
    assert credential is not None
    return _grant(found, credential=msgspec.structs.replace(credential, binding=WORK))


WRITTEN_BY_OTHERS: dict[str, Callable[[Plan], Plan]] = {
    "it may write": lambda found: _grant(found, read_only=False),
    "another host": lambda found: _grant(found, hosts=(HostPort("evil.test", 443),)),
    "plain": lambda found: _grant(found, plain=frozenset(HOSTS)),
    "streams": lambda found: _grant(found, imports=frozenset(HostFunction)),
    "another credential": _another_credential,
    "another operation": lambda found: _preview_step(found, op="send_email"),
    "other arguments": lambda found: _preview_step(found, args={"id": "everything"}),
    "another connector": lambda found: _preview_step(found, connector=ConnectorPin(POST, "1.2.0", PIN)),
    "more time": lambda found: _preview_step(found, limits=LimitsSpec(timeout_s=300)),
    "another label": lambda found: msgspec.structs.replace(
        found, preview=msgspec.structs.replace(previewed(found), render=(("To", "c"),))
    ),
    "no gate": lambda found: msgspec.structs.replace(
        found, approval=msgspec.structs.replace(found.approval, required=False)
    ),
    "another name": lambda found: msgspec.structs.replace(found, action="send-another"),
    "arguments of the run": lambda found: msgspec.structs.replace(found, args={"to": "bob"}),
    "already installed with different content": lambda found: msgspec.structs.replace(
        found, action_text=found.action_text + "more"
    ),
}


@pytest.mark.parametrize("how", WRITTEN_BY_OTHERS)
def test_a_forged_plan_is_detected_by_comparing_it_with_its_action_file(action_text: Text, how: str) -> None:
    """Every part of the unsigned plan is compared with its action file before a preview runs."""
    vault, needy = Vault(mail=[HOME, WORK]), manifest(credential=BASIC)
    store = Store(needy, manifest(POST))
    real = plan(action_text(*PREVIEW), {"to": "ann"}, needy, vault=vault, binding="home")

    def check(found: Plan, settings: Settings | None = None) -> str:
        return check_as_resolved(found, connectors=store, bindings=vault, settings=settings or Settings()).name

    forged = WRITTEN_BY_OTHERS[how](real)
    assert forged != real
    assert refusal_of(check, forged).failure_class in {FailureClass.HASH_MISMATCH, FailureClass.BINDING_REQUIRED}
    assert check(real) == "send-email"


def test_a_plan_resolved_before_a_setting_changed_is_refused(action_text: Text) -> None:
    """A preview must not use a host that the user no longer allows."""
    private = Settings(egress_private=frozenset(HOSTS))
    found = plan(action_text(*PREVIEW), {"to": "ann"}, settings=private)
    with pytest.raises(AileronError, match="request the run again"):
        check_as_resolved(found, connectors=Store(manifest()), bindings=Vault(), settings=Settings())

    assert check_as_resolved(found, connectors=Store(manifest()), bindings=Vault(), settings=private)


# Credentials


def test_the_credentials_of_an_action_are_those_its_runs_would_use(action_text: Text) -> None:
    """They are known without arguments. Aileron does not guess which of several is meant, and a preview's own are not
    among them.
    """
    second = (
        f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.2.0"\nhash = "{PIN}"\ncapabilities = ["get_draft"]\n\n'
    )
    text = action_text(
        PREVIEW[1], ("[match]", second + "[match]"), ('op = "get_draft"', f'op = "get_draft"\nconnector = "{POST}"')
    )
    store = Store(manifest(credential=BASIC), manifest(POST, credential=BASIC))
    vault = Vault(mail=[HOME, WORK], post=[BindingName("basic", "chat", "me")])

    def used(**more: Any) -> tuple[str, ...]:
        return used_credentials(parse_action(text, file="a.md"), connectors=store, bindings=vault, **more)

    assert used(binding="work") == ("basic/mail/work",)
    with pytest.raises(AileronError, match="choose one"):
        used()
    assert used_credentials(parse_action(text, file="a.md"), connectors=Store(manifest()), bindings=Vault()) == ()
