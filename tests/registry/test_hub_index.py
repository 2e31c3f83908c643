"""The index of a Hub: a written index is read back, any other is refused in words, and a search finds what it should."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.names import Fqn, precedence
from aileron.model.text import hidden_at
from aileron.registry import hub_index
from aileron.registry.forges.forge import MAX_VERSIONS
from aileron.registry.hub_index import (
    MAX_INDEX_BYTES,
    MAX_INDEX_VALUES,
    About,
    CredentialWanted,
    Entry,
    Index,
    Published,
    encoded,
    entry_of,
    parse_index,
    search,
)

PIN = "sha256:" + "ab" * 32
KEY = "sha256:" + "A" * 22
SEGMENT = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
TEXT = st.text(max_size=40).filter(lambda text: hidden_at(text) is None)
VERSION = st.from_regex(r"[0-9]\.[0-9]\.(0|[1-9][0-9])(-rc\.[0-9])?(\+[a-z]{1,3})?", fullmatch=True)
ABOUT = st.builds(
    About,
    publisher=st.none() | TEXT,
    description=st.none() | TEXT,
    intents=st.lists(TEXT, max_size=3).map(tuple),
    hosts=st.lists(SEGMENT.map(lambda name: f"{name.rstrip('-')}.example.com:443"), max_size=2).map(tuple),
    credential=st.none() | st.builds(CredentialWanted, kind=st.sampled_from(["basic", "oauth2"]), scope=TEXT),
    requires=st.lists(SEGMENT.map(lambda name: f"hub://acme/{name}@1.0.0"), max_size=2).map(tuple),
)


def _always(about: About) -> Callable[[str], About]:
    return lambda _: about


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Return entries that a build could make, each name once."""
    names = draw(st.lists(st.lists(SEGMENT, min_size=2, max_size=4).map(tuple), max_size=4, unique=True))
    made = []
    for name in names:
        versions = draw(st.lists(VERSION, min_size=1, max_size=4, unique=True))
        published = [
            Published(version=version, hash=PIN, signed_by=draw(st.sampled_from([None, KEY]))) for version in versions
        ]
        about = draw(ABOUT)
        made.append(
            entry_of(Fqn("hub", name), draw(st.sampled_from(["connector", "action"])), published, _always(about))
        )
    return made


def read_or_refused(data: bytes) -> Index | str:
    """Return the index, or the message with which it is refused."""
    try:
        return parse_index(data)
    except ValueError as error:
        return str(error)


@given(entries(), st.randoms())
def test_a_written_index_is_read_back(made: list[Entry], random: Any) -> None:
    """The order of the entries makes no difference, and writing the index again gives the same bytes."""
    data = encoded(made)
    random.shuffle(made)

    read = parse_index(data)

    assert encoded(made) == encoded(read.entries) == data
    assert sorted(read.entries, key=lambda artifact: artifact.name) == list(read.entries)
    assert all(entry.published.version == entry.version for entry in read.entries)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_accepted_as_an_index_or_refused_with_a_message(data: bytes) -> None:
    """The message has no hidden character, whatever bytes it quotes."""
    said = read_or_refused(data)

    assert not isinstance(said, str) or hidden_at(said) is None


@given(entries(), st.data())
def test_an_index_with_one_changed_byte_is_accepted_or_refused_with_a_message(
    made: list[Entry], data: st.DataObject
) -> None:
    """An accepted index has only names of a Hub, and a refusal has no hidden character."""
    good = bytearray(encoded(made))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))

    said = read_or_refused(bytes(good))

    if isinstance(said, str):
        assert hidden_at(said) is None
    else:
        assert all(Fqn.parse(artifact.name).scheme == "hub" for artifact in said.entries)


