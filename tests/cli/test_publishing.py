"""`aileron connector sign`, `release` and `check-manifest` as a program: no daemon, no home, no network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aileron.model.secret import Secret
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import unpack
from tests.cli.command import Command

KEY = SigningKey(Secret(b"p" * 32))
WORDS = KEY.to_pem().reveal().decode()
MANIFEST = """\
[connector]
name = "github://acme/connector-notes"
version = "0.0.0-dev"

[capabilities.network]
hosts = ["notes.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Read notes"
header = "X-Key"
format = "{key}"

[capabilities.runtime]
imports = ["http", "log"]
"""
ACTION = """\
+++
name = "list-notes"
version = "0.0.0-dev"
source = "github://acme/connector-notes/actions/list-notes@0.0.0-dev"

[[requires.connectors]]
name = "github://acme/connector-notes"
version = "0.0.0-dev"
hash = "sha256:bound-at-release"
capabilities = ["list_notes"]

[match]
intent = "list notes"

[[execute]]
id = "list"
connector = "github://acme/connector-notes"
op = "list_notes"
+++
List notes.
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Directory of a small repository."""
    directory = tmp_path / "notes"
    (directory / "actions" / "list-notes").mkdir(parents=True)
    (directory / "manifest.toml").write_text(MANIFEST)
    (directory / "connector.py").write_text("print(1)\n")
    (directory / "actions" / "list-notes" / "action.md").write_text(ACTION)
    return directory


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Path of the private key, readable by its owner only."""
    path = tmp_path / "signing-key"
    path.write_text(WORDS)
    path.chmod(0o600)
    return path


def test_a_release_is_written_under_its_tags(aileron: Command, sources: Path, key: Path, tmp_path: Path) -> None:
    """The key comes from a file or from a workflow's variable; both give the same bytes, and no daemon is needed."""
    by_file = aileron(
        "connector", "release", "--version", "1.2.0", str(sources), "--key", str(key), "-o", str(tmp_path / "a")
    )
    said = aileron(
        "connector",
        "release",
        "--version",
        "1.2.0",
        str(sources),
        "-o",
        str(tmp_path / "b"),
        "--json",
        AILERON_SIGNING_KEY=WORDS,
    )

    assert (by_file.code, said.code) == (0, 0), (by_file, said)
    assert said.json["signed_by"] == KEY.public.fingerprint
    assert KEY.public.fingerprint in by_file.err
    assert "left out (not part of the program): actions/\n" in by_file.err
    assert [artifact["tag"] for artifact in said.json["artifacts"]] == ["v1.2.0", "actions/list-notes/v1.2.0"]
    for artifact in said.json["artifacts"]:
        path = Path(artifact["tag"], "aileron.tar.gz")
        assert Path(artifact["file"]) == tmp_path / "b" / path
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
        assert artifact["hash"] in by_file.out
    assert not aileron.home.exists()


def test_a_release_without_a_signing_key_warns_and_an_empty_key_is_an_error(
    aileron: Command, sources: Path, tmp_path: Path
) -> None:
    """A workflow with a missing secret must not publish unsigned."""
    unsigned = aileron("connector", "release", "--version", "1.2.0", str(sources), "-o", str(tmp_path / "a"))
    empty = aileron(
        "connector", "release", "--version", "1.2.0", str(sources), "-o", str(tmp_path / "b"), AILERON_SIGNING_KEY=""
    )

    assert (unsigned.code, "UNSIGNED" in unsigned.err) == (0, True)
    assert (empty.code, "AILERON_SIGNING_KEY is set but empty" in empty.err) == (2, True)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_signing_key_that_other_users_can_read_is_refused(
    aileron: Command, sources: Path, key: Path, tmp_path: Path, mode: int
) -> None:
    """The fix is the chmod command, as for ssh; a key for its owner only is accepted."""
    words = (
        "connector",
        "release",
        "--version",
        "1.2.0",
        str(sources),
        "--key",
        str(key),
        "-o",
        str(tmp_path / "dist"),
    )
    key.chmod(mode)
    refused = aileron(*words)
    key.chmod(0o400)
    taken = aileron(*words)

    assert (refused.code, f"fix: chmod 600 {key}" in refused.err) == (2, True)
    assert taken.code == 0, taken


def test_the_error_for_an_invalid_signing_key_names_its_source_not_its_content(
    aileron: Command, sources: Path, key: Path, tmp_path: Path
) -> None:
    """The key comes from a file or from the workflow's variable."""
    out = str(tmp_path / "dist")
    key.write_text("canary-canary-canary")
    by_file = aileron("connector", "release", "--version", "1.2.0", str(sources), "--key", str(key), "-o", out)
    by_variable = aileron(
        "connector", "release", "--version", "1.2.0", str(sources), "-o", out, AILERON_SIGNING_KEY=WORDS[:-40]
    )
    nowhere = aileron("connector", "sign", str(sources / "x.tar.gz"), "--key", str(tmp_path / "none"))
    os.mkfifo(tmp_path / "fifo", 0o600)
    waiting = aileron("connector", "sign", str(sources / "x.tar.gz"), "--key", str(tmp_path / "fifo"))

    assert (by_file.code, by_variable.code, nowhere.code, waiting.code) == (2, 2, 3, 2)
    assert str(key) in by_file.err
    assert "AILERON_SIGNING_KEY" in by_variable.err
    for said in (by_file, by_variable):
        assert "canary" not in said.out + said.err
        assert WORDS.splitlines()[1][:20] not in said.out + said.err


def test_a_failed_release_leaves_no_file_and_names_the_line_of_the_mistake(
    aileron: Command, sources: Path, tmp_path: Path
) -> None:
    """The release works once the source and the version are right; an existing directory is not overwritten."""
    out = tmp_path / "dist"
    words = ["connector", "release", str(sources), "-o", str(out)]
    action = sources / "actions" / "list-notes" / "action.md"
    action.write_text(ACTION.replace("@0.0.0-dev", "@1.0.0"))
    wrong = aileron(*words, "--version", "1.2.0")
    action.write_text(ACTION)
    spelled = aileron(*words, "--version", "v1.2.0")

    assert (wrong.code, f"{action}:4: source says" in wrong.err) == (2, True)
    assert (spelled.code, "v1.2.0" in spelled.err) == (2, True)
    assert not out.exists()
    assert aileron(*words, "--version", "1.2.0").code == 0
    again = aileron(*words, "--version", "1.2.0")
    assert (again.code, "already exists" in again.err) == (2, True)


def test_sign_refuses_a_signing_key_that_does_not_match_the_published_key(
    aileron: Command, sources: Path, key: Path, tmp_path: Path
) -> None:
    """A release with such a signature could not be installed; the published key is accepted."""
    (sources / "keys").mkdir()
    public = sources / "keys" / "publisher.pub"
    public.write_text(SigningKey(Secret(b"x" * 32)).public.to_pem())
    words = (
        "connector",
        "release",
        "--version",
        "1.2.0",
        str(sources),
        "--key",
        str(key),
        "-o",
        str(tmp_path / "dist"),
    )
    refused = aileron(*words)
    public.write_text(KEY.public.to_pem())

    assert (refused.code, "keys/publisher.pub" in refused.err) == (2, True)
    assert aileron(*words).code == 0


def test_an_archive_is_signed_in_place(aileron: Command, sources: Path, key: Path, tmp_path: Path) -> None:
    """The file keeps its mode; the signature covers program and manifest, and no temporary file remains."""
    (sources / "manifest.toml").write_text(MANIFEST.replace("0.0.0-dev", "1.2.0"))
    file = tmp_path / "notes.tar.gz"
    built = aileron("connector", "build", str(sources), "-o", str(file), "--json")
    file.chmod(0o640)
    said = aileron("connector", "sign", str(file), "--key", str(key), "--json")
    members = unpack(file.read_bytes())

    assert (said.code, said.json["hash"], said.json["signed_by"]) == (0, built.json["hash"], KEY.public.fingerprint)
    assert KEY.public.is_signature(members["signature.sig"], members["connector"] + members["manifest.toml"])
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def test_a_file_that_cannot_be_signed_is_unchanged(aileron: Command, sources: Path, key: Path, tmp_path: Path) -> None:
    """The file is no archive, there is no key, or the path is a link."""
    file = tmp_path / "notes.tar.gz"
    file.write_bytes(b"not an archive")
    refused = aileron("connector", "sign", str(file), "--key", str(key))
    keyless = aileron("connector", "sign", str(file))
    link = tmp_path / "link.tar.gz"
    link.symlink_to(file)

    assert (refused.code, "not a connector archive" in refused.err) == (2, True)
    assert (keyless.code, "--key FILE" in keyless.err) == (2, True)
    assert aileron("connector", "sign", str(link), "--key", str(key)).code == 2
    assert aileron("connector", "sign", str(tmp_path / "none"), "--key", str(key)).code == 3
    assert file.read_bytes() == b"not an archive"


def test_check_manifest_describes_a_manifest_in_words(aileron: Command, sources: Path) -> None:
    """The argument is a directory or a file; placeholders are allowed."""
    said = aileron("connector", "check-manifest", str(sources))
    manifest = sources / "manifest.toml"
    manifest.write_text(MANIFEST.replace("notes.example.com:443", "bound-at-build"))
    unbound = aileron("connector", "check-manifest", str(manifest), "--json")

    assert said.code == 0, said
    for words in ("set at release", "notes.example.com:443", "api_key: Read notes", "X-Key: KEY", "send HTTP requests"):
        assert words in said.out
    assert unbound.json["reaches"] == "the hosts given at build time"


def test_check_manifest_describes_a_connectors_sign_in(aileron: Command, sources: Path) -> None:
    """The example has a registered client, tokens for one service, and no scopes."""
    key = 'kind = "api_key"\nscope = "Read notes"\nheader = "X-Key"\nformat = "{key}"\n'
    provider = """kind = "oauth2"
scope = "Read notes"
[capabilities.credential.oauth2]
authorize_url = "https://id.example.com/authorize"
token_url = "https://id.example.com/token"
registration_url = "https://id.example.com/register"
resource = "https://notes.example.com/mcp"
scopes = []
"""
    assert key in MANIFEST
    (sources / "manifest.toml").write_text(MANIFEST.replace(key, provider))
    said = aileron("connector", "check-manifest", str(sources), "--json").exits(0)
    assert said.json["signs_in_at"] == "https://id.example.com/authorize"
    assert said.json["client"] == "registered at https://id.example.com/register"
    assert (said.json["tokens_for"], said.json["scopes"]) == ("https://notes.example.com/mcp", "none")


def test_a_connector_whose_manifest_needs_a_region_is_not_built_without_a_region(
    aileron: Command, sources: Path, tmp_path: Path
) -> None:
    """The description of the manifest mentions the option --region before."""
    key = 'kind = "api_key"\nscope = "Read notes"\nheader = "X-Key"\nformat = "{key}"\n'
    signed = 'kind = "aws_sigv4"\nscope = "Read notes"\n[capabilities.credential.aws]\nservice = "s3"\n'
    signed += 'region = "bound-at-build"\n'
    assert key in MANIFEST
    (sources / "manifest.toml").write_text(MANIFEST.replace(key, signed))
    said = aileron("connector", "check-manifest", str(sources), "--json")
    words = ("connector", "build", str(sources), "-o", str(tmp_path / "it.tar.gz"))
    without, built = aileron(*words), aileron(*words, "--region", "eu-central-1")

    assert (
        said.json["sent_as"]
        == "an AWS signature for s3 in the region given at build time, without the secret access key"
    )
    assert (without.code, "add --region REGION" in without.err) == (2, True), without
    assert built.code == 0, built


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("version =", "verison =", "manifest.toml:3: unknown key 'verison' in [connector]; did you mean 'version'?"),
        ('"http", "log"', '"http", "lgo"', "manifest.toml:15: unknown host function 'lgo'; did you mean 'log'?"),
        ("443", "*", "manifest.toml:6: hosts:"),
        ('"api_key"', "1", "manifest.toml:9: 'kind' is an integer; expected a string"),
        ("Read notes", "Read \u202enotes", "hidden character"),
    ],
)
def test_a_mistake_in_a_manifest_is_reported_with_its_line(
    aileron: Command, sources: Path, old: str, new: str, told: str
) -> None:
    """The error has file, line, the found and expected value, and the nearest key; hidden characters are escaped."""
    assert old in MANIFEST
    (sources / "manifest.toml").write_text(MANIFEST.replace(old, new))
    said = aileron("connector", "check-manifest", str(sources))

    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "\u202e" not in said.err


def test_check_manifest_exits_with_3_if_there_is_no_manifest(aileron: Command, sources: Path) -> None:
    """Neither the directory nor a manifest in it exists. Positive control: an existing one is accepted."""
    assert aileron("connector", "check-manifest", str(sources)).code == 0
    shutil.rmtree(sources)
    assert aileron("connector", "check-manifest", str(sources)).code == 3
    sources.mkdir()
    assert aileron("connector", "check-manifest", str(sources)).code == 3
