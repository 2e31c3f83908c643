"""How every page looks and what it may do: templates, one style, one script, and the fields of each answer.

Runs in the daemon. jinja2 is imported with the first page, and the files beside this one are read then, once.

Rules
- What is printed is escaped, whoever wrote it, and hidden characters in it are spelled out (model/visible.py), even where a
  template forgot to. A name that a template does not know is an error.
- The style and the script stand in the page and are allowed by their hash: no page can bring another, and nothing is loaded.
- A form leads here and nowhere else, nobody frames a page, and nothing of it is kept.
- The referrer policy is `same-origin`: under `no-referrer` a browser sends a form with `Origin: null` (Fetch, 3.2), and a form
  whose origin nobody can see is refused here.

Source: CSP Level 3; docs/reference/page.md. Not here: what is on a page (questions.py).
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import HTMLResponse, Response

from aileron.model.page import PageFrame
from aileron.model.visible import visible

if TYPE_CHECKING:
    import jinja2

__all__ = ["html", "with_fields"]

_FOLDER: Final = Path(__file__).parent / "templates"
_MOST_ALARM: Final = 200
"""Characters of one alarm, six lines of a phone, so that three of them leave room for what decides. All of it stands below."""
_FIELDS: Final = {**PageFrame("").headers, "Referrer-Policy": "same-origin"}


class PageTemplates(NamedTuple):
    """The pages, and the policy that lets their own style and script run, and nothing else."""

    templates: jinja2.Environment
    policy: str


def html(template: str, http_status: int = 200, /, **values: Any) -> Response:
    """A page."""
    looks = page_templates()
    return with_fields(HTMLResponse(looks.templates.get_template(template).render(values), http_status))


def with_fields(response: Response) -> Response:
    """With what keeps it from doing more than it should."""
    response.headers.update({**_FIELDS, "Content-Security-Policy": page_templates().policy})
    return response


@functools.cache
def page_templates() -> PageTemplates:
    """Read once."""
    import jinja2
    import markupsafe

    def harmless(value: Any) -> Any:
        """Jinja's finalize: the last that is done to a value before it is escaped."""
        if isinstance(value, markupsafe.Markup):
            return value
        return visible(value) if isinstance(value, str) else value

    style, script = _part("page.css"), _part("page.js") + _part("passkeys.js")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=harmless,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(style=markupsafe.Markup(style), script=markupsafe.Markup(script))  # noqa: S704 - our files
    environment.globals["most_alarm"] = _MOST_ALARM
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return PageTemplates(environment, policy)


def _part(name: str) -> str:
    text = (_FOLDER / name).read_text(encoding="utf-8")
    if "</" in text:  # it would end the element it stands in
        raise ValueError(f"{name} holds the end of an element")
    return text


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
