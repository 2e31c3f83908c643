"""A release from a publisher's sources: what is bound, signed and checked, and what cannot be released."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import UNBOUND_HASH, Fqn, HostPort
from aileron.model.secret import Secret
from aileron.registry.artifact import ArtifactRequest, Trust, action_of, connector_of
from aileron.registry.connector_build import Application
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.release import Release, check_key_is_published, release, sign, write_release
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import pack, unpack
from tests.registry.conftest import refusal_as

KEY = SigningKey(Secret(b"r" * 32))
OTHER = SigningKey(Secret(b"o" * 32))
TRUST = Trust(keyring=Keyring().trusting(Authority.parse("github://acme/mail"), KEY.public), require_signature=True)
ACTION = """\
+++
name = "send-mail"
version = "0.0.0-dev"
source = "github://acme/mail/actions/send-mail@0.0.0-dev"

[[requires.connectors]]
name = "github://acme/mail"
version = '0.0.0-dev'   # with the connector
hash = "sha256:bound-at-release"
capabilities = ["send"]

[match]
intent = "send a mail"

[[execute]]
id = "send"
connector = "github://acme/mail"
op = "send"
+++
The prose may say version = "0.0.0-dev" and hash = "sha256:bound-at-release".
"""


@pytest.fixture
def sources(source: Path) -> Path:
    """Return a repository of a connector and one action, as it is between releases."""
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('"1.2.0"', '"0.0.0-dev"'))
    folder = source / "actions" / "send-mail"
    folder.mkdir(parents=True)
    (folder / "action.md").write_text(ACTION)
    return source


def released(directory: Path, version: str = "1.2.0", key: SigningKey | None = KEY) -> Release:
    """Release the directory as the command does."""
    return release(directory, version, parse=parse_action, fits=check_action, key=key)


def refusal(attempt: Callable[[], object]) -> str:
    """Return the message with which the attempt is refused as invalid."""
    return refusal_as(FailureClass.INVALID_REQUEST, attempt)


def change(directory: Path, old: str, new: str, *, file: str = "actions/send-mail/action.md") -> None:
    """Replace `old`, which must be there, in one file."""
    path = directory / file
    assert old in path.read_text(), old
    path.write_text(path.read_text().replace(old, new))


def test_a_release_can_be_installed(sources: Path) -> None:
    """The release has the connector, and each action with its real pin, under the tags that an install requests."""
    done = released(sources)
    connector, action = done.artifacts

    assert (connector.path, action.path) == ("v1.2.0/aileron.tar.gz", "actions/send-mail/v1.2.0/aileron.tar.gz")
    assert done.signed_by == KEY.public.fingerprint
    fetched = connector_of(connector.archive, TRUST, wanted=ArtifactRequest.parse("github://acme/mail@1.2.0"))
    found = action_of(action.archive, TRUST, wanted=ArtifactRequest.parse(f"{action.name}@1.2.0"), parse=parse_action)
    assert (fetched.signed.status, found.signed.status) == ("verified", "verified")
    assert [(requirement.version, requirement.hash) for requirement in found.action.connectors] == [
        ("1.2.0", fetched.pin.hash)
    ]
    assert (connector.hash, action.hash) == (fetched.pin.hash, found.digest)


def test_a_release_replaces_only_placeholders_and_leaves_the_sources_unchanged(sources: Path) -> None:
    """Comments, other quotes and prose stay, and so do the source files."""
    before = {path: path.read_bytes() for path in sources.rglob("*") if path.is_file()}
    done = released(sources)
    text = unpack(done.artifacts[1].archive, "action")["action.md"].decode()

    assert text == (
        ACTION.replace('"0.0.0-dev"\nsource', '"1.2.0"\nsource')
        .replace("@0.0.0-dev", "@1.2.0")
        .replace("'0.0.0-dev'", '"1.2.0"')
        .replace('"sha256:bound-at-release"\ncap', f'"{done.artifacts[0].hash}"\ncap')
    )
    assert {path: path.read_bytes() for path in sources.rglob("*") if path.is_file()} == before


def test_the_same_sources_version_and_key_give_the_same_bytes(sources: Path, tmp_path: Path) -> None:
    """The place, the umask and the times make no difference; another key or version gives other bytes."""
    copy = tmp_path / "elsewhere"
    before = os.umask(0o077)
    try:
        subprocess.run(["cp", "-R", sources, copy], check=True, timeout=30)
    finally:
        os.umask(before)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))

    assert released(copy) == released(sources)
    assert released(sources, key=OTHER).artifacts[0].hash == released(sources).artifacts[0].hash
    assert released(sources, key=OTHER).artifacts[0].archive != released(sources).artifacts[0].archive
    assert released(sources, "1.2.1").artifacts[0].hash != released(sources).artifacts[0].hash


def test_without_a_key_the_archives_are_unsigned(sources: Path) -> None:
    """An install says so, and accepts them unless it requires signatures."""
    done = released(sources, key=None)

    assert done.signed_by is None
    assert connector_of(done.artifacts[0].archive, Trust()).signed.status == "unsigned"
    assert connector_of(released(sources).artifacts[0].archive, TRUST).signed.status == "verified"


def test_a_connector_inside_a_repository_is_released_under_its_path(sources: Path) -> None:
    """The actions are where their own `source` says."""
    change(sources, '"github://acme/mail"', '"github://acme/mail/connectors/smtp"', file="manifest.toml")
    change(sources, 'ctor = "github://acme/mail"', 'ctor = "github://acme/mail/connectors/smtp"')
    change(sources, 'name = "github://acme/mail"', 'name = "github://acme/mail/connectors/smtp"')
    change(sources, "/actions/send-mail@", "/connectors/smtp/actions/send-mail@")

    assert [artifact.tag for artifact in released(sources).artifacts] == [
        "connectors/smtp/v1.2.0",
        "connectors/smtp/actions/send-mail/v1.2.0",
    ]


@pytest.mark.parametrize("version", ["v1.2.0", "latest", "^1.2", "1.2", "1.2.0 ", "01.0.0", "", "0.0.0-dev"])
def test_only_an_exact_version_is_released(sources: Path, version: str) -> None:
    """A leading v, a range and a word are refused; a pre-release is accepted."""
    assert released(sources, "1.2.0-rc.1").artifacts[0].tag == "v1.2.0-rc.1"
    assert refusal(lambda: released(sources, version)).startswith("--version")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("manifest.toml", "0.0.0-dev", "1.1.0", "manifest.toml: version = \"1.1.0\" is neither"),
        ("manifest.toml", "[connector]", '# was "0.0.0-dev"\n[connector]', "manifest.toml:1: \"0.0.0-dev\" is left"),
        ("manifest.toml", "[conn", 'x = """\nversion = "0.0.0-dev"\n"""\n[conn', "unknown key 'x'"),
        ("manifest.toml", '"mail.example.com:443"', '"bound-at-build"', "manifest.toml:6: hosts is the placeholder"),
        ("action", "source = ", "# source = ", "action.md:1: no source"),
        ("action", "source = \"github://acme/mail/", "source = \"github://evil/mail/", "action.md:4: source"),
        ("action", "actions/send-mail@", "actions/other@", "does not end in the name 'send-mail'"),
        ("action", "send-mail@0.0.0-dev", "send-mail@1.1.0", 'action.md:4: source says "1.1.0"'),
        ("action", 'version = "0.0.0-dev"', 'version = "1.1.0"', 'action.md:3: version says "1.1.0"'),
        ("action", "'0.0.0-dev'", "'1.1.0'", "action.md:8: requires github://acme/mail in version"),
        ("action", "sha256:bound-at-release\"\ncap", f"sha256:{'0' * 64}\"\ncap", "action.md:9: the hash of"),
        ("action", "# with", '"oops', "action.md:8: not TOML"),
        ("action", "[match]", '# "sha256:bound-at-release"\n[match]', 'action.md:12: "sha256:bound-at-release" is left'),
        ("action", 'intent = "', 'intent = "0.0.0-dev"\n# "', "is left after everything was bound"),
        ("action", "hash = ", "hash\u00a0= ", "action.md"),
    ],
)  # fmt: skip
def test_a_placeholder_that_a_release_cannot_replace_is_reported_with_its_line(
    sources: Path, file: str, old: str, new: str, message: str
) -> None:
    """Aileron does not guess, and leaves no placeholder. The positive control is above."""
    change(sources, old, new, file="actions/send-mail/action.md" if file == "action" else file)

    assert message in refusal(lambda: released(sources))


def test_an_action_that_uses_another_publishers_connector_is_released_only_with_the_connectors_pin(
    sources: Path,
) -> None:
    """The hash is known from that connector's release; with it, the action is released."""
    theirs = (
        '\n[[requires.connectors]]\nname = "github://acme/log"\nversion = "2.0.0"\nhash = "{}"\ncapabilities = ["x"]\n'
    )
    change(sources, "\n[match]", theirs.format("sha256:bound-at-release") + "\n[match]")
    assert "action.md:13: github://acme/log is not released here" in refusal(lambda: released(sources))

    change(sources, theirs.format("sha256:bound-at-release"), theirs.format("sha256:" + "a" * 64))
    assert len(released(sources).artifacts) == 2


