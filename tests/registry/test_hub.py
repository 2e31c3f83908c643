"""A Hub built from a release: its files, the refusals with their reasons, and no file written after a refusal."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.secret import Secret
from aileron.registry.artifact import ArtifactRequest, Trust, connector_of
from aileron.registry.hub import Done, build_site
from aileron.registry.hub_index import parse_index
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import pack, unpack
from tests.support.hub import CONNECTOR, KEY, OTHER, SEND, Release, connector_archive
from tests.support.shaped import shaped

PIN = "sha256:" + "ab" * 32


def built(release: Release, site: Path, but: Sequence[str] = ()) -> Done:
    """Build the site from the release without some of its files, and return the result."""
    for name in but:
        (release.path / name).unlink()
    return build_site(release.path, site, parse_action)


def wrong(release: Release, site: Path) -> dict[str, str]:
    """Return the refusals by the release's file. Check that the build wrote no file."""
    before = files_in(site)
    with pytest.raises(AileronError) as caught:
        built(release, site)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert files_in(site) == before
    found = shaped(caught.value.failure.details["problems"])
    return {
        os.path.relpath(problem["file"], release.path).removesuffix("/aileron.tar.gz"): problem["reason"]
        for problem in found
    }


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Return an empty release."""
    return Release(tmp_path / "out")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return the path where a Hub will be."""
    return tmp_path / "site"


# What comes out


def test_a_built_site_has_the_files_that_a_client_of_a_hub_reads(release: Release, site: Path) -> None:
    """Each archive has its place with its document beside it; the versions are in SemVer's order; key and index are there."""
    release.key()
    pin = release.connector(version="1.10.0", signed_by=KEY)
    release.connector(version="1.9.0", signed_by=KEY)
    release.connector(version="2.0.0-rc.1")
    text = release.action(needs=(CONNECTOR, "1.10.0", pin), signed_by=KEY)

    done = built(release, site)

    assert done == Done(artifacts=2, versions=4, new_versions=4, written=12)
    assert json.loads((site / "acme/mail/versions.json").read_text()) == ["1.9.0", "1.10.0", "2.0.0-rc.1"]
    assert (site / "acme/mail/actions/send-email/1.0.0/action.md").read_text() == text
    archive = (site / "acme/mail/1.10.0/aileron.tar.gz").read_bytes()
    assert (site / "acme/mail/1.10.0/manifest.toml").read_bytes() == unpack(archive)["manifest.toml"]
    assert (site / "acme/mail/keys/publisher.pub").read_text() == KEY.public.to_pem()
    trust = Trust(keyring=Keyring().trusting(Authority.parse("hub://acme/mail"), KEY.public))
    assert connector_of(archive, trust, wanted=ArtifactRequest.parse(f"{CONNECTOR}@1.10.0")).pin.hash == pin
    mail, send = parse_index((site / "index.json").read_bytes()).entries
    assert (mail.name, mail.kind, mail.version, mail.published.hash) == (CONNECTOR, "connector", "1.10.0", pin)
    assert [(published.version, published.signed_by) for published in mail.versions] == [
        ("1.9.0", KEY.public.fingerprint),
        ("1.10.0", KEY.public.fingerprint),
        ("2.0.0-rc.1", None),
    ]
    assert (mail.about.publisher, mail.about.hosts, mail.about.intents) == (
        "Acme Mail",
        ("mail.example.com:443",),
        ("send_email", "list_folders"),
    )
    assert mail.about.credential is not None
    assert (mail.about.credential.kind, mail.about.credential.scope) == ("api_key", "Send mail as you")
    assert (send.name, send.kind, send.about.intents) == (SEND, "action", ("send an email",))
    assert send.about.description == "Writes a letter and sends it at once."
    assert send.about.requires == (f"{CONNECTOR}@1.10.0",)
    assert send.published.hash == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_the_order_of_the_archives_does_not_change_the_bytes(tmp_path: Path) -> None:
    """The archives are added all at once, or one by one in every order."""
    archives = [connector_archive(tmp_path / "source", version=version)[0] for version in ("1.0.0", "1.1.0", "1.1.0+b")]
    seen = set()
    for number, order in enumerate(itertools.permutations(archives)):
        together, one_by_one = tmp_path / f"site-{number}", tmp_path / f"steps-{number}"
        release = Release(tmp_path / f"out-{number}")
        for step, archive in enumerate(order):
            release.put(archive)
            single = Release(tmp_path / f"out-{number}-{step}")
            single.put(archive)
            built(single, one_by_one)
        built(release, together)
        seen |= {
            json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in files_in(folder).items()})
            for folder in (together, one_by_one)
        }

    assert len(seen) == 1


