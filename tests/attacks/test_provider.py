"""Attacks on a provider by a connector that is granted its host: to sign in by itself, as the publisher would, without
the person.

The provider serves its API from the same host and port, as many do; the connector is arbitrary code in a real jail.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.attacks.hostile import HOSTILE, kind_of
from tests.attacks.tally import Attack
from tests.support.home import PROBE, DaemonHome, daemon_home, probe_action
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

TOKEN: Final = "canary-access-token-in-use"
_SOURCE: Final = Path(__file__).parent / "connectors" / "hostile"
_PROVIDER: Final = """
[capabilities.credential]
kind = "oauth2"
scope = "A test"

[capabilities.credential.oauth2]
authorize_url = "http://localhost:{port}/authorize"
token_url = "http://localhost:{port}/oauth/token"
device_authorization_url = "http://localhost:{port}/oauth/device"
revocation_url = "http://localhost:{port}/oauth/revoke"
registration_url = "http://localhost:{port}/oauth/register"
client_id = "client-of-the-publisher"
client_secret = "readable-by-whoever-installs"
scopes = ["all"]
"""
_ASK: Final = """
there = invoke["hosts"][0]
asked = {{"type": "http", "id": 1, "method": {method!r}, "url": "http://localhost:%d" % there["port"] + {path!r},
         "headers": [], "body": "inline"}}
asked.update({more!r})
send(framed(asked, b"grant_type=urn:ietf:params:oauth:grant-type:device_code&client_id=client-of-the-publisher"))
head, _ = receive()
while not receive()[0].get("end"):
    pass
result(head["status"])
"""
_STREAM: Final = """
send(stream(1))
result(receive()[0]["type"])
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[CountingServer]:
    """Start a server that counts its requests."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def home(provider: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """Provide a home with the hostile connector, its provider, and a token for it."""
    source = Path(shutil.copytree(_SOURCE, tmp_path_factory.mktemp("hostile") / "source"))
    with (source / "manifest.toml").open("a", encoding="utf-8") as manifest:
        manifest.write(_PROVIDER.format(port=provider.port))
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{provider.port}"]\n')
        made.ask("GET", "/healthz")
        made.install(source, f"localhost:{provider.port}")
        made.unlock(TOKEN.encode())
        made.must("POST", "/v1/bindings", {"connector": HOSTILE, "name": "oauth2/hostile/me", "secret": "pw"})
        text = probe_action("go", "source:string", name="hostile").replace(PROBE, HOSTILE)
        made.must("POST", "/v1/actions", {"text": text, "file": "a test"})
        yield made


def asked(home: DaemonHome, path: str, method: str = "POST", **more: Any) -> object:
    """Return the status of the connector's request, or the reason of its denial."""
    answer = home.run("hostile", {"source": _ASK.format(method=method, path=path, more=more)})
    return answer.body["result"] if kind_of(answer) == "ok" else answer.body["error"]["details"]["reason"]


@pytest.mark.abuse_case("O5")
@pytest.mark.parametrize(
    "path",
    ["/oauth/token", "/oauth/device", "/oauth/revoke", "/oauth/register", "/OAuth//Token/", "/oauth%2ftoken", "/oauth/%2574oken",
     "/oauth/token;x", "/x%2f..%2foauth/token", "/oauth/token?grant_type=device_code", "/oauth/token%3f"],
)  # fmt: skip
def test_a_connector_cannot_request_tokens_from_the_provider(
    attack: Attack, home: DaemonHome, provider: CountingServer, path: str
) -> None:
    """Requests with its credential, without, and with a client of its own are denied, and none arrives. The API beside it
    is served.
    """
    provider.requests.clear()
    basic = [["Authorization", "Basic Y2xpZW50OnNlY3JldA=="]]
    attack.denied(f"POST {path}", "provider_endpoint", asked(home, path))
    attack.denied(f"POST {path} as the client", "provider_endpoint", asked(home, path, headers=basic))
    attack.denied(f"POST {path} with the token", "provider_endpoint", asked(home, path, credential="oauth2"))
    attack.denied(f"GET {path}", "provider_endpoint", asked(home, path, "GET"))
    attack.denied("what arrived", [], provider.requests)
    attack.control("the API at the same host", 200, asked(home, "/oauth/tokens", credential="oauth2"))
    attack.control("was sent the token", [("POST", "/oauth/tokens", f"Bearer {TOKEN}")], provider.requests)


@pytest.mark.abuse_case("O5")
def test_a_stream_to_the_provider_is_denied(attack: Attack, home: DaemonHome, provider: CountingServer) -> None:
    """A connector could otherwise speak HTTP to the provider in the stream by itself."""
    answer = home.run("hostile", {"source": _STREAM})
    attack.denied("a stream to the provider", "capability_denied", kind_of(answer))
    attack.denied("and why", "provider_endpoint", answer.body["error"]["details"]["reason"])
    attack.control("a request to the same host and port", 200, asked(home, "/"))
