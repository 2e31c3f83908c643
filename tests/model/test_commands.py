"""Commands of an `ssh` login: what a pattern grants; text matched by `*` means nothing to a shell."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.commands import MAX_COMMAND, check_command_pattern, is_granted, only_reads, subsystem_of

FETCH = "git-upload-pack 'team/*.git'"
META = "\t\n\r !\"#$&'()*;<>?[\\]^`{|}~%\x00\x7f\u00e9\u202e"


@pytest.mark.parametrize(
    ("pattern", "granted", "refused"),
    [
        (FETCH, "git-upload-pack 'team/web.git'", "git-receive-pack 'team/web.git'"),
        (FETCH, "git-upload-pack 'team/a/b.git'", "git-upload-pack 'team/../b.git'"),
        (FETCH, "git-upload-pack 'team/..a.git'", "git-upload-pack 'team/a/../../b.git'"),
        (FETCH, "git-upload-pack 'team/a.git'", "git-upload-pack 'team/.git'"),
        (FETCH, "git-upload-pack 'team/a.git'", "git-upload-pack 'team/a.git' "),
        (FETCH, "git-upload-pack 'team/a.git'", "git-upload-pack 'team/a'; id '.git'"),
        (FETCH, "git-upload-pack 'team/a.git'", "git-upload-pack 'team/a.git'\nid"),
        (FETCH, "git-upload-pack 'team/a.git'", "git-upload-pack team/a.git"),
        ("git-upload-pack '*'", "git-upload-pack 'a'", "git-upload-pack '--exec=a'"),
        ("git-upload-pack '*'", "git-upload-pack 'a'", "git-upload-pack ''"),
        ("backup --to=*", "backup --to=-x", "backup --to=../x"),
        ("copy * to *", "copy a to b", "copy a to -b"),
        ("copy *-*", "copy a-b-c", "copy -a-b"),
        ("uptime", "uptime", "uptime "),
        ("ls ..", "ls ..", "ls ../.."),
        ("a '*/*.git'", "a 'x/y/z.git'", "a 'x.git'"),
        ("subsystem sftp", "subsystem sftp", "subsystem sftp2"),
    ],
)
def test_a_command_pattern_allows_exactly_the_commands_that_match(pattern: str, granted: str, refused: str) -> None:
    """Each case has the nearest command that the pattern allows and the nearest that it does not."""
    check_command_pattern(pattern)
    assert is_granted(granted, ["something else", pattern])
    assert not is_granted(refused, ["something else", pattern])


@pytest.mark.abuse_case("LG1")
@pytest.mark.parametrize("verb", ["upload-pack", "upload-archive"])
def test_a_preview_may_execute_only_commands_that_send_a_repository(verb: str) -> None:
    """The command must have exactly git's form: one path in quotes, and no option, other program or second command."""
    assert only_reads(f"git-{verb} 'team/website.git'")
    for command in (
        "git-receive-pack 'team/website.git'",
        f"git-{verb} team/website.git",
        f"git-{verb} --strict 'team/website.git'",
        f"git-{verb} '--exec=x'",
        f"git-{verb} ''",
        f"git-{verb} 'a' 'b'",
        f"git-{verb} 'a'; id",
        f"git-{verb} 'a'\n",
        f" git-{verb} 'a'",
        f"sudo git-{verb} 'a'",
        f"git-{verb} '{'a' * MAX_COMMAND}'",
        "subsystem sftp",
        "",
    ):
        assert not only_reads(command), command


def test_no_command_is_allowed_without_a_pattern() -> None:
    """Empty and overlong commands are not allowed either."""
    assert not is_granted("uptime", [])
    assert not is_granted("", ["uptime"])
    assert is_granted("a " + "x" * (MAX_COMMAND - 2), ["a *"])
    assert not is_granted("a " + "x" * (MAX_COMMAND - 1), ["a *"])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "1 to 4096"),
        ("a" * (MAX_COMMAND + 1), "1 to 4096"),
        ("*", "the program open"),
        ("git-* 'a'", "the program open"),
        (" a", "blank"),
        ("a\nb", "control"),
        ("a **", r"\*\*"),
        ("a" + " *" * 9, "more than 8"),
        ("subsystem *", "subsystem NAME"),
        ("subsystem -x", "subsystem NAME"),
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str, why: str) -> None:
    """The refusal says why."""
    with pytest.raises(ValueError, match=why):
        check_command_pattern(pattern)


def test_a_subsystem_is_distinguished_from_a_command() -> None:
    """The first word decides, and exactly one name follows it."""
    assert subsystem_of("subsystem sftp") == "sftp"
    assert subsystem_of("subsystem  sftp") is subsystem_of("subsystemsftp") is subsystem_of("uptime") is None


@given(st.text(alphabet=META, min_size=1, max_size=3), st.text("ab./", max_size=4), st.text("ab./", max_size=4))
def test_a_star_in_a_command_pattern_matches_no_shell_metacharacter(meta: str, before: str, after: str) -> None:
    """Such a character must stand in the pattern itself."""
    assert not is_granted(f"run 'x{before}{meta}{after}y'", ["run 'x*y'"])
    assert not is_granted(f"run x{before}{meta}{after}y", ["run *"])
    assert is_granted(f"run '{meta}ab'", [f"run '{meta.replace('*', '-')}*'"]) is ("*" not in meta)


@given(st.lists(st.text("a'/.", max_size=3), min_size=1, max_size=4), st.text("ab'/. -", max_size=12))
def test_a_pattern_matches_like_the_equivalent_regular_expression(parts: list[str], rest: str) -> None:
    """An expression states the rules of `*` a second way; commands with `..` or options are left out."""
    pattern, command = "r " + "*".join(parts), "r " + rest
    expression = "[A-Za-z0-9._/@:+,=-]+".join(re.escape(part) for part in ["r " + parts[0], *parts[1:]])
    if ".." in command or "-" in command:
        return
    assert is_granted(command, [pattern]) is (re.fullmatch(expression, command) is not None)


def test_a_pattern_built_to_be_slow_is_matched_quickly() -> None:
    """A backtracking expression would not end on eight stars over four thousand characters."""
    began = time.process_time()
    assert not is_granted("a " + "x" * (MAX_COMMAND - 3) + "!", ["a " + "*x" * 8 + "z"])
    assert time.process_time() - began < 1
