"""Google under its real names: a provider where a person signs in, and Gmail and Calendar behind it.

    with google(machine, authority, folder) as stand:
        with stand.desktop.watch(stand.signs_in): …        # `aileron add google`, which opens a browser

The provider is tests/support/token_server.py, the browser a few lines (tests/support/signed_in.py), and the API is in
tests/support/google.py. The real provider and a real browser are in tests/browser.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.browser.test_commands import Desktop
from tests.support.google import NAMES as APIS
from tests.support.google import SCOPES, GoogleServer
from tests.support.real_names import RealNames
from tests.support.signed_in import called_back
from tests.support.token_server import TokenServer, id_token, json_answer, tokens_answer
from tests.support.upstream import Authority

__all__ = ["CLIENT_ID", "NAMES", "GoogleStand", "google"]

ACCOUNT: Final = "mira@example.com"
CLIENT_ID: Final = "1234567890-mira.apps.googleusercontent.com"
CLIENT_SECRET: Final = "GOCSPX-canary-client-secret"
_TOKENS: Final = "oauth2.googleapis.com"
NAMES: Final = (_TOKENS, *APIS)
"""Names that lead to servers of the test. accounts.google.com is only for browsers."""


@dataclasses.dataclass(frozen=True)
class GoogleStand:
    """Google, with one account. `application` are the options for a client that the person registered."""

    machine: RealNames
    provider: TokenServer
    api: GoogleServer
    desktop: Desktop
    application: tuple[str, ...]
    scopes: list[str]
    """Scopes that the person allows at the next sign-in."""

    def signs_in(self, url: str) -> None:
        """Consent as the person on the provider's page, whose address the command opened."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith("https://accounts.google.com/o/oauth2/v2/auth?")
        assert asked["scope"].split() == list(SCOPES)
        claims = {"iss": "https://accounts.google.com", "aud": CLIENT_ID, "sub": "1", "email": ACCOUNT}
        nonce = {"nonce": asked["nonce"]} if "nonce" in asked else {}
        token = f"ya29.canary-{len(self.api.asked)}"
        self.api.allow(token, self.scopes)
        tokens = tokens_answer(
            access_token=token,
            refresh_token="1//canary-refresh-token",
            scope=" ".join(self.scopes),
            id_token=id_token({**claims, **nonce}),
        )
        self.provider.says(json_answer(tokens))
        back = {"code": "a-code-of-the-provider", "state": asked["state"], "iss": "https://accounts.google.com"}
        called_back(url, self.machine.connect, **back)


@contextlib.contextmanager
def google(
    machine: RealNames, authority: Authority, folder: Path, scopes: Iterable[str] = SCOPES
) -> Iterator[GoogleStand]:
    """Provide Google, and a desktop with a browser; the person will allow these scopes."""
    file = folder / "client-secret.txt"
    file.write_text(f"{CLIENT_SECRET}\n", encoding="ascii")
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(TokenServer(authority.server_context(_TOKENS)))
        api = stack.enter_context(GoogleServer(authority.server_context(*APIS), account=ACCOUNT))
        stack.enter_context(machine.pass_on(_TOKENS, 443, provider.port))
        for name in APIS:
            stack.enter_context(machine.pass_on(name, 443, api.port))
        options = ("--client-id", CLIENT_ID, "--client-secret-file", str(file))
        yield GoogleStand(machine, provider, api, Desktop(folder), options, list(scopes))
