"""docs/how-to/use-a-service-account.md, followed as it stands, at a token endpoint that verifies signatures with PyJWT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.test_tutorial import ROOT, Shell, home, shell, with_its_own
from tests.oauth.test_oauth_assertion import pem
from tests.support.canary import scan
from tests.support.token_server import json_answer, oauth_error
from tests.support.upstream import Authority, Seen, Upstream, answer

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE: Final = ROOT / "docs" / "how-to" / "use-a-service-account.md"
EMAIL: Final = "robot@a-project.example.com"
BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Server:
    """A server that issues tokens to requests signed with one of two keys, and whose API accepts them."""

    def __init__(self, authority: Authority) -> None:
        self.keys = {name: rsa.generate_private_key(65537, 2048) for name in ("first", "second")}
        self.tokens: list[str] = []
        self.refusals: list[str] = []
        self.seen_ids: set[str] = set()
        self.issuer = Upstream(self._issue, authority.server_context("localhost"))
        self.api = Upstream(self._invoices, authority.server_context("localhost"))

    @property
    def token_url(self) -> str:
        """URL at which tokens are issued."""
        return f"https://localhost:{self.issuer.port}/token"

    def key_file(self, name: str) -> str:
        """Return the key file as it is downloaded."""
        return json.dumps(
            {
                "type": "service_account",
                "private_key_id": name,
                "private_key": pem(self.keys[name]).decode(),
                "client_email": EMAIL,
                "token_uri": self.token_url,
            },
            indent=2,
        )

    def _issue(self, seen: Seen) -> bytes:
        form = {name: values[0] for name, values in parse_qs(seen.body.decode()).items()}
        try:
            key = self.keys[jwt.get_unverified_header(form["assertion"])["kid"]].public_key()
            claims = jwt.decode(
                form["assertion"],
                key,
                algorithms=["RS256"],
                audience=self.token_url,
                issuer=EMAIL,
                options={"require": ["exp", "iat", "jti", "sub"]},
            )
            assert (form["grant_type"], claims["scope"]) == (BEARER, "invoices.read")
            assert claims["exp"] - claims["iat"] <= 3600
            assert claims["jti"] not in self.seen_ids
        except (KeyError, AssertionError, jwt.InvalidTokenError) as error:
            self.refusals.append(repr(error))
            return oauth_error("invalid_grant")
        self.seen_ids.add(claims["jti"])
        self.tokens.append(f"canary-minted-token-{len(self.tokens)}")
        return json_answer({"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": 3600})

    def _invoices(self, seen: Seen) -> bytes:
        if not self.tokens or seen.values("authorization") != [f"Bearer {self.tokens[-1]}"]:
            return answer(b"who?", status="401 Unauthorized")
        return answer(b"no invoice is open")


def test_every_step_of_the_service_account_page_works(shell: Shell, home: Path, authority: Authority) -> None:
    """The test does every step; two runs use one token, another key gets another, and no file has a key or a token."""
    server = Server(authority)
    with server.issuer, server.api:
        (home / "invoices").mkdir()
        (home / "robot.json").write_text(server.key_file("first"))
        (home / "new-robot.json").write_text(server.key_file("second"))
        issuer, api = f"localhost:{server.issuer.port}", f"localhost:{server.api.port}"
        shell.begin(issuer, api, ca_file=authority.ca_file)
        text = with_its_own(PAGE, ("https://auth.example.com/token", server.token_url), ("api.example.com:443", api))
        for _step, printed in shell.follow(text, home, lambda: server.refusals):
            assert "canary-minted" not in printed

    assert (len(server.tokens), server.refusals) == (2, [])
    secret = pem(server.keys["first"]).splitlines()[4]
    assert scan([home / ".aileron"], secret, *(token.encode() for token in server.tokens)) == {}
