"""Tests of what exists in a cell and what does not: real cells, asked from inside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from aileron_sandbox.cell.door import Cell, Ended
from aileron_sandbox.cell.policy import Bind, Overlay
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.cells import DEADLINE_S, ENVIRONMENT, PIPES, outside, policy_of, run, tried

pytestmark = pytest.mark.jail

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="to mount something on the host takes root")


@pytest.fixture
def mounted(tmp_path: Path, folder: Path) -> Iterator[Path]:
    """Yield a directory in the project on which the host has mounted a secret of the person's."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "id").write_text("key", encoding="utf-8")
    place = folder / "inside"
    place.mkdir()
    subprocess.run(["mount", "--bind", secret, place], check=True, timeout=DEADLINE_S)
    yield place
    subprocess.run(["umount", place], check=True, timeout=DEADLINE_S)


def test_the_root_directory_of_a_cell_shows_only_what_its_policy_names(folder: Path) -> None:
    """/sys holds no more than `system` in its devices, /dev only these devices, and home and /tmp are empty."""
    root, sys_, dev, home, tmp = tried(
        policy_of(folder),
        ["listed", "/"],
        ["listed", "/sys/devices"],
        ["listed", "/dev"],
        ["listed", "/home/you"],
        ["listed", "/var"],
    )
    ours = {"dev", "etc", "home", "proc", "run", "sys", "tmp", "usr", "var", "probe.py"}

    assert ours <= set(root)
    assert "boot" not in root
    assert "aileron" not in root
    assert sys_ == ["system"]
    assert dev == sorted("fd full null ptmx pts random shm stderr stdin stdout tty urandom zero".split())
    assert home == []
    assert tmp == ["tmp"]


def test_the_project_is_writable_in_a_cell_and_system_directories_are_not(folder: Path) -> None:
    """Each place gets the same attempt; a bind without `writable` is read-only for every user."""
    shown = folder.parent / "shown"
    shown.mkdir()
    answers = tried(
        policy_of(folder, Bind(str(shown), "/shown")),
        ["write", f"{folder}/new"],
        ["write", "/home/you/new"],
        ["write", "/tmp/new"],
        ["write", "/shown/new"],
        ["write", "/usr/new"],
        ["write", "/new"],
        ["write", "/dev/new"],
        ["open_to_write", "/dev/null"],
    )

    assert answers == ["ok", "ok", "ok", "EROFS", "EROFS", "EROFS", "EROFS", "ok"]
    assert (folder / "new").exists()


def test_files_can_move_between_directories_of_a_project(folder: Path) -> None:
    """Landlock has a separate right for this, LANDLOCK_ACCESS_FS_REFER."""
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    (folder / "a" / "file").touch()

    assert tried(policy_of(folder), ["rename", f"{folder}/a/file", f"{folder}/b/file"]) == ["ok"]


def test_a_single_file_can_be_mounted_read_only_or_writable(folder: Path) -> None:
    """A file is bound to be read, and another one to be written."""
    for name in ("read", "written"):
        (folder.parent / name).write_text(name, encoding="utf-8")
    policy = policy_of(
        folder,
        Bind(str(folder.parent / "read"), "/home/you/.config/read"),
        Bind(str(folder.parent / "written"), "/home/you/written", writable=True),
    )

    answers = tried(
        policy,
        ["read", "/home/you/.config/read"],
        ["write", "/home/you/.config/read"],
        ["write", "/home/you/written"],
    )

    assert answers == ["read", "EROFS", "ok"]
    assert (folder.parent / "written").read_text(encoding="utf-8") == ""


def test_a_masked_path_exists_but_is_empty(folder: Path) -> None:
    """A masked file cannot be read, a masked directory has no entries, and a masked path that does not exist is no error."""
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key").write_text("key", encoding="utf-8")
    (folder / ".env").write_text("key", encoding="utf-8")
    attempts = (
        ["listed", f"{folder}/secrets"],
        ["read", f"{folder}/.env"],
        ["chmod", f"{folder}/.env", 0o644],
        ["write", f"{folder}/secrets/new"],
    )
    policy = policy_of(folder, masked=(f"{folder}/secrets", f"{folder}/.env", f"{folder}/absent"))

    assert tried(policy_of(folder), *attempts[:2]) == [["key"], "key"]
    assert tried(policy, *attempts) == [[], "EACCES", "EROFS", "EROFS"]


def test_masking_a_link_covers_the_link_and_not_its_target(folder: Path) -> None:
    """The link's target stays as it was."""
    (folder / "real").write_text("text", encoding="utf-8")
    (folder / "link").symlink_to("real")

    answers = tried(
        policy_of(folder, masked=(f"{folder}/link",)), ["read", f"{folder}/link"], ["read", f"{folder}/real"]
    )

    assert answers == ["EACCES", "text"]