def entry(**changes: Any) -> dict[str, Any]:
    """Return an entry as JSON, with changes; None takes a key out."""
    good = {
        "name": "hub://acme/mail",
        "kind": "connector",
        "version": "1.0.0",
        "versions": [{"version": "1.0.0", "hash": PIN, "signed_by": KEY}],
        "about": {"publisher": "Acme", "intents": ["send_email"], "hosts": ["mail.example.com:443"]},
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def index(*made: dict[str, Any], **changes: Any) -> bytes:
    """Return an index file with these entries."""
    return json.dumps({"version": 1, "entries": made, **changes}).encode()


def versions(*listed: str) -> dict[str, Any]:
    """Return the version keys of an entry with these versions."""
    return {"version": listed[-1], "versions": [{"version": version, "hash": PIN} for version in listed]}


@pytest.mark.abuse_case("B11")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "Input data was truncated"),
        (b"[]", "Expected `object`"),
        (b'{"entries": []}', "missing required field `version`"),
        (index(version=2), "version 2 of the format; this aileron reads 1"),
        (index(version="1"), "Expected `int`"),
        (index(extra=1), "unknown field `extra`"),
        (index(**{"x\u202e\x1b[2J": 1}), "unknown field `x\\u202e\\x1b[2J`"),
        (b"\xff", "invalid"),
        (b'{"version": 1, "entries": ' + b"[" * 400_000, "while deserializing an object"),
        (index(entry(url="https://evil.example/a.tar.gz")), "unknown field `url`"),
        (index(entry(name="github://acme/mail")), "is not a name of a Hub"),
        (index(entry(name="https://evil.example")), "no known scheme"),
        (index(entry(name="hub://acme/../../etc")), "path segment '..'"),
        (index(entry(name="hub://acme/ma\u202eil")), "path segment"),
        (index(entry(name="hub://acme/" + "m" * 300)), "at most 200"),
        (index(entry(name=7)), "Expected `str`"),
        (index(entry(kind="plugin")), "Invalid enum value 'plugin'"),
        (index(entry(versions=[])), "0 versions"),
        (index(entry(**versions("latest"))), "is not a SemVer version"),
        (index(entry(**versions("1.0." + "9" * 5000))), "at most 100"),
        (index(entry(**versions("1.1.0", "1.0.0"))), "out of order"),
        (index(entry(**versions("1.0.0", "1.0.0"))), "out of order"),
        (index(entry(version="0.9.0")), "its newest version is 1.0.0"),
        (index(entry(**versions("1.0.0", "2.0.0-rc.1"))), "its newest version is 1.0.0"),
        (index(entry(versions=[{"version": "1.0.0", "hash": "sha256:short"}])), "64 lower-case hex"),
        (index(entry(versions=[{"version": "1.0.0", "hash": PIN, "signed_by": "me"}])), "is not a key's fingerprint"),
        (index(entry(about={"publisher": "A\x1b[2Jcme"})), r"an invisible character: 'A\\x1b[2Jcme'"),
        (index(entry(about={"description": "x\u202ey"})), "an invisible character"),
        (index(entry(about={"intents": ["a\nb"]})), "an invisible character"),
        (index(entry(about={"intents": ["x"] * 65})), "65 intents"),
        (index(entry(about={"intents": ["x" * 301]})), "301 characters"),
        (index(entry(about={"hosts": ["*.example.com:443"]})), "wildcards are not allowed"),
        (index(entry(about={"hosts": ["a.example:1"] * 33})), "more than 32"),
        (index(entry(about={"credential": {"kind": "any", "scope": "x"}})), "Invalid enum value 'any'"),
        (index(entry(about={"requires": ["hub://acme/mail"]})), "no known scheme"),
        (index(entry(), entry()), "duplicate, or out of order"),
        (index(entry(name="hub://b/b"), entry(name="hub://a/a")), "duplicate, or out of order"),
        (index(*[{}] * 3), "missing required field"),
    ],
)
def test_an_invalid_index_is_refused_with_the_reason(data: bytes, told: str) -> None:
    """The message is short and printable. The positive control is a valid entry."""
    said = read_or_refused(data)

    assert isinstance(said, str)
    assert told in said
    assert (hidden_at(said), len(said) < 1_000) == (None, True)
    assert parse_index(index(entry())).entries[0].name == "hub://acme/mail"


def test_an_index_is_bounded_when_written_and_when_read() -> None:
    """The bounds are on bytes, entries, and versions of one entry. The largest number of entries is read."""
    many = [entry(name=f"hub://acme/m{number:05}") for number in range(20_001)]
    assert (
        len(
            parse_index(
                index(
                    *many[:-1],
                )
            ).entries
        )
        == 20_000
    )
    with pytest.raises(ValueError, match="20001 entries; at most 20000"):
        parse_index(index(*many))
    with pytest.raises(ValueError, match=f"at most {MAX_INDEX_BYTES}"):
        parse_index(b" " * (MAX_INDEX_BYTES + 1))
    with pytest.raises(ValueError, match="20001 artifacts"):
        encoded(msgspec.convert(many, list[Entry]))
    with pytest.raises(ValueError, match="1001 versions"):
        parse_index(index(entry(**versions(*(f"1.0.{number}" for number in range(1001))))))
    with pytest.raises(ValueError, match="1001 versions"):
        entry_of(
            Fqn.parse("hub://acme/mail"),
            "connector",
            [Published(version=f"1.0.{number}", hash=PIN) for number in range(1001)],
            lambda _: About(),
        )


@pytest.mark.abuse_case("B26")
def test_the_values_of_an_index_are_counted_before_it_is_decoded() -> None:
    """8 MB of tiny versions would take 100 MB in memory; refusing them allocates less than 1 MiB."""
    version = b'{"version":"","hash":""},'
    flood = b'{"version":1,"entries":[{"name":"x","kind":"action","version":"1","about":{},"versions":[%b{}]}]}'
    data = flood.replace(b"%b", version * 300_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"more than {MAX_INDEX_VALUES} values"):
            parse_index(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match=f"more than {MAX_INDEX_VALUES} values"):
        encoded(msgspec.convert([entry(about={"intents": [""] * MAX_INDEX_VALUES})], list[Entry]))


