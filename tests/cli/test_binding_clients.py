"""`aileron binding setup` for clients that get tokens by themselves: a key's file, a secret, a token or both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.home import DaemonHome, daemon_home

PROGRAM: Final = "from aileron_connector import op, run\n\n@op\ndef query():\n    return 1\n\nrun()\n"
TOKEN_URL: Final = "https://auth.example.com/token"
KEY: Final = rsa.generate_private_key(65537, 2048)
PEM: Final = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
PUBLIC: Final = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
ACCOUNT: Final = {
    "type": "service_account",
    "client_email": "robot@example.test",
    "private_key": PEM.decode(),
    "private_key_id": "k1",
    "token_uri": TOKEN_URL,
}
FILE: Final = "File of the private key (PEM or JWK), or of a service account's key (JSON): "
GRANTS: Final = {
    "account": ("jwt_bearer", "none"),
    "signing": ("client_credentials", "private_key_jwt"),
    "secret": ("client_credentials", "client_secret_post"),
    "token": ("token_exchange", "none"),
    "both": ("token_exchange", "client_secret_basic"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """A home with a connector for each grant, and an open vault."""
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        home.unlock()
        for name, (grant, auth) in GRANTS.items():
            source = tmp_path_factory.mktemp(name)
            (source / "__main__.py").write_text(PROGRAM)
            (source / "manifest.toml").write_text(f"""
[connector]
name = "github://aileron-tests/{name}"
version = "1.0.0"
[capabilities.network]
hosts = ["api.example.com:443"]
[capabilities.credential]
kind = "oauth2_client"
scope = "Read invoices"
[capabilities.credential.oauth2_client]
grant = "{grant}"
token_url = "{TOKEN_URL}"
client_auth = "{auth}"
[capabilities.runtime]
imports = ["http"]
""")
            home.install(source)
        yield home


def set_up(aileron: Command, name: str, *answers: tuple[str, str], who: str = "me") -> str:
    """Return what a person sees while binding the connector of that name."""
    words = ("binding", "setup", f"github://aileron-tests/{name}", "--name", f"oauth2_client/{name}/{who}")
    return flat(at_terminal(aileron, *words, answers=list(answers)))


def user_name(home: DaemonHome, name: str) -> str | None:
    """Return the client ID that was bound."""
    bound = {binding["name"]: binding for binding in home.must("GET", "/v1/bindings")["bindings"]}
    found: str | None = bound[f"oauth2_client/{name}/me"]["username"]
    return found


def test_setup_asks_for_no_client_id_if_the_key_file_contains_a_client_id(
    aileron: Command, home: DaemonHome, tmp_path: Path
) -> None:
    """A service account's file names its client; a bare key does not, so its client ID is asked for."""
    file = tmp_path / "robot.json"
    file.write_text(json.dumps(ACCOUNT, indent=2))
    said = set_up(aileron, "account", (FILE, str(file)))

    assert "a private key, or a service account's key file, stored in the vault, with which Aileron gets tokens" in said
    assert user_name(home, "account") is None
    file.write_bytes(PEM)
    set_up(aileron, "signing", (FILE, str(file)), ("Client ID: ", "a robot"))
    assert user_name(home, "signing") == "a robot"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"hunter2-hunter2", "is not a private key: PEM"),
        (PUBLIC, "a certificate, a public key or a client secret cannot sign"),
        (b'{"web": {"client_secret": "hunter2-hunter2"}}', "is JSON, but not a private JWK"),
    ],
    ids=["a client secret", "a public key", "the file of another client"],
)
def test_a_file_that_is_no_private_key_is_refused_and_not_stored(
    aileron: Command, home: DaemonHome, tmp_path: Path, data: bytes, problem: str
) -> None:
    """The error says what the file must be, and shows nothing of its content."""
    file = tmp_path / "key"
    file.write_bytes(data)
    before = home.must("GET", "/v1/secrets")
    client = [("Client ID: ", "x")] if data.startswith(b"{") else []
    said = set_up(aileron, "signing", (FILE, str(file)), *client, who="you")

    assert problem in said
    assert "hunter2" not in said
    assert home.must("GET", "/v1/secrets") == before


def test_client_secrets_and_tokens_are_typed_without_echo(aileron: Command, home: DaemonHome) -> None:
    """A secret needs its client ID, a token does not; secret and token together are stored as one value."""
    typed = "canary-that-is-typed"
    said = set_up(aileron, "secret", ("Client ID: ", "a robot"), ("Client secret: ", typed))
    said += set_up(aileron, "token", ("Token to exchange: ", typed))
    said += set_up(
        aileron, "both", ("Client ID: ", "a robot"), ("Client secret: ", typed), ("Token to exchange: ", f"{typed}-too")
    )

    assert typed not in said
    assert [user_name(home, name) for name in ("secret", "token", "both")] == ["a robot", None, "a robot"]
