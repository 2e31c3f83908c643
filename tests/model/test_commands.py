"""Commands of an `ssh` login: what a pattern grants, and that what `*` stands for means nothing to a shell."""

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
def test_a_pattern_grants_what_it_says_and_no_more(pattern: str, granted: str, refused: str) -> None:
    """In pairs: the nearest that is granted, and the nearest that is not."""
    check_command_pattern(pattern)
    assert is_granted(granted, ["something else", pattern])
    assert not is_granted(refused, ["something else", pattern])


@pytest.mark.parametrize("verb", ["upload-pack", "upload-archive"])
def test_a_preview_executes_what_sends_a_repository(verb: str) -> None:
    """In exactly git's form: one path in quotes, and no option, other program, or second command."""
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


def test_nothing_is_granted_without_a_pattern() -> None:
    """Nor a command that is none, or longer than any."""
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
def test_a_pattern_that_is_none(pattern: str, why: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=why):
        check_command_pattern(pattern)


def test_a_subsystem_is_told_from_a_command() -> None:
    """By its first word, and the name is one."""
    assert subsystem_of("subsystem sftp") == "sftp"
    assert subsystem_of("subsystem  sftp") is subsystem_of("subsystemsftp") is subsystem_of("uptime") is None


@given(st.text(alphabet=META, min_size=1, max_size=3), st.text("ab./", max_size=4), st.text("ab./", max_size=4))
def test_what_a_shell_gives_a_meaning_to_is_the_authors_alone(meta: str, before: str, after: str) -> None:
    """No character of it is matched by a `*`, wherever it is."""
    assert not is_granted(f"run 'x{before}{meta}{after}y'", ["run 'x*y'"])
    assert not is_granted(f"run x{before}{meta}{after}y", ["run *"])
    assert is_granted(f"run '{meta}ab'", [f"run '{meta.replace('*', '-')}*'"]) is ("*" not in meta)


@given(st.lists(st.text("a'/.", max_size=3), min_size=1, max_size=4), st.text("ab'/. -", max_size=12))
def test_as_an_expression_would_match(parts: list[str], rest: str) -> None:
    """The rules of `*` written down another way; `..` and options are apart."""
    pattern, command = "r " + "*".join(parts), "r " + rest
    expression = "[A-Za-z0-9._/@:+,=-]+".join(re.escape(part) for part in ["r " + parts[0], *parts[1:]])
    if ".." in command or "-" in command:
        return
    assert is_granted(command, [pattern]) is (re.fullmatch(expression, command) is not None)


def test_a_pattern_made_to_take_long_does_not() -> None:
    """Eight stars over four thousand characters: an expression that goes back would not end."""
    began = time.process_time()
    assert not is_granted("a " + "x" * (MAX_COMMAND - 3) + "!", ["a " + "*x" * 8 + "z"])
    assert time.process_time() - began < 1