def test_building_again_changes_no_file(release: Release, site: Path) -> None:
    """Even the modification times stay. Files of others stay, and damaged files are repaired."""
    release.key()
    release.connector(signed_by=KEY)
    built(release, site)
    (site / "robots.txt").write_text("User-agent: *")
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}

    assert built(release, site) == Done(artifacts=1, versions=1, new_versions=0, written=0)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    (site / "index.json").write_text("{}")
    (site / "acme/mail/1.0.0/manifest.toml").unlink()
    assert built(Release(site.parent / "nothing"), site).written == 2
    assert build_site(site, site, parse_action) == Done(1, 1, 0, 0)


def test_everybody_can_read_a_built_site_but_only_its_owner_can_write_it(release: Release, site: Path) -> None:
    """A file server is another user, and the umask may be strict."""
    before = os.umask(0o077)
    try:
        release.connector()
        built(release, site)
    finally:
        os.umask(before)

    modes = {path.stat().st_mode & 0o777 for path in site.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in (site, *site.rglob("*")) if path.is_dir()}
    assert (modes, folders) == ({0o644}, {0o755})


def test_the_index_of_a_hub_is_written_after_all_other_files(release: Release, site: Path) -> None:
    """An index never names a file that could not be written; the next build completes the work."""
    release.connector(version="1.0.0")
    built(release, site)
    old = (site / "index.json").read_bytes()
    release.connector(version="1.1.0")
    (site / "acme/mail/1.1.0").symlink_to(site.parent)  # as if somebody had led it elsewhere

    problems = wrong(release, site)

    assert "symbolic links are not followed" in problems[os.path.relpath(site / "acme/mail/1.1.0", release.path)]
    (site / "acme/mail/1.1.0").unlink()
    (site / "acme/mail/1.1.0").write_text("a file in the place of a folder")
    with pytest.raises(AileronError, match=r"cannot be written|not what it should be"):
        built(release, site)
    assert (site / "index.json").read_bytes() == old
    (site / "acme/mail/1.1.0").unlink()
    assert built(release, site).new_versions == 1
    assert parse_index((site / "index.json").read_bytes()).entries[0].version == "1.1.0"


def test_two_builds_of_one_site_do_not_run_at_once(release: Release, site: Path) -> None:
    """The second fails with `busy`, and works once the first is done."""
    release.connector()
    site.mkdir()
    other = os.open(site, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AileronError) as caught:
            built(release, site)
    finally:
        os.close(other)

    assert (caught.value.failure.failure_class, files_in(site)) == (FailureClass.BUSY, {})
    assert built(release, site).new_versions == 1


def test_a_build_does_not_touch_a_site_that_another_build_made_meanwhile(release: Release, site: Path) -> None:
    """The other build writes the site between this one's check and its writing."""
    release.action(needs=("github://acme/mail", "1.0.0", PIN))

    def meanwhile(text: str, *, file: str, allow_placeholder: bool = False) -> ActionFile:
        site.mkdir(exist_ok=True)
        (site / "index.json").write_text("of the other")
        return parse_action(text, file=file)

    with pytest.raises(AileronError) as caught:
        build_site(release.path, site, meanwhile)

    assert caught.value.failure.failure_class is FailureClass.BUSY
    assert files_in(site) == {"index.json": b"of the other"}
    assert built(release, site).new_versions == 1


