"""Mail addresses, as people type them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.discovery.address import MailAddress


@pytest.mark.parametrize(
    "text", ["ann@example.com", "Ann.B+x@Example.COM", "o'hara@mail.example.co", "ann@xn--bcher-kva.example"]
)
def test_an_address_is_its_local_part_and_its_domain(text: str) -> None:
    """The local part stays as it was typed, and the domain is in lower case."""
    local, _, domain = text.partition("@")

    assert MailAddress.parse(text) == MailAddress(local, domain.lower())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann",
        "@example.com",
        "ann@",
        "ann@localhost",
        "ann@127.0.0.1",
        "ann@[127.0.0.1]",
        "ann@example.com.",
        "ann@exam ple.com",
        "an n@example.com",
        "ann@b@example.com",
        "ann\x1b[2J@example.com",
        "ann\u202e@example.com",
        "ann@bücher.example",
        "a" * 65 + "@example.com",
        "ann@" + "a." * 130 + "com",
        "ann@example.com/x",
        "ann@-example.com",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Domains without a name of their own are refused too: nobody publishes servers for them."""
    with pytest.raises(ValueError, match=r"mail address|xn--"):
        MailAddress.parse(text)


@given(st.text(max_size=80))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    """An address reads back as itself."""
    with contextlib.suppress(ValueError):
        parsed = MailAddress.parse(text)
        assert MailAddress.parse(str(parsed)) == parsed
