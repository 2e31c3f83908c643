"""Building an artifact from sources: the files that go in, and the same bytes for the same sources."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.registry.connector_build import Application, build
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.program import check_program, program_kind
from aileron.registry.tarball import unpack
from tests.registry.conftest import refusal_as

CAL, MAIL = HostPort("cal.example.com", 443), HostPort("mail.example.com", 8443)


def refusal(directory: Path, *hosts: HostPort) -> str:
    """Return the message with which the directory is refused."""
    return refusal_as(FailureClass.INVALID_REQUEST, build, directory, hosts)


def names(directory: Path) -> list[str]:
    """Return the names in the built zip."""
    (directory.parent / "built.zip").write_bytes(build(directory).connector)
    with zipfile.ZipFile(directory.parent / "built.zip") as archive:
        return archive.namelist()


def test_a_python_directory_becomes_a_zip_that_runs(source: Path, tmp_path: Path) -> None:
    """connector.py is the program, and finds the modules beside it."""
    built = build(source)
    program = tmp_path / "program"
    program.write_bytes(built.connector)
    ran = subprocess.run([sys.executable, "-I", program], check=True, capture_output=True, text=True)

    assert ran.stdout == "hello from the zip\n"
    assert unpack(built.archive) == {"connector": built.connector, "manifest.toml": built.manifest}
    assert built.manifest == (source / "manifest.toml").read_bytes()
    assert program_kind(built.connector) == "python"


def test_files_that_are_not_part_of_the_program_are_left_out_by_name(source: Path) -> None:
    """Tests, actions, notes and hidden files stay out, so a secret in a dot file is not published. Caches are not listed."""
    for name in ("actions/a/x.py", "tests/test_x.py", "__pycache__/x.py", ".venv/x.py", "parts/__pycache__/y.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    for name in ("README.md", ".env", ".hidden.py", "notes.txt", "parts/.env", "key.pem"):
        (source / name).write_text("secret")

    assert names(source) == ["__main__.py", "parts/__init__.py", "parts/greeting.py"]
    built = build(source)
    assert b"secret" not in built.connector
    assert {entry.path: entry.reason.partition(":")[0] for entry in built.left_out} == {
        ".env": "starts with a dot",
        ".hidden.py": "starts with a dot",
        ".venv/": "starts with a dot",
        "README.md": "not in a package",
        "actions/": "not part of the program",
        "key.pem": "not in a package",
        "notes.txt": "not in a package",
        "parts/.env": "starts with a dot",
        "tests/": "not part of the program",
    }


def put(source: Path, *paths: str) -> None:
    """Write files that contain their own names; Python files are empty."""
    for path in paths:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(path if not path.endswith(".py") else "")


def test_an_installed_package_is_packed_with_all_its_files(source: Path) -> None:
    """Data files, metadata, licences and modules of any name go in. A namespace package has no `__init__.py` of its own."""
    goes_in = [
        "lib/__init__.py",
        "lib/data/table.json",
        "lib/py.typed",
        "lib/tests/__init__.py",
        "lib/actions/go.py",
        "lib-2.0.dist-info/METADATA",
        "lib-2.0.dist-info/entry_points.txt",
        "lib-2.0.dist-info/top_level.txt",
        "lib-2.0.dist-info/LICENSE.txt",
        "lib-2.0.dist-info/licenses/NOTICE",
        "space/part/__init__.py",
        "space/part/cacert.pem",
    ]
    stays_out = {
        "lib/_speed.cpython-311-x86_64-linux-gnu.so": "compiled",
        "lib/libz.so.1": "compiled",
        "lib/old.pyc": "compiled",
        "lib-2.0.dist-info/RECORD": "describes how a package was installed here",
        "lib-2.0.dist-info/direct_url.json": "describes how a package was installed here",
        "bin/lib": "not in a package",
        "space/README": "not in a package",
    }
    put(source, *goes_in, *stays_out)
    built = build(source)

    assert set(goes_in) <= set(names(source))
    assert {entry.path: entry.reason.partition(":")[0] for entry in built.left_out} == stays_out
    assert set(built.data) == {path for path in goes_in if not path.endswith(".py")}


def test_files_beside_a_compiled_program_are_listed_as_left_out(source: Path) -> None:
    """The program is one file, so the modules beside it are not in it."""
    (source / "connector.py").unlink()
    (source / "connector").write_bytes(Path("/bin/echo").read_bytes())
    built = build(source)

    assert [entry.path for entry in built.left_out] == ["parts/__init__.py", "parts/greeting.py"]
    assert {entry.reason for entry in built.left_out} == {"a compiled program is one file"}
    assert built.data == ()


def test_the_list_of_left_out_files_is_bounded(source: Path) -> None:
    """The rest is counted, because the folder may be a whole repository."""
    (source / "pages").mkdir()
    for number in range(1200):
        (source / "pages" / f"{number}.html").touch()
    built = build(source)

    assert (len(built.left_out), built.unnamed) == (1000, 200)


def test_a_file_named_connector_py_is_not_renamed_beside_a_main_file(source: Path) -> None:
    """The build renames no file if there is a `__main__.py`."""
    (source / "__main__.py").write_text("import connector\n")

    assert names(source) == ["__main__.py", "connector.py", "parts/__init__.py", "parts/greeting.py"]


def test_building_the_same_sources_twice_gives_the_same_archive(source: Path, tmp_path: Path) -> None:
    """The clock, the umask, permissions, the order of creation and the folder's name make no difference."""
    first = build(source)
    copy = tmp_path / "elsewhere" / "named-otherwise"
    copy.mkdir(parents=True)
    before = os.umask(0o077)
    try:
        for path in sorted(source.rglob("*"), reverse=True):
            if path.is_file():
                target = copy / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
                target.chmod(0o700)
                os.utime(target, (1, 1))
        second = build(copy)
    finally:
        os.umask(before)

    assert (second.connector, second.manifest, second.archive) == (first.connector, first.manifest, first.archive)
    (copy / "connector.py").write_text("print(1)\n")
    assert build(copy).connector != first.connector


