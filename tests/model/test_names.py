"""Versions, full names and hosts, and texts that only look like them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.names import MAX_VERSION, SEMVER, Fqn, HostPort, check_semver, precedence

VERSIONS = """
0.0.0 0.0.4 1.2.3 10.20.30 1.1.2-prerelease+meta 1.1.2+meta 1.1.2+meta-valid 1.0.0-alpha 1.0.0-alpha.beta 1.0.0-alpha.1
1.0.0-alpha0.valid 1.0.0-alpha.0valid 1.0.0-rc.1+build.1 2.0.0-rc.1+build.123 1.2.3-beta 1.2.3-SNAPSHOT-123 2.0.0+build.1848
2.0.1-alpha.1227 1.0.0-alpha+beta 1.2.3----RC-SNAPSHOT.12.9.1--.12+788 1.2.3----R-S.12.9.1--.12+meta 1.0.0+0.build.1-rc.10000aaa
99999999999999999999.999999999999999999.99999999999999999 1.0.0-0A.is.legal 0.0.0-dev 1.0.0+001
""".split()
NO_VERSIONS = [
    *"1 1.2 1.2.3.4 v1.2.3 V1.2.3 =1.2.3 01.2.3 1.02.3 1.2.03 1.2.3-0123 1.2.3-0123.0123 1.1.2+.123 +invalid -invalid".split(),
    *"alpha 1.0.0-alpha..1 1.0.0-alpha_beta 1.2.3+ 1.2.3- 1.2.3-+ 1.2.3+a+b 1.2.3-a. -1.2.3 1.-2.3 1.2.3.DEV".split(),
    *"latest main HEAD 2026-01-01 ^1.2.3 ~1.2.3 >=1.2.3 1.x 1.2.* * 1.2.3||1.2.4 9f2c1ab".split(),
    "",
    " 1.2.3",
    "1.2.3 ",
    "1.2.3\n",
    "1.2.3 - 2.0.0",
    "1.2.3@sha256",
    "\uff11.2.3",  # a full-width digit one
    "1.2.\u0663",  # an Arabic-Indic digit three
    "1\u30022.3",  # an ideographic full stop
    "1.2.3-\u0430lpha",  # a Cyrillic letter
    "1.2.3\u200b",
]


@pytest.mark.parametrize("text", VERSIONS)
def test_a_semantic_version_is_accepted(text: str) -> None:
    """The examples are those of semver.org. Each keeps its spelling and can be compared."""
    assert check_semver(text) == text
    assert precedence(text)


@pytest.mark.parametrize("text", NO_VERSIONS)
def test_a_text_that_only_looks_like_a_version_is_refused(text: str) -> None:
    """The cases are ranges, branches, dates, a leading zero or v, and digits of another script. The refusal quotes the text."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        check_semver(text)


def test_a_version_too_long_to_be_compared_is_refused() -> None:
    """Python refuses to parse numbers of thousands of digits: one such tag would break a whole list of versions."""
    longest = "1" * (MAX_VERSION - 4) + ".0.0"
    assert precedence(check_semver(longest))
    for text in ("1" + longest, "9" * 5000 + ".0.0", "1.0.0-" + "9" * 5000):
        with pytest.raises(ValueError, match=f"at most {MAX_VERSION}"):
            check_semver(text)


@given(st.lists(st.from_regex(SEMVER, fullmatch=True).filter(lambda text: len(text) <= MAX_VERSION), max_size=6))
def test_sorting_versions_gives_one_order_with_prereleases_before_their_release(versions: list[str]) -> None:
    """Sorting does not depend on the original order, and a release comes after its pre-releases."""
    in_order = sorted(versions, key=precedence)
    versions.reverse()

    assert sorted(versions, key=precedence) == in_order
    for version in versions:
        core = re.split("[-+]", version)[0]
        assert precedence(f"{core}-rc.1") < precedence(core)


NO_NAMES = [
    ("", "no known scheme"),
    ("acme/mail", "no known scheme"),
    ("https://github.com/acme/mail", "no known scheme"),
    ("GITHUB://acme/mail", "no known scheme"),
    ("github:/acme/mail", "no known scheme"),
    (" github://acme/mail", "no known scheme"),
    ("g\u0456thub://acme/mail", "no known scheme"),  # a Cyrillic i
    ("github://", "names no repository"),
    ("github://acme", "names no repository"),
    ("github://acme/", "segment ''"),
    ("github:///mail", "segment ''"),
    ("github://acme//mail", "segment ''"),
    ("github://acme/mail/", "segment ''"),
    ("github://acme/..", "segment '..'"),
    ("github://acme/../evil", "segment '..'"),
    ("github://acme/mail..x", "segment 'mail..x'"),
    ("github://acme/.git", "segment '.git'"),
    ("github://acme/-x", "segment '-x'"),
    ("github://acme/mail@1.0.0", "segment 'mail@1.0.0'"),
    ("github://evil@acme/mail", "segment 'evil@acme'"),
    ("github://acme:443/mail", "segment 'acme:443'"),
    ("github://acme/m%61il", "segment 'm%61il'"),
    ("github://acme/mail?x", "segment 'mail?x'"),
    ("github://acme/mail#x", "segment 'mail#x'"),
    ("github://acme/ma il", "segment 'ma il'"),
    ("github://acme/mail\n", "segment 'mail\\n'"),
    ("github://acme\\mail/x", "segment 'acme\\\\mail'"),
    ("github://\u0430cme/mail", "segment '\u0430cme'"),  # a Cyrillic a
    ("github://acme/mail\u200b", "segment 'mail\\u200b'"),
    ("github://acme/\uff4dail", "segment '\uff4dail'"),  # a full-width m
    ("github://acme/" + "x" * 101, "segment 'xxx"),
]


@pytest.mark.parametrize(("text", "problem"), NO_NAMES)
def test_a_text_that_only_looks_like_a_full_name_is_refused(text: str, problem: str) -> None:
    """A full name has no other scheme, `..`, user, port, or letter that looks like another."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        Fqn.parse(text)


def test_full_names_are_case_sensitive() -> None:
    """A forge may ignore case, but to Aileron a name in another spelling is another artifact."""
    assert Fqn.parse("github://Acme/Mail") != Fqn.parse("github://acme/mail")
    assert str(Fqn.parse("github://Acme/Mail/x.y_z-1")) == "github://Acme/Mail/x.y_z-1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a.example", "no port"),
        (":443", "no port"),
        ("a.example:", "port ''"),
        ("a.example:0", "port '0'"),
        ("a.example:00443", "port '00443'"),
        ("a.example:+443", "port '+443'"),
        ("a.example:65536", "port '65536'"),
        ("a.example:" + "9" * 5000, "is not a number from 1 to 65535"),
        ("a.example:\u0664\u0664\u0663", "is not a number from 1 to 65535"),
        ("*:443", "wildcards"),
        ("*.a.example:443", "wildcards"),
        ("a.*.example:443", "wildcards"),
        ("A.example:443", "lower-case"),
        ("a.example.:443", "lower-case"),
        ("a_b.example:443", "lower-case"),
        ("user@a.example:443", "lower-case"),
        ("https://a.example:443", "lower-case"),
        ("\u0430.example:443", "lower-case"),
        ("127.1:443", "four decimal octets"),
        ("1.1.1." + "9" * 60 + ":443", "four decimal octets"),
    ],
)
def test_a_text_that_only_looks_like_a_host_is_refused(text: str, problem: str) -> None:
    """Each host has one spelling, and a port."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        HostPort.parse(text)
