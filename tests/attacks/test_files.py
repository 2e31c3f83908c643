"""Attacks of a jail on files: reading them, leaving something behind, and reaching what lies under a mount, a link or a
descriptor.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aileron_sandbox.policy import Policy
from tests.attacks.inside import Jail, freely
from tests.attacks.tally import Attack

pytestmark = pytest.mark.jail

SYSTEMS = """
/etc/passwd /etc/shadow /etc/hosts /etc/ssh /root /root/.ssh /root/.bashrc /home /var/log /run /run/user /boot /mnt /srv /opt
""".split()


@pytest.mark.abuse_case("F1")
def test_files_with_the_persons_secrets_do_not_exist_in_a_jail(attack: Attack, jail: Jail, tmp_path: Path) -> None:
    """Homes, keys, password files, logs and other programs' data do not exist there, as open, stat and list all say."""
    for name in ("vault.json", "ledger.db", "config.toml", "id_ed25519"):
        (tmp_path / name).write_text("canary", encoding="utf-8")
    theirs = [str(tmp_path / name) for name in ("vault.json", "ledger.db", "config.toml", "id_ed25519", "")]
    # The library lies where it lies on the host, and so do the folders above it: empty but for that way.
    on_the_way = {str(folder) for folder in Path(os.__file__).parents}
    systems = [path for path in SYSTEMS if path not in on_the_way]

    attack.all_denied("the user's files", "ENOENT", jail.loot("look_at", theirs))
    attack.all_denied("the system's", "ENOENT", jail.loot("look_at", systems))
    there = freely("look_at", theirs)
    attack.control("the same user can", {"ok", "ENOTDIR"}, set(there.values()))
    attack.control("its own program can be read", "ok", jail.loot("look_at", ["/app/connector"])["open /app/connector"])


@pytest.mark.abuse_case("F1")
def test_no_file_that_a_jail_can_read_contains_a_word_planted_in_the_users_files(
    attack: Attack, jail: Jail, tmp_path: Path
) -> None:
    """The probe reads the whole visible tree. The word is in a file of the user's and, as a control, in the probe."""
    (tmp_path / "canary").write_text("canary-71c0a9e3", encoding="utf-8")

    seen = jail.loot("walk_for", "canary-71c0a9e3")

    attack.denied("reading every file there is", [], [path for path in seen["found"] if path != "/app/connector"])
    attack.control("it has read them", ["/app/connector"], seen["found"])
    assert seen["looked"] > 500


@pytest.mark.abuse_case("F3")
def test_links_dots_and_descriptors_do_not_lead_out_of_the_jail(attack: Attack, jail: Jail, tmp_path: Path) -> None:
    """Symbolic and hard links, chains of dots, and the root and descriptors in /proc lead to no file of the host."""
    planted = tmp_path / "canary"
    planted.write_text("canary", encoding="utf-8")

    got = jail.loot("ways_out", str(planted))

    attack.denied("a hard link", "EPERM", got.pop("a hard link"))
    attack.all_denied("a way out", "ENOENT", got)
    attack.control("dots lead there without a jail", "canary", freely("read", "/tmp" + "/.." * 40 + str(planted)))


@pytest.mark.abuse_case("F2")
def test_a_jail_leaves_no_file_behind(attack: Attack, jail: Jail) -> None:
    """A file can be made in the scratch space and nowhere else; the next child finds none, nor does the host."""
    nowhere = ["/", "/app", "/dev", "/dev/shm", "/w", "/usr", "/sdk", os.path.dirname(os.__file__), "/var/tmp", "/proc"]

    got = jail.loot("write_at", [*nowhere, "/tmp", "."])
    attack.control("the scratch space and the working directory", ("ok", "ok"), (got.pop("/tmp"), got.pop(".")))
    attack.all_denied("a file in", {"EROFS", "EACCES", "ENOENT"}, got)
    attack.denied("finding it in the next child", [], jail.loot("listing", "/tmp"))
    attack.denied("finding it on the host", [], [f for f in ("/tmp/planted", "/w/tmp/planted") if os.path.exists(f)])


@pytest.mark.abuse_case("F4")
def test_mount_points_and_the_program_cannot_be_replaced(attack: Attack, jail: Jail) -> None:
    """Renaming mount points, replacing them, and writing to the running program are all refused."""
    attack.all_denied(
        "moving", {"EBUSY", "EROFS", "EACCES", "EPERM", "EXDEV", "ENOENT", "EEXIST"}, jail.loot("move_mounts")
    )
    attack.control("a file of its own can be renamed", True, jail.loot("change", "mkdir", "/tmp"))


@pytest.mark.abuse_case("F5")
def test_a_jail_can_neither_execute_nor_load_a_setuid_program(attack: Attack, jail: Jail) -> None:
    """A file created setuid in the scratch space cannot be executed, mapped as code or loaded; chmod cannot set the
    bit.
    """
    got = jail.loot("run_a_setuid_program")

    attack.denied("executing it", "EPERM", got.pop("execute it"))
    attack.denied("loading it", "refused", got.pop("load it as a library"))
    attack.all_denied("using it", {"EPERM", "EACCES"}, got)
    attack.control("a file can be made and copied", 100, jail.loot("copy_file", "copyfile"))


@pytest.mark.abuse_case("F7")
def test_a_jail_cannot_fill_the_hosts_disk(attack: Attack, jail: Jail) -> None:
    """A terabyte of writes fills only the private space, which reports that it is full; the host's disks are as before."""
    given = 4 << 20
    before = os.statvfs("/").f_bavail

    wrote, why = jail.loot("fill", "/tmp", 1 << 40, policy=Policy(scratch_bytes=given, file_bytes=2 << 20))

    attack.denied("a terabyte", ("ENOSPC", True), (why, wrote <= given))
    attack.control("what was given can be used", True, wrote > given // 2)
    assert (before - os.statvfs("/").f_bavail) * os.statvfs("/").f_frsize < 1 << 30, (
        "others write here too, but no terabyte"
    )


@pytest.mark.abuse_case("F4", "P4")
def test_only_five_devices_exist_and_none_can_be_changed_or_made(attack: Attack, jail: Jail) -> None:
    """The devices are null, zero, full, random and urandom; there is no terminal, disk, memory, machine or bus, and none
    can be made.
    """
    others = """
        tty console ptmx pts shm mem kmem kvm fuse vsock vhost-vsock sda vda loop0 net/tun dri video0 snd input bus hwrng rtc0
        uinput userfaultfd kmsg port mqueue
    """.split()
    here = jail.loot("look_at", [f"/dev/{name}" for name in others])

    attack.all_denied("a device", "ENOENT", here)
    attack.denied("making one", "EPERM", jail.loot("change", "mknod", "/tmp")["errno"])
    attack.denied("changing one", "EPERM", jail.loot("change", "utime", "/dev/null")["errno"])
    attack.control("the five", ["full", "null", "random", "urandom", "zero"], jail.loot("listing", "/dev"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