def test_builds_in_different_processes_give_the_same_archive(source: Path) -> None:
    """Another process, with another hash seed and time zone, builds the same archive."""
    script = f"import hashlib, pathlib; from aileron.registry.connector_build import build; print(hashlib.sha256(build(pathlib.Path({str(source)!r})).archive).hexdigest())"  # noqa: E501
    results = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Kolkata"))
    }

    assert len(results) == 1


def test_a_build_contains_no_time_and_no_owner(source: Path) -> None:
    """Every field of gzip, tar and the inner zip that could hold one is constant."""
    built = build(source)
    plain = gzip.decompress(built.archive)
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        members = {(info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) for info in archive}
    with zipfile.ZipFile(io.BytesIO(built.connector)) as program:
        entries = program.infolist()

    assert built.archive[4:8] == bytes(4)  # RFC 1952, MTIME
    assert built.archive[3] == 0  # FLG: no file name, no comment
    assert members == {(0, 0, 0, "", "", 0o644)}
    assert {(entry.date_time, entry.create_system, entry.external_attr >> 16) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), 3, 0o100644)
    }
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)


def test_hosts_of_a_build_replace_the_placeholder_in_the_manifest(
    source: Path, manifest_text: Callable[..., str]
) -> None:
    """Only the placeholder changes, and other hosts give other bytes."""
    unbound = manifest_text(('"mail.example.com:443"', '"bound-at-build"'))
    (source / "manifest.toml").write_text(unbound + "# a comment stays\n")

    assert build(source, [CAL]).manifest.decode() == (
        manifest_text(("mail.example.com:443", "cal.example.com:443")) + "# a comment stays\n"
    )
    assert b'hosts = ["cal.example.com:443", "mail.example.com:8443"]' in build(source, [CAL, MAIL]).manifest
    assert "build it with `aileron connector build DIR --host NAME:PORT`" in refusal(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '0 lines contain "bound-at-build"; --host replaces exactly one'),
        ('# "bound-at-build"\n', "is not the value of [capabilities.network] hosts"),
    ],
)
def test_building_with_hosts_is_refused_if_the_manifest_has_no_placeholder(
    source: Path, text: str, message: str
) -> None:
    """Otherwise the build would silently ignore the requested hosts."""
    (source / "manifest.toml").write_text((source / "manifest.toml").read_text() + text)

    assert message in refusal(source, CAL)


def test_a_placeholder_that_appears_twice_is_refused(source: Path, manifest_text: Callable[..., str]) -> None:
    """Only the author knows which place is meant."""
    unbound = manifest_text(('"mail.example.com:443"', '"bound-at-build"'))
    (source / "manifest.toml").write_text(unbound + '# not "bound-at-build" any more\n')

    assert '2 lines contain "bound-at-build"' in refusal(source, CAL)


