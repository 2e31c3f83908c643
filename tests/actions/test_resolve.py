"""An invocation made exact: what is granted, and which step refuses what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.actions.resolve import MAX_ARGS_BYTES, resolve
from aileron.config import Settings
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ConnectorManifest, CredentialNeed, HostFunction, OAuth2Provider
from aileron.model.names import BindingName, Fqn, HostPort
from aileron.model.plan import ConnectorPin, Plan, Step

PIN = "sha256:" + "ab" * 32
MAIL, POST = "github://acme/mail", "github://acme/post"
HOSTS = (HostPort("mail.example.com", 443), HostPort("localhost", 8080), HostPort("nas.lan", 443))
BASIC = CredentialNeed(kind="basic", scope="Send mail")
OAUTH = OAuth2Provider(authorize_url="https://a", token_url="https://b", client_id="c", scopes=("chat:write",))
HOME, WORK = BindingName("basic", "mail", "home"), BindingName("basic", "mail", "work")
Text = Callable[..., str]


def manifest(name: str = MAIL, **changes: Any) -> ConnectorManifest:
    """A manifest with three hosts and no credential."""
    fields = {"hosts": HOSTS, "imports": frozenset({HostFunction.HTTP}), **changes}
    return ConnectorManifest(name=Fqn.parse(name), version="1.2.0", **fields)


class Store:
    """The store as `resolve` sees it: by name, and it remembers which pins it was asked for."""

    def __init__(self, *manifests: ConnectorManifest) -> None:
        self._manifests = {str(manifest.name): manifest for manifest in manifests}
        self.asked: list[ConnectorPin] = []

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """The manifest, or not found."""
        self.asked.append(pin)
        if pin.name not in self._manifests:
            raise AileronError(FailureClass.NOT_FOUND, f"{pin} is not installed")
        return self._manifests[pin.name]


class Vault:
    """The names of bound credentials, by connector."""

    def __init__(self, **names: Sequence[BindingName]) -> None:
        self._names = names

    def candidates(self, connector: str, kind: str) -> Sequence[BindingName]:
        """Those of that connector and kind."""
        return [name for name in self._names.get(connector.split("/")[-1], ()) if name.kind == kind]


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
    """The one step of the plan."""
    (step,) = plan(*args, **more).steps
    return step


def refusal(*args: Any, **more: Any) -> Failure:
    """Why there is no plan."""
    with pytest.raises(AileronError) as caught:
        plan(*args, **more)
    return caught.value.failure


def test_a_plan_holds_exactly_what_would_be_done(action_text: Text):
    """Action, arguments, pin, operation, hosts, limits and approval are all in it, and so in its digest."""
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
def test_a_wrong_argument_is_named_with_what_was_expected(action_text: Text, args: dict[str, Any], message: str):
    """Nothing is coerced and nothing unknown passes; the value itself is not repeated."""
    failure = refusal(action_text(), args)

    assert (failure.failure_class, failure.boundary) == (FailureClass.BAD_INPUT, Boundary.ACTION)
    assert message in failure.message


def test_all_wrong_arguments_are_told_at_once(action_text: Text):
    """An agent mends the call in one go."""
    failure = refusal(action_text(), {"count": "x", "zzz": 1})

    assert set(failure.details["arguments"]) == {"to", "count", "zzz"}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("number", [1, 1.5, -0.0, 2**53 - 1], [True, "1", float("nan"), float("inf"), 2.0**53]),
        ("integer", [0, -(2**53) + 1], [False, 1.5, -(2**53)]),
        ("boolean", [True, False], [0, 1, "true"]),
        ("string", ["", "x"], [b"x", 1, False]),
    ],
)
def test_each_type_takes_its_own_values_only(action_text: Text, kind: str, good: list[Any], bad: list[Any]):
    """Booleans are not integers, and what JSON cannot say is refused."""
    text = action_text(('type = "integer"', f'type = "{kind}"'))

    for value in good:
        assert only_step(text, {"to": "a", "count": value}).args["count"] == value
    for value in bad:
        assert refusal(text, {"to": "a", "count": value}).failure_class is FailureClass.BAD_INPUT


def test_an_absent_optional_input_leaves_its_key_out(action_text: Text):
    """Also inside tables and arrays; what is given keeps its type there."""
    nested = ('count = "${args.count}"', 'count = "${args.count}"\nmany = [1, "${args.count}", {a = "${args.count}"}]')

    assert only_step(action_text(nested), {"to": "a"}).args == {"to": "a", "subject": "From a: hello", "many": [1, {}]}
    assert only_step(action_text(nested), {"to": "a", "count": 7}).args["many"] == [1, 7, {"a": 7}]


def test_what_the_file_says_wins_over_an_argument_of_that_name(action_text: Text):
    """The agent cannot change what the file fixes."""
    assert only_step(action_text(('to = "${args.to}"', 'to = "boss"')), {"to": "eve"}).args["to"] == "boss"


def test_an_argument_is_not_expanded_again(action_text: Text):
    """A value that looks like a reference goes through as it stands."""
    step = only_step(action_text(), {"to": "${args.count}", "count": 3})

    assert step.args["to"] == "${args.count}"
    assert step.args["subject"] == "From ${args.count}: hello"


@given(to=st.text(st.characters(codec="utf-8"), max_size=50))
def test_any_text_argument_arrives_unchanged(action_text: Text, to: str):
    """Whole or inside a longer string, the text is the agent's own."""
    step = only_step(action_text(), {"to": to})

    assert (step.args["to"], step.args["subject"]) == (to, f"From {to}: hello")