def test_the_reference_page_has_every_key_and_bound_of_an_index() -> None:
    """The page has every key as code, and every bound as a number."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/hub.md").read_text(encoding="utf-8")
    keys = {key for shape in (Index, Entry, Published, About, CredentialWanted) for key in shape.__struct_fields__}

    assert {key for key in keys if not re.search(rf"`(about\.)?{key}`", page)} == set()
    for bound in (
        f"{MAX_INDEX_BYTES >> 20} MiB, {hub_index.MAX_ENTRIES:,} entries, {MAX_INDEX_VALUES:,} values and commas",
        f"| versions of one name | {MAX_VERSIONS:,} |",
        f"| {hub_index.MAX_TEXT} characters |",
        f"| {hub_index.MAX_INTENTS} · {hub_index.MAX_LISTED} |",
        f"longer than {hub_index.MAX_NAME} characters; a version longer than {hub_index.MAX_VERSION}",
    ):
        assert bound in page, bound


# Searching


@pytest.fixture
def found() -> Callable[..., list[tuple[str, str]]]:
    """Return a function that searches a few artifacts: reason and name, without the scheme, of each hit."""
    made = parse_index(
        index(
            entry(name="hub://acme/mail", about={"intents": ["send_email", "list_folders"], "publisher": "Acme Post"}),
            entry(name="hub://acme/mail/actions/send-email", kind="action", about={"intents": ["Send email"]}),
            entry(
                name="hub://acme/mail/actions/tidy", kind="action", about={"description": "Sends an email to nobody."}
            ),
            entry(name="hub://zeta/chat", about={"hosts": ["chat.example.com:443"]}),
        )
    )

    def searched(text: str, kind: Any = None) -> list[tuple[str, str]]:
        return [(match, hit.name.removeprefix("hub://")) for match, hit in search(made, text, kind)]

    return searched


def test_a_search_ranks_matching_intents_above_names_and_names_above_other_words(
    found: Callable[..., list[tuple[str, str]]],
) -> None:
    """Each hit has its reason, and hits of one reason are sorted by name. Case, hyphens and underscores make no difference."""
    assert found("send EMAIL") == [
        ("intent", "acme/mail"),
        ("intent", "acme/mail/actions/send-email"),
        ("words", "acme/mail/actions/tidy"),
    ]
    assert found("send-email") == found("Send_Email") == found("send email")
    assert found("mail") == [
        ("name", "acme/mail"),
        ("name", "acme/mail/actions/send-email"),
        ("name", "acme/mail/actions/tidy"),
    ]
    assert found("post") == [("words", "acme/mail")]
    assert found("chat.example.com:443") == [("words", "zeta/chat")]
    assert found("hub://acme/mail/actions/tidy") == []
    assert found("acme/mail/actions/tidy") == [("name", "acme/mail/actions/tidy")]


def test_every_word_of_a_search_must_match(found: Callable[..., list[tuple[str, str]]]) -> None:
    """An empty search finds everything, and a search for one kind leaves out the others."""
    assert found("mail nowhere") == []
    assert [match for match, _ in found("")] == ["all"] * 4
    assert found("mail", "action") == found("mail")[1:]
    assert found("...", "connector") == [("all", "acme/mail"), ("all", "zeta/chat")]


@given(entries(), st.text(max_size=20))
def test_a_search_finds_only_artifacts_of_the_index_and_each_by_its_full_name(made: list[Entry], text: str) -> None:
    """The search may be any text."""
    read = parse_index(encoded(made))
    assert {hit.name for _, hit in search(read, text)} <= {artifact.name for artifact in made}
    for artifact in made:
        assert artifact in [hit for _, hit in search(read, artifact.name.removeprefix("hub://"))]


def test_the_newest_version_is_a_prerelease_only_if_all_versions_are_prereleases() -> None:
    """The description is read from that version."""
    published = [Published(version=version, hash=PIN) for version in ("2.0.0-rc.1", "1.10.0", "1.9.0")]
    asked: list[str] = []

    def about(version: str) -> About:
        asked.append(version)
        return About()

    made = entry_of(Fqn.parse("hub://acme/mail"), "connector", published, about)

    assert (made.version, asked) == ("1.10.0", ["1.10.0"])
    assert [release.version for release in made.versions] == sorted(
        (release.version for release in published), key=precedence
    )
    assert entry_of(Fqn.parse("hub://acme/mail"), "connector", published[:1], about).version == "2.0.0-rc.1"
