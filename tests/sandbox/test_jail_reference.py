"""Tests that docs/reference/jail.md states what the filter is compiled from."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from aileron_sandbox import filters

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "jail.md").read_text(encoding="utf-8")


def test_the_documented_lists_of_system_calls_are_those_of_the_compiled_filter() -> None:
    """The page lists each call that is allowed, killed, or refused with an errno of its own, and no other."""
    allowed, killed = (block.split() for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    answered = dict(re.findall(r"\| `(\w+)` \| (E\w+) \|", PAGE))

    assert allowed == list(filters.ALLOWED)
    assert killed == list(filters.KILLED)
    assert answered == {name: errno.errorcode[number] for name, number in filters.ANSWERED.items()}


def test_the_documented_profiles_and_watched_calls_are_those_of_the_compiled_filter() -> None:
    """The page lists what a profile allows beside the list, and the calls that the template is asked about, with conditions."""
    more = {
        profile: tuple(re.findall(r"`(\w+)`", calls))
        for profile, calls in re.findall(r"\| `([a-z-]+)` \| ((?:`\w+` ?)*)\|", PAGE)
        if profile in filters.ALLOWED_MORE
    }
    asked = dict(re.findall(r"\| `(\w+)` \| ([^|]+) \| [^|]+ \|", PAGE))

    assert more == filters.ALLOWED_MORE
    assert filters.NETWORK.items() <= asked.items()
    assert [name for name in asked if name in filters.NETWORK] == list(filters.NETWORK)


def test_the_documented_conditional_system_calls_are_those_of_the_compiled_filter() -> None:
    """They have the order of the page; test_jail_filter.py checks the conditions bit by bit."""
    table = PAGE.partition("For some arguments.")[2].partition("###")[0]

    assert re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.MULTILINE) == list(filters.SOME_ARGUMENTS)
    assert all(profile_s.keys() <= filters.SOME_ARGUMENTS.keys() for profile_s in filters.SOME_ARGUMENTS_MORE.values())


def test_no_system_call_is_in_two_lists_of_the_jail_filter() -> None:
    """A call that is both allowed and killed would be a contradiction that cannot be compiled."""
    everything = [*filters.ALLOWED, *filters.ALLOWED_MORE["elf-subprocess"], *filters.ANSWERED, *filters.KILLED]
    everything += filters.SOME_ARGUMENTS

    assert len(everything) == len(set(everything))
