"""Suites: what is read, what is refused with a line, and which artifacts to install."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import tool_name
from aileron.registry.artifact import ArtifactRequest
from aileron.registry.suite import MAX_ENTRIES, InRepository, Suite, SuiteSource, parse_suite, wanted
from tests.registry.conftest import refusal as failure_of
from tests.support.plain_host import ROOT

COMMIT = "0123456789abcdef" * 2 + "01234567"
SOURCE = SuiteSource.parse("github://acme/tools/suite.toml@v1.2.0")
SEGMENTS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,12}", fullmatch=True)
VERSIONS = st.sampled_from(["1.0.0", "0.0.0-dev", "2.1.3-rc.1", "1.2.0+sha.abc"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
NAMES = st.builds(
    lambda scheme, path, version: f"{scheme}://{'/'.join(path)}@{version}",
    st.sampled_from(["github", "gitlab", "hub"]),
    st.lists(SEGMENTS, min_size=2, max_size=5),
    VERSIONS,
)
ENTRIES = st.lists(
    PATHS | NAMES,
    min_size=1,
    max_size=8,
    unique_by=lambda text: tool_name(
        text.rpartition("@")[0].rpartition("/")[2] if "@" in text else text.rpartition("/")[2]
    ),
)
REFS = st.sampled_from(["v1.2.0", "slack/v1.2.0", "a/b/v2.0.0-rc.1", "latest", "main", COMMIT])


def suite_text(*entries: str, head: str = 'name = "work"\ndescription = "What we use."') -> str:
    """Return a suite with these entries, each on a line of its own: the first on line 4."""
    return "\n".join([head, "actions = [", *(f'  "{entry}",' for entry in entries), "]", ""])


def parse(text: str) -> Suite:
    """Parse the suite under the file name of this module."""
    return parse_suite(text, file="suite.toml")


def refusal(text: str, source: SuiteSource | None = None) -> str:
    """Return the message with which the suite, or its use from that source, is refused."""
    failure = failure_of(lambda: wanted(parse(text), source))
    assert (failure.failure_class, failure.boundary) == (FailureClass.INVALID_REQUEST, Boundary.ACTION)
    assert failure.details["file"] == "suite.toml"
    return failure.message


# The file


def test_a_suite_is_read_with_the_line_of_each_entry() -> None:
    """Entries are paths with and without a leading slash, and full names, in the order of the file."""
    suite = parse(
        suite_text("actions/list-channels", "/slack/actions/ship-update", "gitlab://acme/mail/send@1.0.0-rc.1")
    )

    assert (suite.name, suite.description) == ("work", "What we use.")
    assert [(str(entry.what), entry.line) for entry in suite.entries] == [
        ("actions/list-channels", 4),
        ("slack/actions/ship-update", 5),
        ("gitlab://acme/mail/send@1.0.0-rc.1", 6),
    ]


ENTRY = "actions/a"
WRONG = [
    ('name = "work"', "", ":1: missing key 'name' (string)"),
    ('description = "What we use."', "", ":1: missing key 'description' (string)"),
    (
        'name = "work"',
        'name = "work"\nversion = "1"',
        ":2: unknown key 'version'; expected one of name, description, act",
    ),
    ('name = "work"', 'name = "work"\naction = ["x"]', ":2: unknown key 'action'; did you mean 'actions'?"),
    ('name = "work"', "name = 7", ":1: 'name' is an integer; expected a string"),
    ('name = "work"', 'name = " "', ":1: name is empty or longer than 100 characters"),
    ('name = "work"', f'name = "{"x" * 101}"', ":1: name is empty or longer than 100 characters"),
    ('"What we use."', '""', ":2: description is empty or longer than 500 characters"),
    ('"What we use."', '"What\\u202ewe use."', ":2: 'description' holds a hidden character: U+202E"),
    ('"What we use."', '"What\\nwe use."', ":2: 'description' holds a hidden character: U+000A"),
    ('  "actions/a",\n', "", ":3: actions is empty; expected 1 to 100"),
    ('"actions/a"', "7", ":3: 'actions' is an array"),
    ('"actions/a"', '""', ":4: actions: an entry is empty or longer than 512 characters"),
    ("actions/a", "a/" * 300 + "a", ":4: actions: an entry is empty or longer than 512 characters"),
    (
        "actions/a",
        "actions/../a",
        ":4: actions: 'actions/../a' is neither a path such as actions/NAME nor NAME@VERSION",
    ),
    ("actions/a", "//actions/a", ":4: actions: '//actions/a' is neither a path"),
    ("actions/a", "./actions/a", ":4: actions: './actions/a' is neither a path"),
    ("actions/a", "actions/a/", ":4: actions: 'actions/a/' is neither a path"),
    ("actions/a", "actions\\\\a", ":4: actions: 'actions\\\\a' is neither a path"),
    ("actions/a", "actions/\u0430", ":4: actions: 'actions/\u0430' is neither a path"),  # Cyrillic a
    ("actions/a", "actions/a@1.0.0", ":4: actions: 'actions/a@1.0.0' is a path and gets the version of its suite"),
    ("actions/a", "actions/A", ":4: actions: 'actions/A' ends in 'A', which is not a valid action name"),
    ("actions/a", "actions/a/action.md", ":4: actions: 'actions/a/action.md' is a file; name the folder"),
    ("actions/a", "github://acme/mail/a", ":4: actions: 'github://acme/mail/a' has no version"),
    ("actions/a", "github://acme/mail/a@latest", ":4: actions: 'latest' is not a SemVer version"),
    ("actions/a", "github://acme/mail/a@^1.0.0", ":4: actions: '^1.0.0' is not a SemVer version"),
    ("actions/a", "github://acme/mail/a@v1.0.0", ":4: actions: 'v1.0.0' is not a SemVer version"),
    ("actions/a", "github://acme@1.0.0", ":4: actions: 'github://acme' names no repository"),
    ("actions/a", "https://acme.example/a@1.0.0", ":4: actions: 'https://acme.example/a' has no known scheme"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[message[:60] for _, _, message in WRONG])
def test_each_mistake_is_reported_with_its_file_line_and_fix(old: str, new: str, message: str) -> None:
    """Each case adds one mistake to a valid suite."""
    text = suite_text(ENTRY)
    assert wanted(parse(text), SOURCE) == (ArtifactRequest.parse("github://acme/tools/actions/a@1.2.0"),)
    assert text.count(old) == 1

    assert f"suite.toml{message}" in refusal(text.replace(old, new), SOURCE)


@pytest.mark.parametrize(
    ("entry", "other"),
    [
        ("actions/a", "/actions/a"),
        ("actions/a", "more/a"),
        ("actions/a-b", "actions/a.b"),
        ("actions/a", "github://acme/mail/a@1.0.0"),
        ("github://acme/mail/a@1.0.0", "github://acme/mail/a@1.1.0"),
    ],
)
def test_two_entries_that_would_be_one_action_are_refused(entry: str, other: str) -> None:
    """Only one of two actions of the same name, or of the same tool name, could be installed. The message names both lines."""
    assert len(parse(suite_text(entry, "actions/x", other.replace("/a", "/other"))).entries) == 3

    message = refusal(suite_text(entry, "actions/x", other))
    assert message.startswith("suite.toml:6: actions: ")
    assert "in line 4: remove one" in message


def test_a_suite_has_at_most_a_hundred_actions() -> None:
    """A person has to go through them all."""
    entries = [f"actions/a{number}" for number in range(MAX_ENTRIES + 1)]

    assert len(parse(suite_text(*entries[:-1])).entries) == MAX_ENTRIES
    assert "suite.toml:3: actions has 101 entries; expected 1 to 100" in refusal(suite_text(*entries))


@given(ENTRIES)
def test_a_written_suite_is_read_back(entries: list[str]) -> None:
    """Each entry keeps its place and its spelling; writing the suite again gives the same text."""
    suite = parse(suite_text(*entries))

    assert [str(entry.what) for entry in suite.entries] == entries
    assert parse(suite_text(*(str(entry.what) for entry in suite.entries))) == suite


@given(st.text(), st.integers(0, 200), st.integers(0, 200))
def test_any_text_is_a_suite_or_refused(piece: str, start: int, end: int) -> None:
    """Any part of a valid suite is replaced; AileronError is the only exception."""
    text = suite_text("actions/a", "github://acme/mail/b@1.0.0")
    for mutated in (piece, text[:start] + piece + text[end:]):
        with contextlib.suppress(AileronError):
            assert wanted(parse(mutated), SOURCE)


# Where it is published


@pytest.mark.parametrize(
    ("text", "path", "ref"),
    [
        ("github://acme/tools/suite.toml@v1.2.0", "suite.toml", "v1.2.0"),
        ("gitlab://acme/tools/suites/work.toml@latest", "suites/work.toml", "latest"),
        (f"hub://acme/tools/slack/suite.toml@{COMMIT}", "slack/suite.toml", COMMIT),
        ("github://acme/tools/suite.toml@slack/v1.2.0", "suite.toml", "slack/v1.2.0"),
    ],
)
def test_a_suite_source_is_a_file_of_a_repository_at_a_ref(text: str, path: str, ref: str) -> None:
    """A tag may have slashes."""
    source = SuiteSource.parse(text)

    assert str(source.repository) == f"{text.partition('://')[0]}://acme/tools"
    assert (source.path, source.ref, source.is_latest) == (path, ref, ref == "latest")
    assert str(source) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("github://acme/tools/suite.toml", "has no ref; expected FILE@TAG, FILE@COMMIT or FILE@latest"),
        ("github://acme/tools/suite.toml@", "is not a tag, a commit or 'latest'"),
        ("github://acme/tools/suite.toml@v1@v2", "is not a tag"),
        ("github://acme/tools/suite.toml@../v1", "is not a tag"),
        ("github://acme/tools@v1.0.0", "names no file; expected github://OWNER/REPOSITORY/suite.toml@REF"),
        ("github://acme/tools/actions/a@v1.0.0", "names no file"),
        ("github://acme/../suite.toml@v1.0.0", "path segment '..'"),
        ("https://acme.example/tools/suite.toml@v1.0.0", "has no known scheme"),
        ("suite.toml@v1.0.0", "has no known scheme"),
        ("github://acme/tools/s\u0443ite.toml@v1.0.0", "path segment"),  # Cyrillic u
    ],
)
def test_an_invalid_suite_source_is_refused(text: str, words: str) -> None:
    """The refusal says what was expected."""
    assert SuiteSource.parse("github://acme/tools/suite.toml@v1.0.0").ref == "v1.0.0"
    with pytest.raises(ValueError, match=re.escape(words)):
        SuiteSource.parse(text)


@given(st.text() | st.builds(lambda path, ref: f"github://acme/tools/{path}.toml@{ref}", PATHS, st.text() | REFS))
def test_any_text_is_a_suite_source_or_refused(text: str) -> None:
    """A source has one spelling: it is written as it was read."""
    with contextlib.suppress(ValueError):
        assert str(SuiteSource.parse(text)) == text


# What to install


@given(ENTRIES, REFS)
def test_suite_paths_get_the_version_of_the_tag_and_full_names_keep_their_own(entries: list[str], ref: str) -> None:
    """Paths start at the top of the repository, whatever stands before the version in the tag. Refs do not change full names."""
    suite, source = parse(suite_text(*entries)), SOURCE.at(ref)
    version = ref.rpartition("/v")[2].removeprefix("v")
    has_version = ref not in ("latest", "main", COMMIT)
    if not has_version and any(isinstance(entry.what, InRepository) for entry in suite.entries):
        assert f"suite.toml:{_first_path(suite)}: actions: " in refusal(suite_text(*entries), source)
        return

    assert [str(request) for request in wanted(suite, source)] == [
        entry if "@" in entry else f"github://acme/tools/{entry}@{version}" for entry in entries
    ]


def _first_path(suite: Suite) -> int:
    return next(entry.line for entry in suite.entries if isinstance(entry.what, InRepository))


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        (COMMIT, f"{COMMIT} is a commit: write it in full, NAME@VERSION"),
        ("main", "'main' is not a tag such as v1.2.0: write it in full"),
        ("latest", "'latest' is not a tag such as v1.2.0"),
        ("1.2.0", "'1.2.0' is not a tag such as v1.2.0"),
        ("v1.2", "the tag 'v1.2' does not end in v and a SemVer version"),
        ("v1.2.0/slack", "'v1.2.0/slack' is not a tag such as v1.2.0"),
        ("very/new", "'very/new' is not a tag"),
    ],
)
def test_a_path_needs_a_tag_with_a_version(ref: str, words: str) -> None:
    """The refusal names the line of the path; full names need no such tag."""
    in_full = "github://acme/mail/b@1.0.0"

    assert wanted(parse(suite_text(in_full)), SOURCE.at(ref)) == (ArtifactRequest.parse(in_full),)
    message = refusal(suite_text(in_full, "actions/a"), SOURCE.at(ref))
    assert message.startswith("suite.toml:5: actions: 'actions/a' is a path and gets the version of its suite, but ")
    assert words in message


def test_a_local_suite_must_name_its_actions_in_full() -> None:
    """A local suite must therefore name its actions in full."""
    in_full = "github://acme/mail/b@1.0.0"

    assert wanted(parse(suite_text(in_full)), None) == (ArtifactRequest.parse(in_full),)
    assert "suite.toml:5: actions: 'actions/a' is a path and gets the version of its suite, but a file on" in refusal(
        suite_text(in_full, "actions/a")
    )


def test_an_invalid_ref_from_a_forge_is_refused() -> None:
    """A forge says what `latest` is, and its answer becomes a part of addresses."""
    assert SuiteSource.parse("github://acme/tools/suite.toml@latest").at("v2.0.0").ref == "v2.0.0"
    with pytest.raises(ValueError, match="is not a tag"):
        SOURCE.at("../../other")


# What ships


def test_the_slack_suite_names_all_slack_actions() -> None:
    """The entries start at the top of the publishing repository, and each matches its action's source."""
    folder = ROOT / "connectors" / "slack"
    suite = parse_suite((folder / "suite.toml").read_text(encoding="utf-8"), file="suite.toml")
    source = SuiteSource.parse("github://aileron/connectors/slack/suite.toml@slack/v0.0.0-dev")
    actions = [
        parse_action(path.read_text(encoding="utf-8"), file=str(path), allow_placeholder=True)
        for path in sorted((folder / "actions").glob("*/action.md"))
    ]

    assert sorted(str(request) for request in wanted(suite, source)) == [action.source for action in actions]