def test_numbers_and_booleans_inside_a_text_are_spelled_as_json(action_text: Text):
    """One spelling, the canonical one."""
    for kind, value, spelled in (("boolean", True, "true"), ("number", 1.0, "1"), ("integer", -3, "-3")):
        text = action_text(
            ('type = "integer"', f'type = "{kind}"'),
            ("required = false", "required = true"),
            ("From ${args.to}: hello", "x${args.count}y"),
        )
        assert only_step(text, {"to": "a", "count": value}).args["subject"] == f"x{spelled}y"


def test_arguments_beyond_one_frame_are_refused(action_text: Text):
    """What could never be sent to the jail is refused before anyone is asked."""
    assert only_step(action_text(), {"to": "x" * 20_000})
    failure = refusal(action_text(), {"to": "x" * MAX_ARGS_BYTES})

    assert failure.failure_class is FailureClass.BAD_INPUT
    assert f"at most {MAX_ARGS_BYTES}" in failure.message


def test_an_operation_outside_the_actions_subset_is_denied(action_text: Text):
    """The second gate: the connector could, the action may not. With the operation listed, it may."""
    denied = refusal(action_text(('["send_email"]', '["list_emails"]')), {"to": "a"})

    assert (denied.failure_class, denied.boundary) == (FailureClass.CAPABILITY_DENIED, Boundary.ACTION)
    assert denied.details["connector"] == f"{MAIL}@1.2.0"
    assert denied.details["requested"] == "op:send_email"
    assert denied.details["granted"] == ["op:list_emails"]
    assert only_step(action_text(('["send_email"]', '["list_emails", "send_email"]')), {"to": "a"})


@pytest.mark.parametrize("word", ["oauth2", "chat:write", "Post messages"])
def test_the_kind_or_a_scope_stands_for_every_operation_of_that_credential(action_text: Text, word: str):
    """As older files write it; but only if the connector has such a credential."""
    text = action_text(('["send_email"]', f'["{word}"]'))
    need = CredentialNeed(kind="oauth2", scope="Post messages")
    vault = Vault(mail=[BindingName("oauth2", "mail", "me")])

    assert only_step(text, {"to": "a"}, manifest(credential=need, oauth2=OAUTH), vault=vault)
    assert refusal(text, {"to": "a"}).failure_class is FailureClass.CAPABILITY_DENIED


def test_a_connector_that_is_not_there_is_not_found(action_text: Text):
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


def test_private_and_plain_hosts_are_what_manifest_and_user_agree_on(action_text: Text):
    """A setting grants nothing the manifest does not name, and the manifest nothing the user did not allow."""
    settings = Settings(
        egress_private=frozenset({HostPort("nas.lan", 443), HostPort("other.lan", 443)}),
        egress_private_plain=frozenset({HostPort("localhost", 8080), HostPort("localhost", 1)}),
    )
    grant = only_step(action_text(), {"to": "a"}, settings=settings).grant

    assert grant.plain == {HostPort("localhost", 8080)}
    assert grant.private == {HostPort("localhost", 8080), HostPort("nas.lan", 443)}
    assert only_step(action_text(), {"to": "a"}).grant.private == frozenset()