# What is refused


Edit = Callable[[str], str]


def replacing(old: str, new: str) -> Edit:
    """Return an edit that replaces `old` in a manifest."""

    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    return edit


@pytest.mark.abuse_case("B13")
@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (replacing("hub://acme", "github://acme"), "is not a name of a Hub"),
        (replacing('"1.0.0"', '"0.0.0-dev"'), "placeholder of unreleased sources"),
        (replacing('"1.0.0"', '"v1.0.0"'), "is not a SemVer version"),
        (replacing('"1.0.0"', '"1.0.0-' + "a" * 100 + '"'), "at most 100"),
        (replacing("acme/mail", "acme/" + "m" * 100 + "/" + "n" * 100), "at most 200"),
        (replacing('"mail.example.com:443"', '"bound-at-build"'), "hosts is the placeholder"),
        (replacing('imports = ["http", "log"]', 'imports = ["log"]'), "the hosts would not be reachable"),
        (replacing("[connector]", "[connector]\nflavour = 1"), "unknown key 'flavour'"),
        (replacing("Acme Mail", "Acme\\u202eliaM"), "RIGHT-TO-LEFT OVERRIDE"),
        (replacing("Acme Mail", "x" * 301), "301 characters"),
        (replacing("[connector]", f'[connector]\nprovenance_hash = "{PIN}"'), "contradicts itself"),
        (replacing("[connector]", '[connector]\nprovenance_hash = "sha256:bound-at-release"'), "64 lower-case hex"),
        (replacing("acme/mail", "acme/mail/1.0.0"), "is where a version of hub://acme/mail would be stored"),
        (replacing("acme/mail", "acme/mail/keys/x"), "is reserved for the keys"),
        (replacing("acme/mail", "acme/mail/Keys"), "is reserved for the keys"),
        (replacing("acme/mail", "acme/mail/Versions.json"), "is reserved for a file that every Hub has"),
        (replacing("acme/mail", "index.json/mail"), "is reserved for a file that every Hub has"),
    ],
)
def test_a_manifest_that_a_hub_cannot_serve_is_refused(release: Release, site: Path, edit: Edit, told: str) -> None:
    """The message names file and reason; the unchanged manifest is accepted."""
    release.connector(edit=edit)
    assert told in wrong(release, site)["0"]

    (release.path / "0/aileron.tar.gz").unlink()
    release.connector()
    assert built(release, site).new_versions == 1


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (replacing(f'source = "{SEND}@1.0.0"\n', ""), "does not say where it is published"),
        (
            replacing(f'source = "{SEND}@1.0.0"', f'source = "{SEND}@1.0.1"'),
            "in version 1.0.0, which is not what you requested",
        ),
        (
            replacing(f'source = "{SEND}@', 'source = "hub://acme/mail/actions/other@'),
            "describes itself as the action 'send-email'",
        ),
        (replacing(f'source = "{SEND}@', 'source = "gitlab://acme/mail/send-email@'), "is not a name of a Hub"),
        (replacing(f'hash = "{PIN}"', 'hash = "sha256:bound-at-release"'), "hash is the placeholder"),
        (replacing("sends it at once", "x\u202ey"), "U+202E"),
    ],
)
def test_an_action_that_a_hub_cannot_serve_is_refused(release: Release, site: Path, edit: Edit, told: str) -> None:
    """The message names file and reason; the unchanged action is accepted."""
    needs = ("github://acme/mail", "1.0.0", PIN)
    release.action(needs=needs, edit=edit)
    assert told in wrong(release, site)["0"]

    (release.path / "0/aileron.tar.gz").unlink()
    release.action(needs=needs)
    assert built(release, site).new_versions == 1


