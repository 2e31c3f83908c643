"""Host patterns: four forms, one spelling each, and the destinations that each matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.host_pattern import MAX_HOST_PATTERNS, HostPattern, parse_host_patterns
from aileron.model.names import HostPort

_LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(_LABELS, min_size=2, max_size=5).map(".".join)
PORTS = st.integers(1, 65535)


@pytest.mark.parametrize(
    ("text", "asked", "means"),
    [
        ("example.com", "example.com:443", True),
        ("example.com", "example.com:80", False),
        ("example.com", "www.example.com:443", False),
        ("example.com", "notexample.com:443", False),
        ("example.com:8443", "example.com:8443", True),
        ("example.com:8443", "example.com:443", False),
        ("*.example.com", "www.example.com:443", True),
        ("*.example.com", "a.b.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*.example.com", "notexample.com:443", False),
        ("*.example.com", "www.example.com.evil.net:443", False),
        ("*.example.com", "www.example.com:8443", False),
        ("*.example.com:8443", "www.example.com:8443", True),
        ("xn--bcher-kva.example", "xn--bcher-kva.example:443", True),
        ("localhost:8443", "localhost:8443", True),
    ],
)
def test_a_host_pattern_matches_only_the_hosts_it_names(text: str, asked: str, means: bool) -> None:
    """A pattern matches its name at its port, or with `*.` every name below it at that port but not the name itself."""
    pattern = HostPattern.parse(text)

    assert pattern.matches(HostPort.parse(asked)) is means
    assert str(pattern) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a host: expected NAME, NAME:PORT, *.NAME or *.NAME:PORT, in lower case"),
        ("Example.com", "in lower case"),
        ("bücher.example", "an international name as xn--"),
        ("example.com.", "is not a host"),
        ("https://example.com", "is not a host"),
        ("example.com/path", "is not a host"),
        ("example.com\n", "is not a host"),
        ("ex ample.com", "is not a host"),
        ("example.com:0", "the port '0' is not a number from 1 to 65535"),
        ("example.com:65536", "the port '65536' is not a number"),
        ("example.com:", "the port '' is not a number"),
        ("example.com:https", "the port 'https' is not a number"),
        ("192.0.2.1", "is an address: name the host"),
        ("169.254.169.254:80", "is an address"),
        ("*.192.0.2.10", "is an address"),
        ("192.0.2", "is not a host"),
        ("0x7f000001", "is not a host"),
        ("[::1]:443", "is not a host"),
        ("*", "* stands for the first labels only, as in *.example.com"),
        ("*.", "is not a host"),
        ("*.com", "is too wide: write at least two labels after *."),
        ("*example.com", "* stands for the first labels only"),
        ("www.*.com", "* stands for the first labels only"),
        ("*.*.example.com", "* stands for the first labels only"),
    ],
)
def test_an_invalid_pattern_is_refused_with_the_problem(text: str, problem: str) -> None:
    """The parser never normalizes it, because another parser could read the original differently."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        HostPattern.parse(text)


@given(NAMES, PORTS, st.booleans())
def test_a_pattern_is_read_back_as_written(name: str, port: int, is_wildcard: bool) -> None:
    """Parsing what `str` writes gives an equal pattern."""
    pattern = HostPattern(name, port, is_wildcard)

    assert HostPattern.parse(str(pattern)) == pattern


@given(NAMES, NAMES, PORTS, PORTS, st.booleans())
def test_a_pattern_matches_no_other_name_or_port(
    name: str, asked: str, port: int, other: int, is_wildcard: bool
) -> None:
    """Every matching host ends in all labels of the pattern's name, and has its port."""
    if HostPattern(name, port, is_wildcard).matches(HostPort(asked, other)):
        labels = name.split(".")
        assert asked.split(".")[-len(labels) :] == labels
        assert (port, is_wildcard) == (other, asked != name)


def test_a_list_of_patterns_has_no_duplicates_and_is_bounded() -> None:
    """`example.com` and `example.com:443` are the same. An empty list is allowed: the agent then reaches nothing."""
    assert list(map(str, parse_host_patterns(["b.com", "a.com:443", "a.com"]))) == ["b.com", "a.com"]
    assert parse_host_patterns([]) == ()
    most = [f"a{number}.com" for number in range(MAX_HOST_PATTERNS)]
    assert len(parse_host_patterns(most)) == MAX_HOST_PATTERNS
    with pytest.raises(ValueError, match="129 hosts; at most 128"):
        parse_host_patterns([*most, "b.com"])