def test_a_cell_does_not_start_if_a_path_cannot_be_masked(folder: Path) -> None:
    """A folder in the path may have become a link, made by an agent; the mask would then cover another file."""
    (folder / "away").symlink_to("/usr")
    with pytest.raises(JailUnavailable, match=f"masked: {folder}/away/key"):
        Cell.start(policy_of(folder, masked=(f"{folder}/away/key",)), ["true"], ENVIRONMENT, PIPES)


def test_a_file_made_for_the_cell_replaces_a_dangling_link(folder: Path) -> None:
    """/etc/resolv.conf is such a link into /run on some systems."""
    shown = folder.parent / "shown"
    shown.mkdir()
    (shown / "resolv.conf").symlink_to("../run/there/is/none")
    policy = policy_of(
        folder,
        Bind(str(shown), "/shown"),
        files=(("/shown/resolv.conf", b"nameserver none\n"), ("/home/you/.made/file", b"made")),
    )

    answers = tried(
        policy,
        ["read", "/shown/resolv.conf"],
        ["read", "/home/you/.made/file"],
        ["write", "/home/you/.made/file"],
    )

    assert answers == ["nameserver none\n", "made", "EROFS"]


@pytest.mark.parametrize("writable", [False, True])
@needs_root
def test_a_file_system_mounted_inside_a_project_is_not_visible_in_the_cell(
    folder: Path, mounted: Path, *, writable: bool
) -> None:
    """The host has mounted the person's keys in a project; only a bind with `mounts`, or one for that very path, shows them."""
    reads = (["listed", str(mounted)], ["read", f"{mounted}/id"])
    top = Bind(str(folder), "/top", writable=writable)
    shown = Bind(str(folder), "/all", mounts=True)
    own = Bind(str(mounted), "/top/inside")

    hidden = tried(policy_of(folder, top), *reads, ["listed", "/top/inside"], ["write", "/top/inside/new"])
    assert hidden == [[], "ENOENT", [], "EROFS"]
    assert tried(policy_of(folder, shown), ["read", "/all/inside/id"]) == ["key"]
    assert tried(policy_of(folder, top, own), ["read", "/top/inside/id"]) == ["key"]


def test_a_symbolic_link_on_the_path_of_a_mount_is_refused(folder: Path) -> None:
    """The link is in the source, on the way to the target, or below it. The error names the link and the fix."""
    (folder / "real").mkdir()
    (folder / "link").symlink_to("/etc")
    for bind in (
        Bind(str(folder / "link"), "/shown"),
        Bind(str(folder / "link" / "ssl"), "/shown"),
        Bind(str(folder / "real"), f"{folder}/link"),
        Bind(str(folder / "real"), f"{folder}/link/ssl"),
    ):
        with pytest.raises(JailUnavailable, match=str(folder / "link")) as refused:
            Cell.start(policy_of(folder, bind), ["true"], ENVIRONMENT, PIPES)
        assert "symbolic link" in refused.value.fix
    assert tried(policy_of(folder, Bind(str(folder / "real"), "/shown/here")), ["listed", "/shown/here"]) == [[]]


@pytest.mark.parametrize("layer", ["bind", "lower"])
def test_a_link_that_replaced_a_resolved_path_before_the_start_is_refused(folder: Path, layer: str) -> None:
    """The path was already resolved, so the link is newer: another cell with write access above may have made it."""
    shown = folder / "above" / "shown"
    upper, work = folder.parent / "upper", folder.parent / "work"
    for made in (shown, upper, work):
        made.mkdir(parents=True)
    (shown / "file").write_text("the person's", encoding="utf-8")
    secret = folder.parent / "secret" / "shown"
    secret.mkdir(parents=True)
    (secret / "file").write_text("key", encoding="utf-8")
    overlay = Overlay(str(shown), str(upper), str(work), "/shown")
    policy = policy_of(folder, Bind(str(shown), "/shown"), overlay=overlay if layer == "lower" else None)
    if layer == "lower":
        policy = msgspec.structs.replace(
            policy, binds=tuple(bind for bind in policy.binds if bind.source != str(shown))
        )
    before = tried(policy, ["read", "/shown/file"])

    (folder / "above").rename(folder / "aside")
    (folder / "above").symlink_to(secret.parent)

    assert before == ["the person's"]
    with pytest.raises(JailUnavailable, match=f"{shown}: ") as refused:
        Cell.start(policy, ["true"], ENVIRONMENT, PIPES)
    assert "since the path was resolved" in refused.value.fix


def test_no_mount_point_is_created_in_a_bound_folder(folder: Path) -> None:
    """A mount target that is missing in the project is refused, and the project gets no new entry."""
    with pytest.raises(JailUnavailable, match="no place for"):
        Cell.start(policy_of(folder, Bind("/usr", f"{folder}/new")), ["true"], ENVIRONMENT, PIPES)
    assert list(folder.iterdir()) == []


