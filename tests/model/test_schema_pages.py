"""The reference pages of the three TOML formats say what their schemas say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aileron.actions.manifest import SCHEMA as ACTION
from aileron.actions.manifest import parse_action
from aileron.model.document import Field, Kind
from aileron.model.manifest import HostFunction
from aileron.registry.manifest import WASI_NAMES, parse_connector_manifest
from aileron.registry.suite import MAX_ENTRIES, SuiteSource, parse_suite, wanted
from tests.support.schema_pages import COMMAND, PAGES, with_tables

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ACTION_PAGE = (REFERENCE / "action-file.md").read_text(encoding="utf-8")
CONNECTOR_PAGE = (REFERENCE / "connector-manifest.md").read_text(encoding="utf-8")
SUITE_PAGE = (REFERENCE / "suite.md").read_text(encoding="utf-8")


def example(page: str) -> str:
    """Return the page's one whole example."""
    (found,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_tables_of_keys_on_the_reference_pages_match_the_schemas(path: Path) -> None:
    """Each stands under the heading that names its TOML table; `make pages` writes them anew."""
    page = path.read_text(encoding="utf-8")

    assert page == with_tables(page, PAGES[path]), f"{path.name} is not what the schema says: {COMMAND}"


def test_a_table_of_keys_without_a_place_on_its_reference_page_is_an_error() -> None:
    """A new table of keys therefore cannot be left out of its page."""
    with pytest.raises(ValueError, match=r"no place for the tables of '\[new\]'"):
        with_tables(ACTION_PAGE, {**ACTION, "new": Field(Kind.TABLE, fields={"x": Field(Kind.STRING)})})
    with pytest.raises(ValueError, match=r"`\[approvals\]`: no end of its table, or no such table"):
        with_tables(ACTION_PAGE.replace("### `[approval]`", "### `[approvals]`"), ACTION)


def test_the_examples_on_the_reference_pages_are_valid() -> None:
    """Users copy these examples."""
    assert parse_action(example(ACTION_PAGE), file="example.md").name == "send-email"
    assert parse_connector_manifest(example(CONNECTOR_PAGE).encode(), file="example.toml").version == "1.2.0"


def test_the_example_on_the_suite_reference_page_names_the_actions_that_the_page_lists() -> None:
    """They are at the tag of the example's source, and no others are listed."""
    suite = parse_suite(example(SUITE_PAGE), file="suite.toml")
    (source,) = re.findall(r"^(github://\S+\.toml@v\S+)$", SUITE_PAGE, re.MULTILINE)
    wants = [str(request) for request in wanted(suite, SuiteSource.parse(source))]

    assert re.findall(r"^(github://\S+@[0-9]\S*)$", SUITE_PAGE, re.MULTILINE) == wants
    assert f"1 to {MAX_ENTRIES}" in SUITE_PAGE


def test_the_preview_example_on_the_action_reference_page_is_valid() -> None:
    """The preview is put into the whole example, beside the input and the operation that it names."""
    (preview,) = re.findall(r"```text\n(\[approval\.preview\].*?)```", ACTION_PAGE, re.DOTALL)
    text = example(ACTION_PAGE)
    for old, new in (
        ('["send_email"]', '["send_email", "get_draft"]'),
        ("[[execute]]", '[[inputs]]\nname = "draft_id"\ntype = "string"\ndescription = "Which."\n\n[[execute]]'),
        ('expires_in = "10m"\n', f'expires_in = "10m"\n\n{preview}'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    action = parse_action(text, file="example.md")

    assert action.preview is not None
    assert list(action.preview.render) == ["To", "Subject", "Text"]


def test_the_sign_in_example_on_the_reference_page_is_valid() -> None:
    """The sign-in is put into the whole example in place of its key."""
    (sign_in,) = re.findall(r"```text\n(\[capabilities\.credential\].*?)```", CONNECTOR_PAGE, re.DOTALL)
    before, _, rest = example(CONNECTOR_PAGE).partition("[capabilities.credential]")
    manifest = parse_connector_manifest(
        f"{before}{sign_in}\n[capabilities.runtime]{rest.partition('[capabilities.runtime]')[2]}".encode(),
        file="example.toml",
    )

    assert manifest.oauth2 is not None
    assert manifest.oauth2.authorize_params == (("access_type", "offline"), ("prompt", "consent"))
    assert manifest.limits.timeout_s == 60


def test_the_connector_reference_page_names_every_host_function() -> None:
    """The names are ours and those of the component model."""
    assert [name for name in (*HostFunction, *WASI_NAMES) if f"`{name}`" not in CONNECTOR_PAGE] == []