def test_a_file_in_place_of_the_actions_folder_is_an_error(sources: Path) -> None:
    """The message names the path."""
    shutil.rmtree(sources / "actions")
    (sources / "actions").write_text("")

    assert "actions is a symbolic link, or not what it should be" in refusal(lambda: released(sources))


def test_an_action_folder_that_would_be_left_out_is_an_error(sources: Path, tmp_path: Path) -> None:
    """The cases are a file beside the folders, a folder without a file, a link to elsewhere, and two actions of one name."""
    (sources / "actions" / "notes.md").write_text("")
    assert "notes.md: not a directory" in refusal(lambda: released(sources))
    (sources / "actions" / "notes.md").unlink()
    (sources / "actions" / "empty").mkdir()
    assert "no action.md" in refusal(lambda: released(sources))
    (sources / "actions" / "empty" / "action.md").symlink_to(sources / "actions" / "send-mail" / "action.md")
    assert "symbolic link" in refusal(lambda: released(sources))
    (sources / "actions" / "empty" / "action.md").unlink()
    (sources / "actions" / "empty" / "action.md").write_text(ACTION)
    assert "both be released with the tag actions/send-mail/v1.2.0" in refusal(lambda: released(sources))


def test_a_release_also_replaces_the_placeholders_of_the_publishers_application_and_hosts(sources: Path) -> None:
    """The release job knows the values; if one is missing, the error names the option."""
    manifest = sources / "manifest.toml"
    text = manifest.read_text().replace("mail.example.com:443", "bound-at-build").replace("api_key", "oauth2")
    table = """
[capabilities.credential.oauth2]
authorize_url = "https://id.example.com/authorize"
token_url = "https://id.example.com/token"
client_id = "bound-at-release"
client_secret = "bound-at-release"
scopes = ["mail"]
"""
    manifest.write_text(text + table)
    application = Application(client_id="client-1", client_secret=Secret(b"GOCSPX-canary"))
    hosts = [HostPort("mail.acme.com", 443)]
    done = release(
        sources, "1.2.0", parse=parse_action, fits=check_action, key=KEY, hosts=hosts, application=application
    )

    built = unpack(done.artifacts[0].archive)["manifest.toml"]
    assert b"bound-at" not in built
    assert b'client_secret = "GOCSPX-canary"' in built
    assert "--client-id" in refusal(
        lambda: release(sources, "1.2.0", parse=parse_action, fits=check_action, hosts=hosts)
    )
    manifest.write_text(manifest.read_text() + '# client_secret = "bound-at-release"\n')
    said = refusal(
        lambda: release(sources, "1.2.0", parse=parse_action, fits=check_action, hosts=hosts, application=application)
    )
    assert said.startswith(f'{manifest}:21: "bound-at-release" is left')
    assert "canary" not in said


