"""An archive is checked against the request: its signer, its name and its version."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.failure import FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry.artifact import ActionArtifact, ArtifactRequest, Trust, action_of, connector_of
from aileron.registry.connector_build import build
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.signatures import SigningKey
from aileron.registry.sigstore import PUBLIC_FORGES
from aileron.registry.tarball import pack, unpack
from tests.actions.conftest import ACTION
from tests.registry.conftest import refusal

KEY = SigningKey(Secret(b"k" * 32))
MAIL = ArtifactRequest.parse("github://acme/mail@1.2.0")
SEND = ArtifactRequest.parse("github://acme/mail/actions/send-email@1.2.0")
TRUST = Trust(keyring=Keyring().trusting(Authority.parse("github://acme"), KEY.public))


def signed(members: dict[str, bytes]) -> bytes:
    """Return an archive of these members with KEY's signature."""
    return pack({**members, "signature.sig": KEY.sign(b"".join(data for _, data in sorted(members.items())))})


def action_in(archive: bytes, trust: Trust = TRUST, wanted: ArtifactRequest = SEND) -> ActionArtifact:
    """Return the requested action from the archive."""
    return action_of(archive, trust, wanted=wanted, parse=parse_action)


# What is asked for


@pytest.mark.abuse_case("B7")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "github://acme/mail",
        "github://acme/mail@",
        "github://acme/mail@v1.0.0",
        "github://acme/mail@latest",
        "acme/mail@1.0.0",
        "github://acme/mail@^1.2",
        "github://acme/mail@1.2",
        "svn://acme/mail@1.0.0",
        "github://acme/mail@01.0.0",
        "github://acme/m%61il@1.0.0",
    ],
)
def test_a_reference_to_an_artifact_is_a_name_and_one_exact_version(text: str) -> None:
    """A request takes no range, no `latest` and no other scheme."""
    assert str(ArtifactRequest.parse("github://acme/mail/x@1.0.0-rc.1+a")) == "github://acme/mail/x@1.0.0-rc.1+a"
    with pytest.raises(ValueError, match=r"version|scheme|segment"):
        ArtifactRequest.parse(text)


# Connectors


def test_the_requested_connector_is_accepted_and_its_signer_is_reported(source: Path) -> None:
    """The pin is the same with and without a signature."""
    built = build(source)
    members = {"connector": built.connector, "manifest.toml": built.manifest}

    with_signature = connector_of(signed(members), TRUST, wanted=MAIL)
    without = connector_of(built.archive, TRUST, wanted=MAIL)

    assert (with_signature.signed.by, with_signature.signed.trusted_for) == (KEY.public.fingerprint, "github://acme")
    assert (without.signed.status, without.signed.expected) == ("unsigned", True)
    assert with_signature.pin == without.pin


@pytest.mark.abuse_case("B7")
@pytest.mark.parametrize(
    "wanted",
    [
        "github://acme/mail@1.2.1",
        "github://acme/mail@1.2.0+x",
        "github://acme/mail/imap@1.2.0",
        "gitlab://acme/mail@1.2.0",
        "github://Acme/mail@1.2.0",
        "github://other/mail@1.2.0",
    ],
)
def test_an_archive_with_another_name_or_version_than_requested_is_refused(source: Path, wanted: str) -> None:
    """The archive's own name and version must be those of the request."""
    failure = refusal(lambda: connector_of(build(source).archive, Trust(), wanted=ArtifactRequest.parse(wanted)))

    assert failure.failure_class is FailureClass.INVALID_REQUEST
    assert f"what was published as {wanted} describes itself as github://acme/mail@1.2.0" in failure.message


@pytest.mark.abuse_case("B1")
def test_an_archive_with_a_changed_byte_is_refused_before_its_manifest_is_parsed(source: Path) -> None:
    """The byte is in the program, the manifest or the signature; a manifest that would not parse fails the same way."""
    members = unpack(signed({"connector": (built := build(source)).connector, "manifest.toml": built.manifest}))
    for name, data in members.items():
        changed = pack({**members, name: data[:-1] + bytes([data[-1] ^ 1])})
        failure = refusal(partial(connector_of, changed, TRUST, wanted=MAIL))
        assert failure.failure_class is FailureClass.SIGNATURE_FAILURE
    garbage = pack({**members, "manifest.toml": b"= not TOML"})
    assert refusal(lambda: connector_of(garbage, TRUST, wanted=MAIL)).failure_class is FailureClass.SIGNATURE_FAILURE


