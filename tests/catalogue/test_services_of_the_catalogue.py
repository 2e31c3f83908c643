"""The services that come with Aileron: their programs are the pinned ones, and what they say of themselves is true."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.catalogue.preparing import FIRST, Hosts, action_texts, built, label
from aileron.catalogue.service import Service, matching, service_named, services
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import HostPort
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.registry.connector_build import Application, made_up_logins
from aileron.registry.content import content_hash
from aileron.registry.manifest import parse_connector_manifest

NAMES = [service.name for service in services()]


def given(service: Service) -> Hosts:
    """Return made-up values for everything that a service asks for."""
    return Hosts(
        hosts=(HostPort("host.invalid", 443),) if "host" in service.asks else (),
        logins=made_up_logins(service.manifest),
        region="eu-central-1" if "region" in service.asks else None,
        application=Application(client_id="id", client_secret=Secret(b"s")) if "application" in service.asks else None,
    )


def prepared(service: Service, identity: str) -> tuple[ConnectorManifest, ConnectorPin]:
    """Return the manifest and the pin of a service's connector, built for an account."""
    made = built(service, identity, given(service))
    manifest = parse_connector_manifest(made.manifest, file=service.name)
    return manifest, ConnectorPin(str(manifest.name), manifest.version, content_hash(made.connector, made.manifest))


def test_the_catalogue_has_the_twelve_services() -> None:
    """Each connector of the repository is a service, by the name of its folder."""
    assert NAMES == [
        "caldav",
        "git",
        "github",
        "google",
        "mail",
        "matrix",
        "postgres",
        "s3",
        "slack",
        "stripe",
        "telegram",
        "webhook",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_program_of_a_service_is_the_pinned_one(name: str) -> None:
    """A change of a connector must change its version and the hash in its catalogue.toml."""
    service = service_named(name)

    manifest, pin = prepared(service, FIRST)

    assert (str(manifest.name), manifest.version) == (service.connector, service.version)
    assert pin.version == service.version


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("identity", [FIRST, "work"])
def test_every_action_of_a_service_fits_its_connector(name: str, identity: str) -> None:
    """Actions are named for the account, pinned to its connector, and name its identity; they say no source."""
    service = service_named(name)
    manifest, pin = prepared(service, identity)

    texts = action_texts(service, service.actions, identity, pin)

    for source, text in zip(service.actions, texts, strict=True):
        action = parse_action(text, file=source)
        check_action(action, {pin: manifest}.get, file=source)
        assert source.startswith(f"{name}-")
        assert action.name == label(name, identity) + source.removeprefix(name)
        assert (action.source, action.version) == (None, service.version)
        assert {needed.identity for needed in action.connectors} == {identity}


@pytest.mark.parametrize("name", NAMES)
def test_the_check_of_a_service_only_reads(name: str) -> None:
    """The check runs without a person, with arguments that the action has."""
    service = service_named(name)
    if service.check is None:
        assert not any(service.only_reads(action) for action in service.actions)
        return
    action = parse_action(service.action_text(service.check.action), file=name, allow_placeholder=True)

    assert service.only_reads(service.check.action)
    inputs = {spec.name for spec in action.inputs}
    assert {*service.check.args, *service.check.asks} <= inputs
    assert {spec.name for spec in action.inputs if spec.required} <= {*service.check.args, *service.check.asks}


@pytest.mark.parametrize("name", NAMES)
def test_the_first_change_of_a_service_waits_for_a_person(name: str) -> None:
    """The change is never made without a decision, and its arguments are those of the action."""
    service = service_named(name)
    change = service.change
    assert change is not None
    action = parse_action(service.action_text(change.action), file=name, allow_placeholder=True)

    assert action.approval.required
    given = {*change.args, *change.asks}
    assert {spec.name for spec in action.inputs if spec.required} <= given <= {spec.name for spec in action.inputs}


def test_a_second_account_has_a_connector_of_its_own_only_for_its_own_servers() -> None:
    """Mail at other servers is another connector; GitHub is the same one for every account."""
    mail, github = service_named("mail"), service_named("github")

    assert prepared(mail, "work")[1].name == f"{mail.connector}/work"
    assert prepared(github, "work")[1] == prepared(github, FIRST)[1]


def test_a_changed_program_is_refused(tmp_path: Path) -> None:
    """The installation was changed: nothing is built from it, and the message says what to do."""
    original = service_named("telegram")
    folder = tmp_path / "telegram"
    shutil.copytree(original.directory, folder)
    service = msgspec.structs.replace(original, directory=str(folder))
    assert built(service, FIRST, Hosts()).connector
    (folder / "api.py").write_text((folder / "api.py").read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")

    with pytest.raises(AileronError, match="install Aileron again") as caught:
        built(service, FIRST, Hosts())
    assert caught.value.failure.failure_class is FailureClass.HASH_MISMATCH


@pytest.mark.parametrize("identity", ["", "Work", "a b", "../me", "x" * 65])
def test_an_identity_that_cannot_name_an_account_is_refused(identity: str) -> None:
    """The name becomes a part of names of actions, connectors and bindings."""
    with pytest.raises(AileronError, match="is not lower-case letters") as caught:
        built(service_named("telegram"), identity, Hosts())
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST


def test_words_find_services() -> None:
    """A search looks at names, titles, lines and words, whatever their case."""
    assert [service.name for service in matching("CALENDAR")] == ["caldav", "google"]
    assert [service.name for service in matching("database")] == ["postgres"]
    assert matching("teleport") == ()
    assert len(matching("")) == len(NAMES)


def test_a_misspelt_service_or_action_is_answered_with_the_nearest_name() -> None:
    """Other names are answered with where to look."""
    with pytest.raises(AileronError, match="did you mean 'github'"):
        service_named("gihub")
    with pytest.raises(AileronError, match="`aileron add` lists those that do"):
        service_named("zzz")
    with pytest.raises(AileronError, match="did you mean 'mail-send'"):
        service_named("mail").action_text("mail-sent")