# Writing


def test_a_release_is_written_completely_or_not_at_all(sources: Path, tmp_path: Path) -> None:
    """Each archive lies at its tag. If the target exists or cannot be written, no file is left behind."""
    done = released(sources)
    write_release(done, tmp_path / "dist")
    files = {str(path.relative_to(tmp_path / "dist")) for path in (tmp_path / "dist").rglob("*") if path.is_file()}

    assert files == {artifact.path for artifact in done.artifacts}
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "already exists" in refusal(lambda: write_release(done, tmp_path / "dist"))
    (tmp_path / "file").write_text("")
    with pytest.raises(AileronError):
        write_release(done, tmp_path / "file" / "dist")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "file"])


# Signing what was built


def test_signing_an_archive_does_not_change_its_contents(sources: Path) -> None:
    """Connectors and actions are signed alike, and an existing signature is replaced."""
    for artifact in released(sources, key=None).artifacts:
        signed = sign(artifact.archive, KEY, parse=parse_action, file="x.tar.gz")
        again = sign(
            sign(artifact.archive, OTHER, parse=parse_action, file="x").archive, KEY, parse=parse_action, file="x"
        )

        members = unpack(signed.archive, artifact.kind)
        assert (signed.hash, signed.tag, signed.name) == (artifact.hash, artifact.tag, artifact.name)
        assert {**unpack(artifact.archive, artifact.kind), "signature.sig": members["signature.sig"]} == members
        assert again.archive == signed.archive
    assert [artifact.archive for artifact in released(sources).artifacts][1] == signed.archive