SIGNED = """
[capabilities.credential.aws]
region = "bound-at-build"
service = "s3"
"""


def test_the_region_of_a_build_replaces_the_placeholder_in_the_manifest(
    source: Path, manifest_text: Callable[..., str]
) -> None:
    """Hosts and regions have the same placeholder text; each is replaced only in its own key."""
    unbound = manifest_text(('"mail.example.com:443"', '"bound-at-build"'), ("api_key", "aws_sigv4")) + SIGNED
    (source / "manifest.toml").write_text(unbound)
    built = build(source, [CAL], region="eu-central-1").manifest

    assert built.decode() == unbound.replace('["bound-at-build"]', '["cal.example.com:443"]').replace(
        "bound-at-build", "eu-central-1"
    )
    assert 'region = "bound-at-build" is left; add --region REGION' in refusal(source, CAL)
    with pytest.raises(AileronError, match="'a b' is not a name such as"):
        build(source, [CAL], region="a b")
    with pytest.raises(AileronError, match=r"region is the placeholder .* --region REGION"):
        parse_connector_manifest(unbound.replace('["bound-at-build"]', '["a.b:1"]').encode(), file="m")
    (source / "manifest.toml").write_text(built.decode())
    with pytest.raises(AileronError, match="--region binds exactly one"):
        build(source, region="eu-central-1")


@pytest.mark.parametrize(("hint", "has_aws"), [("# region = 'bound-at-build'\n", False), ("", True)])
def test_a_build_needs_a_region_only_if_a_region_key_has_the_placeholder(
    source: Path, manifest_text: Callable[..., str], hint: str, has_aws: bool
) -> None:
    """A comment that shows the placeholder needs no `--region`; a key in an inline table does."""
    text = manifest_text(("api_key", "aws_sigv4")) if has_aws else manifest_text()
    inline = 'aws = { service = "s3", region = "bound-at-build" }\n' if has_aws else ""
    text = text.replace("[capabilities.credential]\n", "[capabilities.credential]\n" + inline)
    (source / "manifest.toml").write_text(hint + text)

    if has_aws:
        assert 'region = "bound-at-build" is left; add --region REGION' in refusal(source)
        assert b'region = "eu-central-1"' in build(source, region="eu-central-1").manifest
    else:
        assert build(source).manifest.startswith(hint.encode())
        with pytest.raises(AileronError, match="--region binds exactly one"):
            build(source, region="eu-central-1")


OAUTH2 = """[capabilities.credential]
kind = "oauth2"
scope = "Send mail"

[capabilities.credential.oauth2]
authorize_url = "https://id.example.com/authorize"
token_url = "https://id.example.com/token"
client_id = "bound-at-release"
client_secret = 'bound-at-release'
scopes = ["mail.send"]
"""
CLIENT_SECRET = "GOCSPX-a\"b\\c'd"


@pytest.fixture
def unreleased(source: Path, manifest_text: Callable[..., str]) -> Path:
    """Return sources whose manifest has placeholders for the publisher's application."""
    text = manifest_text()
    start, end = text.index("[capabilities.credential]"), text.index("[capabilities.runtime]")
    (source / "manifest.toml").write_text(f"{text[:start]}{OAUTH2}\n{text[end:]}")
    return source


def application_refusal(directory: Path, application: Application | None) -> str:
    """Return the message with which the directory is refused."""
    return refusal_as(FailureClass.INVALID_REQUEST, build, directory, (), application)


def test_a_publishers_application_replaces_its_placeholders_in_the_manifest(unreleased: Path) -> None:
    """Each value is bound in its own line, whatever its characters, and nothing else changes. No repr shows the secret."""
    application = Application(client_id="12-ab.apps.example.com", client_secret=Secret(CLIENT_SECRET.encode()))
    before = (unreleased / "manifest.toml").read_text()
    provider = parse_connector_manifest(build(unreleased, (), application).manifest, file="m").oauth2

    assert provider is not None
    assert (provider.client_id, provider.client_secret) == ("12-ab.apps.example.com", CLIENT_SECRET)
    after = build(unreleased, (), application).manifest.decode().splitlines()
    changed = [line for line in after if line not in before.splitlines()]
    assert [line.partition(" ")[0] for line in changed] == ["client_id", "client_secret"]
    assert "GOCSPX" not in repr(application)


