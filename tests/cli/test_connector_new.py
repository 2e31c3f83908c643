"""`aileron connector new`: its result passes its tests and can be released at once, and its key is not in the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.secret import Secret
from aileron.registry.artifact import ArtifactRequest, Trust, action_of, connector_of
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.signatures import PublicKey, SigningKey
from tests.cli.command import Command, Said
from tests.support.elf_programs import compiled
from tests.support.home import daemon_home

pytestmark = pytest.mark.jail
NAME = "github://acme/connector-things"
DEADLINE_S = 60
OPERATIONS = ("list_notes", "read_note", "send_report", "rename_category", "delete_note", "frobnicate")
"""An operation of each shape, and one whose name reveals nothing."""
OPS = [word for op in OPERATIONS for word in ("--op", op)]


def made(aileron: Command, directory: Path, *words: str, name: str = NAME) -> Said:
    """Run `connector new` in that directory."""
    return aileron("connector", "new", name, str(directory), *words)


def published_key(directory: Path) -> PublicKey:
    """Return the public key as a forge serves it."""
    return PublicKey.parse((directory / "keys" / "publisher.pub").read_text())


@pytest.mark.parametrize("lang", ["python", "c"])
def test_a_new_connector_passes_its_tests_and_is_released_at_once(aileron: Command, tmp_path: Path, lang: str) -> None:
    """The connector is built, tested in the real jail and released; an install accepts the archives from that publisher."""
    directory = tmp_path / "things"
    assert made(aileron, directory, "--lang", lang, *OPS).code == 0
    if lang == "c":
        compiled("connector")  # this skips the test if there is no compiler
        # Use the environment of an author's make, without the job server of a make that runs these tests.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        built = subprocess.run(["make", "-C", directory], capture_output=True, text=True, timeout=DEADLINE_S, env=own)
        assert (built.returncode, built.stderr) == (0, "")
    tried = aileron("connector", "test", str(directory))
    out = tmp_path / "dist"
    released = aileron(
        "connector",
        "release",
        "--version",
        "0.1.0",
        str(directory),
        "--key",
        str(tmp_path / "things.signing-key"),
        "-o",
        str(out),
    )

    assert (tried.code, "FAILED" in tried.out) == (0, False), tried
    assert all(tried.out.count(f"{op}: ") >= 2 for op in OPERATIONS)
    assert (released.code, "keys/publisher.pub is missing" in released.err) == (0, False), released
    trust = Trust(keyring=Keyring().trusting(Authority.parse(NAME), published_key(directory)), require_signature=True)
    connector = connector_of(
        (out / "v0.1.0" / "aileron.tar.gz").read_bytes(), trust, wanted=ArtifactRequest.parse(f"{NAME}@0.1.0")
    )
    released_actions = {}
    for name in (op.replace("_", "-") for op in OPERATIONS):
        wanted = ArtifactRequest.parse(f"{NAME}/actions/{name}@0.1.0")
        archive = (out / "actions" / name / "v0.1.0" / "aileron.tar.gz").read_bytes()
        released_actions[name] = action_of(archive, trust, wanted=wanted, parse=parse_action).action
    every = released_actions.values()
    assert {pin.hash for action in every for pin in action.connectors} == {connector.pin.hash}
    assert [action.steps[0].op for action in every] == [*OPERATIONS]
    assert [action.steps[0].effect for action in every] == ["read", "read", "send", "change", "delete", None]
    assert [action.approval.required for action in every] == [False, False, True, True, True, True]
    assert (deleting := released_actions["delete-note"]).preview is not None
    assert (deleting.preview.op, deleting.summary) == ("read_note", "Delete note {text}")


@pytest.mark.parametrize("lang", ["python", "c"])
def test_a_new_connector_has_no_example_names_left(aileron: Command, tmp_path: Path, lang: str) -> None:
    """The author's operations name everything; without --op, the same files speak of things."""
    assert made(aileron, tmp_path / "notes", "--lang", lang, *OPS, name="github://acme/notes").code == 0
    host = ("--host", "localhost:8765")
    assert made(aileron, tmp_path / "b", "--lang", lang, *host, name="github://acme/notes").code == 0

    def left_in(directory: Path) -> set[str]:
        texts = [path.read_text() for path in directory.rglob("*") if path.is_file()]
        return {word for text in texts for word in re.findall(r"\w+[_-]things?\b|/things?\b|%%[a-z]+%%", text)}

    assert left_in(tmp_path / "notes") == set()
    assert {"list_things", "list-things", "/things"} <= left_in(tmp_path / "b")
    assert 'hosts = ["localhost:8765"]' in (tmp_path / "b" / "manifest.toml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--op", "import"), "'import' cannot be a function name"),
        (("--op", "http"), "'http' cannot be a function name"),
        (("--op", "Send-Mail"), "use a lower-case letter"),
        (("--op", "cancel_action"), "is the name of an Aileron tool"),
        (("--op", "a", "--op", "b", "--op", "a"), "--op a is given twice"),
        (("--host", "api.example.com"), "has no port"),
    ],
)
def test_connector_new_refuses_an_invalid_operation_or_host(
    aileron: Command, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    """The command refuses before it creates anything, a key above all."""
    said = made(aileron, tmp_path / "x", *words)

    assert (said.code, told in said.err, list(tmp_path.iterdir())) == (2, True, []), said


def test_the_generated_suite_lists_the_actions_in_the_repository(aileron: Command, tmp_path: Path) -> None:
    """The file has a name, a description and the actions, and no other key; this holds for each language."""
    for lang in ("python", "c"):
        directory = tmp_path / lang
        assert made(aileron, directory, "--lang", lang).code == 0
        suite = tomllib.loads((directory / "suite.toml").read_text())

        assert set(suite) == {"name", "description", "actions"}
        there = sorted(str(path.parent.relative_to(directory)) for path in directory.glob("actions/*/action.md"))
        assert sorted(suite["actions"]) == there


def test_the_generated_pytest_tests_of_a_new_connector_pass(aileron: Command, tmp_path: Path) -> None:
    """The tests run as an author runs them, in an ordinary process in the directory."""
    directory = tmp_path / "things"
    assert made(aileron, directory).code == 0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=DEADLINE_S)

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_signing_key_is_outside_the_repository_and_readable_by_its_owner_only(
    aileron: Command, tmp_path: Path
) -> None:
    """The umask makes no difference. The public half is published; the command names the private key's file, but not the key."""
    before = os.umask(0)
    try:
        said = made(aileron, tmp_path / "things")
    finally:
        os.umask(before)
    key = tmp_path / "things.signing-key"
    signing_key = SigningKey.parse(Secret(key.read_bytes()))
    published = b"".join(path.read_bytes() for path in (tmp_path / "things").rglob("*") if path.is_file())

    assert key.stat().st_mode & 0o777 == 0o600
    assert signing_key.public == published_key(tmp_path / "things")
    assert (str(key) in said.err, "AILERON_SIGNING_KEY" in said.err) == (True, True)
    secret = key.read_text().splitlines()[1]
    assert secret not in said.out + said.err
    assert secret.encode() not in published
    assert b"PRIVATE" not in published