def test_an_archive_that_cannot_be_installed_is_not_signed(sources: Path) -> None:
    """The cases are a placeholder, a file that is no archive, and an action without a source."""
    connector, action = released(sources, key=None).artifacts
    unbound = pack({"action.md": ACTION.encode()})
    nowhere = pack({"action.md": unpack(action.archive, "action")["action.md"].replace(b"source", b"# source")})

    assert sign(connector.archive, KEY, parse=parse_action, file="f").kind == "connector"
    for archive, message in [
        (b"nothing", "not a connector archive: not gzip"),
        (unbound, "hash is the placeholder"),
        (nowhere, "no source"),
        (pack({"action.md": b"\xff"}), "f:action.md:1: not valid UTF-8"),
        (pack({"manifest.toml": b""}), "'connector' is missing"),
    ]:
        assert message in refusal(partial(sign, archive, KEY, parse=parse_action, file="f"))


def test_signing_needs_the_key_that_the_repository_publishes(sources: Path) -> None:
    """Otherwise nobody could install what it signed. The caller is told if no key is published yet."""
    done = released(sources)
    assert check_key_is_published(sources, done, KEY) is False
    (sources / "keys").mkdir()
    (sources / "keys" / "publisher.pub").write_text(KEY.public.to_pem())
    assert check_key_is_published(sources, done, KEY) is True
    assert OTHER.public.fingerprint in refusal(lambda: check_key_is_published(sources, done, OTHER))
    (sources / "keys" / "publisher.pub").write_bytes(b"\xff")
    assert "not a public key" in refusal(lambda: check_key_is_published(sources, done, KEY))


def test_the_key_of_a_connector_in_a_subfolder_is_found_at_the_top_of_its_repository(sources: Path) -> None:
    """The search goes as many directories up as the connector's name has parts, and no further."""
    change(sources, '"github://acme/mail"', '"github://acme/mail/mail"', file="manifest.toml")
    change(sources, '"github://acme/mail"', '"github://acme/mail/mail"')
    done = released(sources)
    (sources.parent / "keys").mkdir()
    (sources.parent / "keys" / "publisher.pub").write_text(KEY.public.to_pem())

    assert check_key_is_published(sources, done, KEY) is True
    (sources.parent / "keys").rename(sources.parent.parent / "keys")
    try:
        assert check_key_is_published(sources, done, KEY) is False
    finally:
        (sources.parent.parent / "keys").rename(sources.parent / "keys")


def test_action_files_and_releases_use_the_same_placeholder() -> None:
    """An action file may leave unbound exactly what a release binds."""
    read = parse_action(ACTION, file="action.md", allow_placeholder=True)

    assert read.connectors[0].hash == UNBOUND_HASH == "sha256:bound-at-release"
    assert str(Fqn.parse("github://acme/mail")) in ACTION