def test_an_action_needs_its_connectors_in_the_hub_and_a_unique_tool_name(release: Release, site: Path) -> None:
    """A required connector of a Hub must be in this one with that pin. Two actions of a repository may not share a tool name."""
    here = (CONNECTOR, "1.0.0", release.connector())
    release.action(needs=(CONNECTOR, "1.1.0", here[2]), at="missing")
    release.action(f"{SEND}-2", needs=(CONNECTOR, "1.0.0", PIN), at="other")
    release.action("hub://acme/mail/actions/send_email", needs=here, at="tool")
    release.action("hub://acme/mail/list-pending", needs=here, at="reserved")
    release.action("hub://other/mail/send-email", needs=here, at="good")

    problems = wrong(release, site)

    assert set(problems) == {"missing", "other", "tool", "reserved"}
    assert f"needs the connector {CONNECTOR}@1.1.0, which is missing" in problems["missing"]
    assert f"but the one here is {here[2]}" in problems["other"]
    assert "have the same tool name, 'send_email'" in problems["tool"]
    assert "is the name of an Aileron tool" in problems["reserved"]


def test_a_signature_must_be_by_the_published_key_of_its_repository(release: Release, site: Path) -> None:
    """An archive signed without a published key, or by another key, is refused. An unsigned archive is taken as unsigned."""
    release.key()
    release.connector(version="1.0.0", signed_by=KEY, at="good")
    release.connector(version="1.1.0", at="unsigned")
    release.connector(version="1.2.0", signed_by=OTHER, at="other")
    release.connector("hub://acme/chat", signed_by=KEY, at="keyless")
    archive, _ = connector_archive(site.parent / "s", version="1.3.0", signed_by=KEY)
    release.put(pack({**unpack(archive), "signature.sig": b"short"}), "short")

    problems = wrong(release, site)

    assert set(problems) == {"other", "keyless", "short"}
    assert problems["other"] == f"it is not signed with the key of {CONNECTOR}, {KEY.public.fingerprint}"
    assert "hub://acme/chat publishes no key: put the key in acme/chat/keys/publisher.pub" in problems["keyless"]
    for name in problems:
        (release.path / name / "aileron.tar.gz").unlink()
    built(release, site)
    (entry,) = parse_index((site / "index.json").read_bytes()).entries
    assert [published.signed_by for published in entry.versions] == [KEY.public.fingerprint, None]


@pytest.mark.abuse_case("B13")
def test_a_key_is_replaced_only_with_the_former_key_beside_it(tmp_path: Path, site: Path) -> None:
    """Otherwise whoever writes one file could speak for a publisher. Old signatures stay; new archives need the new key."""
    first, stranger, rotated, late = (Release(tmp_path / name) for name in ("first", "stranger", "rotated", "late"))
    first.key(KEY.public)
    first.connector(signed_by=KEY)
    built(first, site)
    stranger.key(OTHER.public)
    assert "publishes another key already" in wrong(stranger, site)["acme/mail/keys/publisher.pub"]

    rotated.key(OTHER.public, former=[KEY.public])
    rotated.connector(version="1.1.0", signed_by=OTHER)
    built(rotated, site)

    (entry,) = parse_index((site / "index.json").read_bytes()).entries
    assert [published.signed_by for published in entry.versions] == [KEY.public.fingerprint, OTHER.public.fingerprint]
    assert (site / "acme/mail/keys/publisher.pub").read_text() == OTHER.public.to_pem()
    late.connector(version="1.2.0", signed_by=KEY)
    assert f"is not signed with the key of {CONNECTOR}, {OTHER.public.fingerprint}" in wrong(late, site)["0"]
    assert built(first, site, but=["acme/mail/keys/publisher.pub"]).written == 0
    third = SigningKey(Secret(b"t" * 32))
    again = Release(tmp_path / "again")
    again.key(third.public, former=[OTHER.public])
    again.connector(version="1.2.0", signed_by=third)
    assert built(again, site).versions == 3  # of three keys