def test_connector_new_overwrites_nothing_and_leaves_no_partial_result(aileron: Command, tmp_path: Path) -> None:
    """Existing directories and keys stay; if the directory cannot be created, no key remains."""
    (tmp_path / "there").mkdir()
    (tmp_path / "things.signing-key").write_text("the only copy")
    (tmp_path / "file").write_text("")
    refused = [
        made(aileron, tmp_path / "there"),
        made(aileron, tmp_path / "things"),
        made(aileron, tmp_path / "file" / "x"),
    ]

    assert [said.code for said in refused] == [2, 2, 2]
    assert (tmp_path / "things.signing-key").read_text() == "the only copy"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there", "things.signing-key"]
    stopped = made(aileron, tmp_path / "file" / "x", "--key", str(tmp_path / "gone"))
    assert (stopped.code, (tmp_path / "gone").exists()) == (2, False)
    beside = made(aileron, tmp_path / "nowhere" / "x", "--key", str(tmp_path / "new-key"))
    assert (beside.code, (tmp_path / "new-key").exists()) == (0, True)


def test_connector_new_can_reuse_a_publishers_signing_key(aileron: Command, tmp_path: Path) -> None:
    """The option --key names the file, which must be private to its owner and outside the repository."""
    key = tmp_path / "my-key"
    key.write_text(SigningKey(Secret(b"m" * 32)).to_pem().reveal().decode())
    key.chmod(0o644)
    open_key = made(aileron, tmp_path / "a", "--key", str(key))
    key.chmod(0o600)
    used = made(aileron, tmp_path / "a", "--key", str(key))
    inside = made(aileron, tmp_path / "b", "--key", str(tmp_path / "b" / "key"))

    assert (open_key.code, f"chmod 600 {key}" in open_key.err) == (2, True)
    assert used.code == 0, used
    assert published_key(tmp_path / "a") == SigningKey(Secret(b"m" * 32)).public
    assert (inside.code, "inside the repository" in inside.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("things", "fix: aileron connector new github://OWNER/things"),
        ("github://acme", "names no repository"),
        ("svn://acme/things", "no known scheme"),
        ("github://acme/things/connectors/a", "fix: aileron connector new github://acme/things"),
        ("github://acme/../x", "path segment"),
    ],
)
def test_connector_new_refuses_a_name_that_is_no_repository(
    aileron: Command, tmp_path: Path, name: str, told: str
) -> None:
    """The error suggests the name that was probably meant, and nothing is created."""
    said = made(aileron, tmp_path / "x", name=name)

    assert (said.code, told in said.err) == (2, True), said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("scheme", "says"), [("gitlab", "CI_COMMIT_TAG"), ("hub", "aileron hub build")])