def test_a_missing_source_of_a_bind_mount_is_named_in_the_error(folder: Path) -> None:
    """The error also says what to do about it."""
    with pytest.raises(JailUnavailable, match="/absent") as refused:
        Cell.start(policy_of(folder, Bind("/absent", "/absent")), ["true"], ENVIRONMENT, PIPES)
    assert "leave it out" in refused.value.fix


def test_a_unix_socket_of_the_host_in_a_project_is_hidden_from_the_cell(folder: Path) -> None:
    """The socket's path alone would be enough to connect, even below a read-only bind."""
    path = folder / "daemon.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert outside(["connect_unix", str(path)]) == ["ok"]
        policy = policy_of(folder, Bind(str(folder), "/read"))
        answers = tried(policy, ["connect_unix", str(path)], ["connect_unix", "/read/daemon.sock"])

    assert answers == ["EACCES", "EACCES"]


def test_links_of_a_policy_are_created_and_a_bind_mounted_device_cannot_be_read(folder: Path) -> None:
    """The option nodev applies to bind mounts too."""
    policy = policy_of(folder, Bind("/dev/zero", "/zero"), links=(("/opt/link", "/etc/hostname"),))

    linked, device = tried(policy, ["read", "/opt/link"], ["read", "/zero"])

    assert linked == Path("/etc/hostname").read_text(encoding="utf-8")
    assert device == "EACCES"


def test_an_overlay_keeps_a_cells_changes_out_of_the_project(folder: Path) -> None:
    """The project stays as it is, and changes go to `upper`."""
    (folder / "old").write_text("old", encoding="utf-8")
    upper, work = folder.parent / "upper", folder.parent / "work"
    upper.mkdir()
    work.mkdir()
    policy = policy_of(folder, overlay=Overlay(str(folder), str(upper), str(work), str(folder)))

    answers = tried(policy, ["read", f"{folder}/old"], ["write", f"{folder}/old"], ["write", f"{folder}/new"])

    assert answers == ["old", "ok", "ok"]
    assert (folder / "old").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["old"]
    assert sorted(path.name for path in upper.iterdir()) == ["new", "old"]


_ON_A_MOUNT = """
import sys
from pathlib import Path
from aileron_sandbox.cell.policy import Overlay
from tests.sandbox.cells import policy_of, run
folder, upper, work = map(Path, sys.argv[1:])
(folder / "tool").write_text("#!/bin/sh\\necho ran\\n")
(folder / "tool").chmod(0o755)
policy = policy_of(folder, overlay=Overlay(str(folder), str(upper), str(work), str(folder)))
print(run(policy, ["sh", "-c", "cp tool mine; ./mine; echo $?"]).out)
"""


@pytest.mark.parametrize(("options", "said"), [("exec", ["ran", "0"]), ("noexec", ["126"])])
def test_files_in_an_overlay_can_be_executed_only_if_the_mount_of_the_project_allows_it(
    folder: Path, options: str, said: list[str]
) -> None:
    """The option noexec of the mount also applies to files that the agent writes to the overlay."""
    upper, work = folder.parent / "upper", folder.parent / "work"
    upper.mkdir()
    work.mkdir()
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    # As root of a user namespace if this user is not root, and then as this user again: the cell is that user's.
    apart = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    again = apart and ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]
    words = ["unshare", *apart, "--mount", "sh", "-c", script, str(folder), *again, sys.executable, "-c"]
    ended = subprocess.run(
        [*words, _ON_A_MOUNT, str(folder), str(upper), str(work)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.stdout.split() == said, ended


def test_an_impossible_overlay_is_refused_with_the_fix(folder: Path) -> None:
    """Here `upper` is not a sibling of `work`; an `upper` on another overlay fails in the same way."""
    upper = folder.parent / "upper"
    (upper / "work").mkdir(parents=True)
    policy = policy_of(folder, overlay=Overlay(str(folder), str(upper), str(upper / "work"), str(folder)))
    with pytest.raises(JailUnavailable, match="overlay") as refused:
        Cell.start(policy, ["true"], ENVIRONMENT, PIPES)
    assert "file system" in refused.value.fix


def test_a_compiler_git_and_unittest_work_in_a_cell(folder: Path) -> None:
    """A cell must not break an agent's everyday commands."""
    (folder / "main.c").write_text("int main(void) { return 7; }\n", encoding="utf-8")
    script = "cc -o main main.c && ./main; test $? = 7 && git init -q . && python3 -m unittest -q 2>&1 | tail -1"

    ran = run(policy_of(folder), ["sh", "-c", script])

    assert ran.end == Ended(0, None, None), ran
    assert (folder / "main").exists()