def test_a_needed_credential_that_is_not_bound_says_how_to_bind_it(action_text: Text):
    """With the command; and with the one binding there is, it is used."""
    needy = manifest(credential=BASIC)
    failure = refusal(action_text(), {"to": "a"}, needy)
    bound = only_step(action_text(), {"to": "a"}, needy, vault=Vault(mail=[HOME]))

    assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_REQUIRED, Boundary.USER)
    setup = f"aileron binding setup {MAIL} --name basic/SERVICE/IDENTITY --username USER --secret NAME"
    assert setup in failure.message
    assert bound.grant.credential is not None
    assert (bound.grant.credential.binding, bound.grant.credential.need) == (HOME, BASIC)


def test_a_binding_of_another_kind_or_connector_does_not_serve(action_text: Text):
    """What a credential was bound for is all it is used for."""
    needy = manifest(credential=BASIC)

    for vault in (Vault(mail=[BindingName("api_key", "mail", "home")]), Vault(post=[HOME])):
        assert refusal(action_text(), {"to": "a"}, needy, vault=vault).failure_class is FailureClass.BINDING_REQUIRED


def test_which_of_several_bindings_is_never_guessed(action_text: Text):
    """None named: refused with the choices. Named in full or by identity: that one."""
    needy, vault = manifest(credential=BASIC), Vault(mail=[HOME, WORK])
    failure = refusal(action_text(), {"to": "a"}, needy, vault=vault)

    assert failure.failure_class is FailureClass.BINDING_REQUIRED
    assert failure.details["choices"] == ["basic/mail/home", "basic/mail/work"]
    for name in ("work", "basic/mail/work"):
        grant = only_step(action_text(), {"to": "a"}, needy, vault=vault, binding=name).grant
        assert grant.credential is not None
        assert grant.credential.binding == WORK


def test_a_binding_that_is_not_among_the_choices_is_refused(action_text: Text):
    """A misspelled name does not fall back to the only one, nor to one that needs none."""
    needy = manifest(credential=BASIC)

    for manifests, vault in ((needy, Vault(mail=[HOME])), (manifest(), Vault()), (needy, Vault(mail=[HOME, WORK]))):
        failure = refusal(action_text(), {"to": "a"}, manifests, vault=vault, binding="wrok")
        assert failure.failure_class is FailureClass.BINDING_REQUIRED


def test_an_identity_that_names_two_bindings_is_refused(action_text: Text):
    """One word for two credentials does not say which."""
    vault = Vault(mail=[HOME, BindingName("basic", "archive", "home")])
    failure = refusal(action_text(), {"to": "a"}, manifest(credential=BASIC), vault=vault, binding="home")

    assert "'home' names several" in failure.message


def test_each_connector_of_an_action_has_its_own_binding(action_text: Text):
    """Two connectors, one named binding: it serves the one it was made for."""
    second = f'[[requires.connectors]]\nname = "{POST}"\nversion = "1.2.0"\nhash = "{PIN}"\ncapabilities = ["post"]\n'
    step = f'[[execute]]\nid = "post"\nconnector = "{POST}"\nop = "post"\n\n[[inputs]]\nname = "to"'
    text = action_text(("[match]", second + "[match]"), ('[[inputs]]\nname = "to"', step))
    chat = BindingName("basic", "chat", "me")
    both = (manifest(credential=BASIC), manifest(POST, credential=BASIC))

    found = plan(text, {"to": "a"}, *both, vault=Vault(mail=[HOME, WORK], post=[chat]), binding="work")
    assert [step.grant.credential.binding for step in found.steps if step.grant.credential] == [WORK, chat]
    assert [step.args for step in found.steps][1] == {"to": "a"}


def test_a_step_is_idempotent_only_if_file_and_manifest_say_so(action_text: Text):
    """Absent means no; a connector that says its operations never are has the last word."""
    said = action_text(("idempotent = false", "idempotent = true"))

    assert not only_step(action_text(("idempotent = false", "")), {"to": "a"}).idempotent
    assert only_step(said, {"to": "a"}).idempotent
    assert not only_step(said, {"to": "a"}, manifest(idempotent_by_default=False)).idempotent