@pytest.mark.abuse_case("B1")
def test_moving_bytes_from_the_program_to_the_manifest_is_refused(source: Path) -> None:
    """The signature covers program and manifest joined; the program's own format says where it ends."""
    built = build(source)
    joined = built.connector + built.manifest
    signature = KEY.sign(joined)
    for at in (len(built.connector) - 1, len(built.connector) + 1):
        moved = pack({"connector": joined[:at], "manifest.toml": joined[at:], "signature.sig": signature})
        failure = refusal(partial(connector_of, moved, TRUST, wanted=MAIL))
        assert failure.failure_class is FailureClass.INVALID_REQUEST
    kept = pack({"connector": built.connector, "manifest.toml": built.manifest, "signature.sig": signature})
    assert connector_of(kept, TRUST, wanted=MAIL).signed.status == "verified"


@pytest.mark.abuse_case("B1")
def test_the_signature_of_an_older_version_is_refused(source: Path) -> None:
    """The signature is good and by the right key, but over other bytes."""
    old = build(source)
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("1.2.0", "1.3.0"))
    new = build(source)
    replayed = pack(
        {
            "connector": new.connector,
            "manifest.toml": new.manifest,
            "signature.sig": KEY.sign(old.connector + old.manifest),
        }
    )

    failure = refusal(lambda: connector_of(replayed, TRUST, wanted=ArtifactRequest.parse("github://acme/mail@1.3.0")))

    assert failure.failure_class is FailureClass.SIGNATURE_FAILURE


# Actions


def test_the_requested_action_is_accepted() -> None:
    """The action's source is the request, its name the last part of the source, and its version the same."""
    found = action_in(signed({"action.md": ACTION.encode()}))

    assert (found.action.name, found.signed.by) == ("send-email", KEY.public.fingerprint)
    assert found.digest == found.action.digest


@pytest.mark.abuse_case("B7")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "actions/send-email@1.2.0",
            "actions/send-email@1.2.1",
            "describes itself as github://acme/mail/actions/send-email@1.2.1",
        ),
        ('source = "github://acme/mail/actions/send-email@1.2.0"\n', "", "does not say where it is from"),
        ('name = "send-email"', 'name = "send-mail"', "describes itself as the action 'send-mail' in version 1.2.0"),
        (
            'version = "1.2.0"\nsource',
            'version = "1.2.1"\nsource',
            "describes itself as the action 'send-email' in version 1.2.1",
        ),
        ("sha256:" + "ab" * 32, "sha256:bound-at-release", "hash is the placeholder"),
    ],
)
def test_an_action_of_another_name_version_or_origin_is_refused(old: str, new: str, told: str) -> None:
    """An action published with its release placeholder is refused too."""
    assert old in ACTION

    failure = refusal(lambda: action_in(pack({"action.md": ACTION.replace(old, new, 1).encode()})))

    assert told in failure.message


def test_an_actions_signature_covers_its_whole_file() -> None:
    """A single byte appended to the file makes the signature invalid."""
    members = unpack(signed({"action.md": ACTION.encode()}), "action")

    changed = pack({**members, "action.md": ACTION.encode() + b"\n"})

    assert refusal(lambda: action_in(changed)).failure_class is FailureClass.SIGNATURE_FAILURE
    assert refusal(lambda: action_in(pack({"action.md": b"\xff"}))).message.endswith("is not valid UTF-8 (byte 0)")
    strict = Trust(keyring=TRUST.keyring, require_signature=True)
    assert (
        refusal(lambda: action_in(pack({"action.md": ACTION.encode()}), strict)).failure_class
        is FailureClass.SIGNATURE_FAILURE
    )
    assert action_in(signed({"action.md": ACTION.encode()}), strict).signed.status == "verified"


@pytest.mark.abuse_case("B2")
def test_a_key_trusted_only_for_another_owner_is_not_accepted() -> None:
    """The signature is valid, but its key is trusted only for a fork."""
    fork = Trust(keyring=Keyring().trusting(Authority.parse("github://fork/mail"), KEY.public))

    failure = refusal(lambda: action_in(signed({"action.md": ACTION.encode()}), fork))

    assert f"you trust no key of {Authority.of_repository(Fqn.parse('github://acme/mail'))}" in failure.message


def test_a_sigstore_bundle_is_checked_against_the_exact_bytes(source: Path) -> None:
    """A bundle can replace a signature by a key only if the artifact's name refers to a public forge."""
    built = build(source)
    bundle = (Path(__file__).parent / "sigstore" / "gitlab-publish.sigstore.json").read_bytes()
    archive = pack({"connector": built.connector, "manifest.toml": built.manifest, "signature.sig": bundle})
    wanted = ArtifactRequest.parse("gitlab://facutuesca/gitlab-oidc-project@1.2.0")

    on_the_public_one = refusal(lambda: connector_of(archive, Trust(public_forges=PUBLIC_FORGES), wanted=wanted))
    elsewhere = refusal(lambda: connector_of(archive, Trust(), wanted=wanted))

    assert {on_the_public_one.failure_class, elsewhere.failure_class} == {FailureClass.SIGNATURE_FAILURE}
    assert "its statement is about other bytes" in on_the_public_one.message
    assert "is a server of your own here" in elsewhere.message
