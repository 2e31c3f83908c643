"""What every page has in common, and that it costs the daemon nothing before the first one."""

from __future__ import annotations

import subprocess
import sys

import jinja2
import pytest

from aileron.web import templating
from tests.support.hostile_text import CORPUS, assert_harmless


def test_templates_are_not_imported_before_the_first_page() -> None:
    """Nor by anything else of the daemon: its rooms do without them."""
    program = (
        "import sys, aileron.daemon.rooms; print([name for name in ('jinja2', 'markupsafe') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert said == "[]\n"


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_what_a_template_prints_is_harmless_even_where_nobody_thought_of_it(text: str) -> None:
    """Hidden characters are spelled out, and it is escaped; what is ours passes."""
    environment = templating.page_templates().templates
    shown = environment.from_string("<p>{{ text }}</p>").render(text=text)

    assert_harmless(shown)
    assert "<" not in shown.removeprefix("<p>").removesuffix("</p>")


def test_a_name_that_a_template_does_not_know_is_an_error() -> None:
    """And no empty place."""
    with pytest.raises(jinja2.UndefinedError):
        templating.page_templates().templates.from_string("{{ nothing }}").render()


def test_neither_style_nor_script_can_end_its_element() -> None:
    """They stand in the page as they are."""
    environment = templating.page_templates().templates

    for name in ("style", "script"):
        assert "</" not in environment.globals[name]
        assert "<!--" not in environment.globals[name]