@pytest.mark.parametrize(
    ("changed", "client_id", "secret", "message"),
    [
        (("", ""), None, None, "client_id is 'bound-at-release'"),
        (("", ""), "id", None, "client_secret is 'bound-at-release'"),
        (("client_id = ", "# client_id = "), "id", "s", '0 lines say client_id = "bound-at-release"'),
        (("client_secret", "# client_secret"), "id", "s", "--client-secret-file binds exactly one"),
        (("scopes", 'client_id = "bound-at-release"\nscopes'), "id", "s", '2 lines say client_id = "bound-at-release"'),
        (("", ""), "", "s", "the client_id to bind is empty"),
        (("", ""), "a\nb", "s", "the client_id to bind is empty, longer than 512 characters or not printable"),
        (("", ""), "id", "naïve", "the client_secret to bind is empty"),
        (("", ""), "bound-at-release", "s", "client_id is 'bound-at-release'"),
    ],
)
def test_a_build_fails_if_the_publishers_application_cannot_replace_its_placeholders(
    unreleased: Path, changed: tuple[str, str], client_id: str | None, secret: str | None, message: str
) -> None:
    """A placeholder is unbound, missing or duplicated, or a value invalid. The positive control is the test above."""
    path = unreleased / "manifest.toml"
    path.write_text(path.read_text().replace(*changed) if changed[0] else path.read_text())
    given = Secret(secret.encode()) if secret is not None else None
    application = None if client_id is None else Application(client_id=client_id, client_secret=given)

    assert message in application_refusal(unreleased, application)


def test_a_compiled_program_is_packed_unchanged(source: Path) -> None:
    """The program is an ELF file named connector, with no Python beside it."""
    (source / "connector.py").unlink()
    (source / "connector").write_bytes(Path("/bin/true").read_bytes())

    assert build(source).connector == Path("/bin/true").read_bytes()
    assert program_kind(build(source).connector) == "elf"


def test_a_directory_that_is_not_a_connector_is_refused(source: Path, tmp_path: Path) -> None:
    """The message says which part is missing or duplicated."""
    assert "not a directory" in refusal(tmp_path / "nothing")
    (source / "connector").write_bytes(b"\x7fELF\x02")
    assert "connector and connector.py could each be the program" in refusal(source)
    (source / "connector.py").unlink()
    (source / "connector").write_bytes(b"#!/bin/sh\n")
    assert "neither a zip nor a 64-bit ELF program" in refusal(source)
    (source / "connector").unlink()
    assert "no __main__.py, connector.py or compiled connector" in refusal(source)
    (source / "manifest.toml").unlink()
    assert "no manifest.toml" in refusal(source)


def test_symbolic_links_are_refused(source: Path, tmp_path: Path) -> None:
    """A link could bring in a file or folder from outside the directory."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.py").write_text("SECRET = 1\n")
    (source / "vendored").symlink_to(tmp_path / "outside")
    assert "vendored: a symbolic link" in refusal(source)
    (source / "vendored").unlink()
    (source / "x.py").symlink_to(tmp_path / "outside" / "x.py")
    assert "x.py is a symbolic link" in refusal(source)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither a zip nor a 64-bit ELF"),
        (b"\x7fELF\x01" + bytes(60), "neither a zip nor a 64-bit ELF"),
        (b"PK\x03\x04" + bytes(40), "does not end with its directory"),
        (b"PK\x03\x04PK\x05\x06" + bytes(12) + b"\4" + bytes(5), "has no __main__.py"),
        (b"PK\x03\x04PK\x05\x06" + b"\xff" * 16 + b"\0\0", "has 65535 entries"),
        (
            b"PK\x03\x04PK\x01\x02\0\0\xff" + bytes(39) + b"PK\x05\x06\0\0\0\0\1\0\1\0\x2e\0\0\0\4\0\0\0\0\0",
            "cannot be read: zip file version 25.5",
        ),
    ],
)
def test_a_program_is_recognized_by_its_first_and_last_bytes(data: bytes, message: str) -> None:
    """Anything else is refused before it is stored."""
    with pytest.raises(ValueError, match=message):
        check_program(data)


def test_a_zip_followed_by_other_bytes_is_refused(source: Path) -> None:
    """Otherwise bytes of the manifest could be taken for a part of the program."""
    connector = build(source).connector

    assert check_program(connector) == "python"
    for tail in (b"\n", b"# x\n", b"\0" * 22):
        with pytest.raises(ValueError, match="does not end with its directory"):
            check_program(connector + tail)
