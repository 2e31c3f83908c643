"""The frame of Aileron's pages: one document, one style sheet, and response headers that forbid everything else.

Pure; used by all code in the daemon that serves a page. The caller must escape what it puts into `body`.

Rules
- No script runs, nothing is loaded or sent anywhere, no site can frame the page, nothing is cached, and no referrer is sent to
  the next page.
- The style sheet is allowed by its hash, so a page cannot use another.

Source: CSP Level 3, docs/reference/http-api.md. Not here: the text of pages (daemon/http/pages.py, oauth/pages.py).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final, final

__all__ = ["PageFrame"]

_BASE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6570; --paper: #fcfcfb; --box: #f0f0ec; --line: #d9d9d2 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e3; --soft: #a3abb3; --paper: #16181a; --box: #212427; --line: #363a3e } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif }
main { margin: 0 auto; padding: 3.5rem 1.25rem }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .75rem }
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Aileron</title>
<style>{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""


@final
class PageFrame:
    """A template for HTML pages with Aileron's basic style and an additional `style`, which is CSS from Aileron's own code."""

    def __init__(self, style: str) -> None:
        self._style: Final = _BASE + style.strip() + "\n"
        allowed = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self.headers: Final = {
            "Content-Security-Policy": (
                f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        """Headers of every response in addition to its content type."""

    def html(self, title: str, body: str) -> str:
        """Return a complete HTML page. `title` and `body` are HTML."""
        return _PAGE.format(title=title, style=self._style, body=body)
