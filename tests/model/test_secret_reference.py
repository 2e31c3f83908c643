"""A reference to a secret in another store is one line, and has one reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.names import HostPort
from aileron.model.secret_reference import MAX_REFERENCE, SecretReference

GOOD = {
    "pass:mail": ("mail",),
    "pass:work/mail/me@example.com": ("work", "mail", "me@example.com"),
    "pass:Bank, old/PIN 2": ("Bank, old", "PIN 2"),
    "vault://vault.example.com:8200/secret/mail#password": ("mail",),
    "vault://10.0.0.1:8200/kv/team/mail-home#pass.word": ("team", "mail-home"),
    "op://Private/Mail account/password": ("Private", "Mail account", "password"),
    "op://Private/Mail/SMTP/password": ("Private", "Mail", "SMTP", "password"),
}
BAD = {
    "": "is not a reference",
    "pass": "is not a reference",
    "pass:": "cannot be a part",
    "pass:/mail": "cannot be a part",
    "pass:mail/": "cannot be a part",
    "pass:a//b": "cannot be a part",
    "pass:../mail": "'..' cannot be a part",
    "pass:a/./b": "'.' cannot be a part",
    "pass:-c": "cannot be a part",
    "pass:a/-c": "cannot be a part",
    "pass:ma\nil": "cannot be a part",
    "pass:m\u00e4il": "cannot be a part",
    "pass:$(id)": "cannot be a part",
    "pass:mail ": "cannot be a part",
    "PASS:mail": "is not a reference",
    "hunter2": "is not a reference",
    "https://vault.example.com/v1/secret": "is not a reference",
    "vault:secret/mail#password": "is not a reference",
    "vault://vault.example.com/secret/mail#password": "has no port",
    "vault://Vault.example.com:8200/secret/mail#password": "lower-case host name",
    "vault://u:p@vault.example.com:8200/secret/mail#password": "lower-case host name",
    "vault://vault.example.com:8200/secret/mail": "names no field",
    "vault://vault.example.com:8200/secret/mail#": "names no field",
    "vault://vault.example.com:8200/secret/mail#a#b": "names no field",
    "vault://vault.example.com:8200/secret#password": "names no path",
    "vault://vault.example.com:8200/secret/mail?version=1#password": "cannot be a part",
    "vault://vault.example.com:8200/secret/%2e%2e/mail#password": "cannot be a part",
    "vault://vault.example.com:8200/secret/../sys#password": "'..' cannot be a part",
    "op:Private/Mail/password": "is not a reference",
    "op://Private/Mail": "has 2 parts",
    "op://a/b/c/d/e": "has 5 parts",
    "op://Private/Mail/password?attribute=otp": "cannot be a part",
    "op://--help/b/c": "cannot be a part",
    "env-file": "an agent that runs as you could read the file",
    "env-file:/home/me/.env": "an agent that runs as you could read the file",
    "file:///home/me/key": "an agent that runs as you could read the file",
    "pass:" + "a/" * 16 + "a": "at most 16",
    "pass:" + "a" * MAX_REFERENCE: "at most 512",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_secret_reference_is_shown_exactly_as_it_was_parsed(text: str) -> None:
    """The parser decodes nothing, so the shown text is exact."""
    found = SecretReference.parse(text)
    assert (str(found), found.path) == (text, GOOD[text])


def test_a_secret_reference_names_an_exact_server_host_and_port() -> None:
    """Mount and field are kept apart from the path."""
    found = SecretReference.parse("vault://vault.example.com:8200/secret/mail/home#password")
    assert (found.host, found.mount, found.path, found.field) == (
        HostPort("vault.example.com", 8200),
        "secret",
        ("mail", "home"),
        "password",
    )


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_an_invalid_reference_is_refused_with_the_problem(text: str) -> None:
    """The refusal has a bounded length."""
    with pytest.raises(ValueError, match=BAD[text].replace("(", "\\(")) as caught:
        SecretReference.parse(text)
    assert len(str(caught.value)) < 2 * MAX_REFERENCE + 200


@given(
    st.one_of(
        st.text(max_size=60),
        st.builds(
            lambda kind, rest: kind + rest,
            st.sampled_from(["pass:", "op://", "vault://h.example:1/"]),
            st.text(max_size=60),
        ),
        st.text(st.sampled_from("pasvultop:/#.-ab1 "), max_size=40),
    )
)
def test_any_text_is_parsed_as_a_reference_without_changes_or_refused(text: str) -> None:
    """A part of a path is never empty, never looks like an option, and never goes up a directory."""
    try:
        found = SecretReference.parse(text)
    except ValueError:
        return
    assert SecretReference.parse(str(found)) == found
    assert str(found) == text
    for part in (*found.path, *([found.mount] if found.kind == "vault" else [])):
        assert part
        assert not part.startswith("-")
        assert part not in {".", ".."}
        assert part.isascii()
        assert part.isprintable()
        assert "/" not in part
