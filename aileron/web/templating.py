"""Rendering of every page: templates, one style sheet, one script, and the security headers of each response.

Runs in the daemon. jinja2 is imported with the first page, and the files in this folder are read once at that time.

Rules
- Every value is escaped, and hidden characters in it are spelled out (model/visible.py), without a filter in the
  template. A template that uses an undefined name raises an error.
- The style sheet and the script are inline and allowed by their hash: no page can add others, and nothing is loaded.
- A form is sent only to this server, no other page can frame this page, and no browser stores a page.
- The referrer policy is `same-origin`: under `no-referrer` a browser sends a form with `Origin: null` (Fetch, 3.2), and a form
  whose origin is not known is refused here.

Source: CSP Level 3; docs/reference/page.md. Not here: the contents of a page (questions.py).
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
"""Maximum number of characters of one alarm at the top of a card; its full text is further down on the page.

That is six lines on a phone, so three alarms leave room for the essentials.
"""
_FIELDS: Final = {**PageFrame("").headers, "Referrer-Policy": "same-origin"}


class PageTemplates(NamedTuple):
    """The Jinja templates of the pages, and the Content-Security-Policy that permits only their own style and script."""

    templates: jinja2.Environment
    policy: str


def html(template: str, http_status: int = 200, /, **values: Any) -> Response:
    """Return a response with the page made from `template` and `values`."""
    looks = page_templates()
    return with_fields(HTMLResponse(looks.templates.get_template(template).render(values), http_status))


def with_fields(response: Response) -> Response:
    """Add the header fields that restrict what the page in a response can do, and return the response."""
    response.headers.update({**_FIELDS, "Content-Security-Policy": page_templates().policy})
    return response


@functools.cache
def page_templates() -> PageTemplates:
    """Return the page's templates and Content-Security-Policy, which are read only once."""
    import jinja2
    import markupsafe

    def harmless(value: Any) -> Any:
        """Return a template's value with hidden characters spelled out.

        Jinja's `finalize` calls this as the last step before a value is escaped.
        """
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
    if "</" in text:  # it would end the <style> or <script> element
        raise ValueError(f"{name} holds the end of an element")
    return text


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