def test_an_invalid_or_misplaced_key_is_refused(release: Release, site: Path) -> None:
    """A private key is not quoted."""
    release.connector()
    for place, text in (
        ("acme/mail", KEY.to_pem().reveal().decode()),
        ("acme/chat", "no key"),
        ("acme", KEY.public.to_pem()),
        (".", KEY.public.to_pem()),
        ("acme/mail/actions", KEY.public.to_pem()),
    ):
        folder = release.path / place / "keys"
        folder.mkdir(parents=True)
        (folder / "publisher.pub").write_text(text)

    problems = wrong(release, site)

    assert "it is a private key" in problems["acme/mail/keys/publisher.pub"]
    assert "it is not an Ed25519 public key" in problems["acme/chat/keys/publisher.pub"]
    assert KEY.to_pem().reveal().decode().splitlines()[1] not in json.dumps(problems)
    for place in ("acme/keys/publisher.pub", "keys/publisher.pub", "acme/mail/actions/keys/publisher.pub"):
        assert "keys belong in OWNER/REPOSITORY/keys/publisher.pub" in problems[place]


@pytest.mark.abuse_case("B13")
def test_a_published_version_never_changes(tmp_path: Path, release: Release, site: Path) -> None:
    """Other bytes for an existing version, or two archives of one version, are refused. The same bytes are no second version."""
    release.connector(at="a")
    release.connector(at="b")
    assert built(release, site).new_versions == 1
    changed = Release(tmp_path / "changed")
    changed.connector(edit=replacing("Acme Mail", "Acme"))
    twice = Release(tmp_path / "twice")
    twice.connector(version="1.1.0", at="a")
    twice.connector(version="1.1.0", at="b", edit=replacing("Acme Mail", "Acme"))

    assert "is already published" in wrong(changed, site)["0"]
    assert "use a new version" in wrong(changed, site)["0"]
    assert f"{CONNECTOR}@1.1.0 is also in" in wrong(twice, site)["b"]


@pytest.mark.abuse_case("B13")
def test_an_archive_must_match_the_tag_or_hub_path_of_its_folder(release: Release, site: Path) -> None:
    """The place is a folder named after a tag, or the exact path in a Hub. Any other folder says nothing."""
    release.connector(version="1.0.0", at="connectors/mail/v1.0.0")
    release.connector(version="1.1.0", at="acme/mail/1.1.0")
    release.connector(version="1.2.0", at="whatever/1.9.9")
    assert built(release, site).new_versions == 3

    release.connector(version="2.0.0", at="connectors/mail/v2.0.1")
    release.connector(version="2.1.0", at="acme/mail/2.1.1")
    release.connector(version="2.2.0", at="other/mail/2.2.0")
    problems = wrong(release, site)
    assert set(problems) == {"connectors/mail/v2.0.1", "acme/mail/2.1.1", "other/mail/2.2.0"}
    assert "which belongs in acme/mail/2.2.0/" in problems["other/mail/2.2.0"]


def test_a_build_checks_the_archives_that_are_already_in_the_site(tmp_path: Path, release: Release, site: Path) -> None:
    """Somebody may have moved, exchanged or copied them since the last build."""
    release.key()
    release.connector(signed_by=KEY)
    release.connector(version="1.1.0", signed_by=KEY)
    built(release, site)
    nothing, (good, _) = Release(tmp_path / "nothing"), connector_archive(tmp_path / "s", signed_by=OTHER)
    (site / "acme/mail/1.0.0/aileron.tar.gz").write_bytes(good)
    shutil.copytree(site / "acme/mail/1.1.0", site / "acme/mail/9.9.9")
    (site / "acme/mail/1.1.0/aileron.tar.gz").rename(site / "acme/aileron.tar.gz")

    problems = {os.path.relpath(nothing.path / name, site): reason for name, reason in wrong(nothing, site).items()}

    assert "is not signed with the key" in problems["acme/mail/1.0.0"]
    for place in ("acme", "acme/mail/9.9.9"):
        assert "which belongs in acme/mail/1.1.0/" in problems[place]


