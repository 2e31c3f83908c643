"""Common rules of all pages: escaping, and no cost for the daemon before the first page."""

from __future__ import annotations

import subprocess
import sys

import jinja2
import pytest

from aileron.web import templating
from tests.support.hostile_text import CORPUS, assert_harmless


def test_the_template_engine_is_not_imported_before_the_first_page() -> None:
    """The daemon's other modules do without it."""
    program = (
        "import sys, aileron.daemon.rooms; print([name for name in ('jinja2', 'markupsafe') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert said == "[]\n"


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_a_page_template_escapes_everything_that_it_prints(text: str) -> None:
    """Hidden characters are spelled out and markup is escaped, even in a template that forgets to; our markup passes."""
    environment = templating.page_templates().templates
    shown = environment.from_string("<p>{{ text }}</p>").render(text=text)

    assert_harmless(shown)
    assert "<" not in shown.removeprefix("<p>").removesuffix("</p>")


def test_an_undefined_name_in_a_page_template_is_an_error() -> None:
    """The alternative would be an empty place on the page."""
    with pytest.raises(jinja2.UndefinedError):
        templating.page_templates().templates.from_string("{{ nothing }}").render()


def test_the_pages_style_and_script_cannot_close_their_own_html_element() -> None:
    """Both are inserted into the page as they are."""
    environment = templating.page_templates().templates

    for name in ("style", "script"):
        text = environment.globals[name]
        assert isinstance(text, str)
        assert "</" not in text
        assert "<!--" not in text