def test_a_repository_outside_github_gets_no_github_workflow(
    aileron: Command, tmp_path: Path, scheme: str, says: str
) -> None:
    """The README says what to do there."""
    said = made(aileron, tmp_path / "x", "--json", name=f"{scheme}://acme/connector-x").exits(0)
    assert ".gitignore" in said.json["files"]
    assert ".github/workflows/release.yml" not in said.json["files"]
    assert says in (tmp_path / "x" / "README.md").read_text()
    assert "%%" not in "".join(path.read_text() for path in (tmp_path / "x").rglob("*") if path.is_file())


def test_every_marker_in_the_generated_files_is_replaced(aileron: Command, tmp_path: Path) -> None:
    """A key's file name may look like a marker and is still only a name."""
    made(aileron, tmp_path / "x", "--key", str(tmp_path / "%%key%% $(x)"))
    texts = {path.name: path.read_text() for path in (tmp_path / "x").rglob("*") if path.is_file()}

    assert f'name = "{NAME}"' in texts["manifest.toml"]
    assert "< '%%key%% $(x)'" in texts["README.md"]
    assert [name for name, text in texts.items() if re.search("%%[a-z]", text)] == ["README.md"]


GH = """\
#!/bin/sh
# Stands for GitHub's own tool: one release is there already, the others are made.
[ "$2" = view ] && { [ "$3" = actions/add-thing/v0.1.0 ]; exit; }
echo "$@" >> "$GH_LOG"
"""


@pytest.mark.parametrize(("version", "kind"), [("0.1.0", "--latest"), ("0.1.0-rc.1", "--prerelease")])
def test_the_release_workflow_publishes_each_archive_at_its_own_tag(
    aileron: Command, tmp_path: Path, version: str, kind: str
) -> None:
    """The connector comes first and keeps "latest"; an existing release stays. The script is the workflow's own."""
    made(aileron, tmp_path / "x")
    workflow = (tmp_path / "x" / ".github" / "workflows" / "release.yml").read_text()
    out = tmp_path / "x" / "dist"
    aileron("connector", "release", "--version", version, str(tmp_path / "x"), "-o", str(out))
    script = re.search(r"GH_TOKEN.*?run: \|\n(.*)", workflow, re.DOTALL)
    assert script
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "GH_LOG": str(tmp_path / "log"),
        "GITHUB_SHA": "c0ffee",
        "GITHUB_REF_NAME": f"v{version}",
    }
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script[1]]
    subprocess.run(words, cwd=tmp_path / "x", env=environment, check=True, timeout=DEADLINE_S)

    def call(tag: str, how: str) -> str:
        return f"release create {tag} dist/{tag}/aileron.tar.gz --target c0ffee --title {tag} --notes v{version} {how}"

    expected = [call(f"v{version}", kind), call(f"actions/list-things/v{version}", "--prerelease")]
    if version != "0.1.0":
        expected.insert(1, call(f"actions/add-thing/v{version}", "--prerelease"))
    lines = (tmp_path / "log").read_text().splitlines()
    assert (lines[0], sorted(lines)) == (expected[0], sorted(expected))
    assert 'aileron connector release --version "${GITHUB_REF_NAME#v}"' in workflow
    assert "AILERON_SIGNING_KEY: ${{ secrets.AILERON_SIGNING_KEY }}" in workflow


def test_a_release_can_be_installed_only_after_its_key_is_trusted(tmp_path: Path) -> None:
    """A real daemon refuses the release without a trusted key and with another trusted key, and verifies it then."""
    with daemon_home() as home:
        aileron = Command(home.path)
        directory, out = tmp_path / "things", tmp_path / "dist"
        made(aileron, directory)
        words = ("connector", "release", "--version", "0.1.0", str(directory), "-o", str(out))
        assert aileron(*words, "--key", str(tmp_path / "things.signing-key")).code == 0
        archive = str(out / "v0.1.0" / "aileron.tar.gz")
        (tmp_path / "other.pub").write_text(SigningKey(Secret(b"x" * 32)).public.to_pem())

        refused = aileron("connector", "install", archive, "--yes")
        assert aileron("keyring", "trust", NAME, "--key", str(tmp_path / "other.pub"), "--yes").code == 0
        others = aileron("connector", "install", archive, "--yes")
        assert aileron("keyring", "trust", NAME, "--key", str(directory / "keys" / "publisher.pub"), "--yes").code == 0
        installed = aileron("connector", "install", archive, "--yes")

    assert (refused.code, others.code, installed.code) == (9, 9, 0), (refused, others, installed)
    assert published_key(directory).fingerprint in installed.err