@pytest.mark.abuse_case("B13")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("hub://acme/mail", "1.0.0"), ("hub://acme/Mail", "1.0.0")),
        (("hub://acme/mail", "1.0.0"), ("hub://ACME/other", "1.0.0")),
        (("hub://acme/mail/a", "1.0.0"), ("hub://acme/mail/A/b", "1.0.0")),
        (("hub://acme/mail", "1.0.0-rc"), ("hub://acme/mail", "1.0.0-RC")),
    ],
)
def test_names_that_differ_only_in_case_are_refused(
    release: Release, site: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """Any part of the place counts: some file systems see one folder, and most readers one name."""
    release.connector(*first, at="a")
    built(release, site)
    release.connector(*second, at="b")

    assert "differ only in upper and lower case" in wrong(release, site)["b"]


def test_a_name_belongs_to_a_connector_or_an_action_and_not_to_both(release: Release, site: Path) -> None:
    """A name cannot be a connector's in one version and an action's in the next."""
    pin = release.connector(SEND, at="a")
    release.action(SEND, "1.1.0", needs=(SEND, "1.0.0", pin), at="b")

    assert f"{SEND} is the name of a connector in" in wrong(release, site)["b"]


def test_all_problems_are_reported_at_once(release: Release, site: Path) -> None:
    """The problems are in the order of the files, and include files that are no archives."""
    release.connector(at="good")
    release.put(b"not gzip", "garbage")
    release.put(b"", "nothing")
    (archive, _) = connector_archive(release.path.parent / "s")
    release.put(archive[:-5], "cut")
    release.put(pack({"connector": b"", "readme": b""}), "strange")
    (release.path / "linked").mkdir()
    (release.path / "linked/aileron.tar.gz").symlink_to(release.path / "good/aileron.tar.gz")
    (release.path / "folder").symlink_to(release.path / "good")

    problems = wrong(release, site)

    assert list(problems) == ["cut", "folder", "garbage", "linked", "nothing", "strange"]
    assert all("archive" in problems[name] for name in ("cut", "garbage", "nothing", "strange"))
    assert all("symbolic link" in problems[name] for name in ("folder", "linked"))
    assert not site.exists()


def test_a_site_may_lie_inside_its_release_folder_but_a_release_may_not_lie_inside_the_site(release: Release) -> None:
    """The site is left out of the release, and the release is not served."""
    release.connector()
    site = release.path / "site"
    assert built(release, site).new_versions == 1
    assert built(release, site) == Done(1, 1, 0, 0)
    inside = Release(site / "incoming")

    with pytest.raises(AileronError, match="where everything is served"):
        built(inside, site)


def test_a_reader_never_sees_a_version_whose_archive_is_missing(tmp_path: Path, site: Path) -> None:
    """A reader runs while versions are added one by one: each version in the index has a whole archive with that pin."""
    release = Release(tmp_path / "out")
    release.connector(version="1.0.0")
    built(release, site)
    done, seen, missing = threading.Event(), set[str](), list[str]()

    def watch() -> None:
        while not done.is_set():
            (entry,) = parse_index((site / "index.json").read_bytes()).entries
            for published in entry.versions:
                archive = site / "acme/mail" / published.version / "aileron.tar.gz"
                if not archive.exists() or connector_of(archive.read_bytes(), Trust()).pin.hash != published.hash:
                    missing.append(published.version)
            seen.add(entry.version)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        for number in range(1, 20):
            release.connector(version=f"1.0.{number}")
            built(release, site)
    finally:
        done.set()
        watcher.join(timeout=10)

    assert (watcher.is_alive(), missing) == (False, [])
    assert len(seen) > 1, "nobody read while it was built"


def test_a_missing_release_folder_is_reported(release: Release, site: Path) -> None:
    """An empty folder makes an empty Hub."""
    with pytest.raises(AileronError, match="no such directory"):
        build_site(release.path / "none", site, parse_action)
    assert built(release, site) == Done(0, 0, 0, 1)
    assert parse_index((site / "index.json").read_bytes()).entries == ()
