"""Attacks by way of a service that keeps the credential it was sent and shows it later: the connector wants the token itself.

A real daemon, real jails, and a server that remembers the newest `Authorization` and shows it at `/log`, in any form it is
asked for. Two connectors read it: one that has the credential and does not name it, before it was lent anything; and one that
reaches the same host and has none. They use HTTP, partial and compressed responses, and a stream of bytes.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import Answer
from tests.attacks.tally import Attack
from tests.support.canary import find
from tests.support.home import DaemonHome, daemon_home
from tests.support.upstream import Seen, Upstream, answer

pytestmark = pytest.mark.jail

OWNER, STRANGER = "github://aileron-tests/reflector", "github://aileron-tests/stranger"
SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "reflector"
KEY, NEXT = b"canary-7Gq2Zw9tK0hLmPxV", b"canary-next-8Hr3Ax0uL1iM"
MODELS = b"canary-models-5Yt1Bv8rN4jQ"
BINDING = "basic/probe/me"
SHOWN: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda sent: answer(sent, f"X-Last: {sent.decode()}"),
    "gzip, unlabelled": lambda sent: answer(gzip.compress(sent * 3)),
    "deflate, unlabelled": lambda sent: answer(zlib.compress(sent * 3)),
    "base64 in lines": lambda sent: answer(base64.encodebytes(b"x" * 50 + sent)),
    "spaced hex": lambda sent: answer(binascii.hexlify(sent, " ")),
    "hex of bytes": lambda sent: answer("".join(f"\\x{byte:02x}" for byte in sent).encode()),
    "entities": lambda sent: answer("".join(f"&#{byte};" for byte in sent).encode()),
    "base32": lambda sent: answer(base64.b32encode(sent)),
    "UTF-32": lambda sent: answer(sent.decode().encode("utf-32-le")),
    "in capitals": lambda sent: answer(sent.upper()),
}
_RAW = '''

@op
def raw(host: str = "", port: int = 0):
    """HTTP by hand, where no field is ours to drop."""
    from aileron_connector import tcp
    try:
        with tcp.connect(host, port, tls=False) as stream:
            stream.sendall(b"GET /log HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
            return {"seen": stream.recv(65536).decode("latin-1")}
    except OSError as error:
        return {"seen": repr(error)}
'''


class Keeper:
    """The service: it keeps the last credential, and shows it in the selected form."""

    def __init__(self) -> None:
        self.kept = b"nothing yet"
        self.shows = "as it is"
        self.heard: list[Seen] = []

    def __call__(self, seen: Seen) -> bytes:
        self.heard.append(seen)
        if sent := seen.values("authorization"):
            self.kept = base64.b64decode(sent[0].removeprefix("Basic ")).partition(b":")[2]
        if seen.values("range"):
            half = self.kept[: len(self.kept) // 2]
            return answer(half, f"Content-Range: bytes 0-9/{len(self.kept)}", status="206 Partial Content")
        return SHOWN[self.shows](self.kept) if seen.target == "/log" else answer(b"noted")


class Scene:
    """A home with both connectors, the service, and short ways to ask."""

    def __init__(self, home: DaemonHome, service: Keeper, upstream: Upstream) -> None:
        self.home, self.service, self.upstream = home, service, upstream

    def ask(self, action: str, **args: Any) -> Answer:
        """Run an action."""
        return self.home.run(action, args if action == "stream" else {"path": "/log", **args})

    def read(self, action: str, **args: Any) -> str:
        """Run an action, and return what the connector was shown."""
        got = self.ask(action, **args)
        assert got.status == 200, got.body
        return str(got.body["result"]["seen"])

    def refused(self, action: str, **args: Any) -> dict[str, Any]:
        """Run an action that must fail, and return its error."""
        error: dict[str, Any] = self.ask(action, **args).body["error"]
        return error


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Provide a scene in which the credential's owner has sent it once; from then on the daemon lends it only if a test asks."""
    service, folder = Keeper(), Path(tempfile.mkdtemp(prefix="ail-stranger-"))
    try:
        with Upstream(service) as upstream, daemon_home() as home:
            host = f"localhost:{upstream.port}"
            home.configure(f'[egress]\nprivate_plain = ["{host}"]\n')
            home.ask("GET", "/healthz")
            home.install(SOURCE, host)
            home.install(_stranger(folder / "stranger"), host)
            for connector, name in ((OWNER, "own"), (STRANGER, "strange")):
                home.add_probe_action(
                    "ask", "path:string?", "credential:string?", "header:string?", name=name, connector=connector
                )
            home.add_probe_action("raw", "host:string", "port:integer", name="stream", connector=STRANGER)
            scene = Scene(home, service, upstream)
            _check_that_it_shows(scene)
            home.unlock(KEY)
            home.must("POST", "/v1/bindings", {"connector": OWNER, "name": BINDING, "username": "mira", "secret": "pw"})
            assert "noted" in scene.read("own", path="/")
            assert service.kept == KEY
            yield scene
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stranger(source: Path) -> Path:
    """Copy the connector under another name, without a credential and with streams, and return its folder."""
    shutil.copytree(SOURCE, source)
    manifest, program = source / "manifest.toml", source / "connector.py"
    before, _, rest = manifest.read_text().partition("[capabilities.credential]")
    text = before + rest[rest.index("[capabilities.runtime]") :]
    text = text.replace(OWNER, STRANGER).replace('imports = ["http",', 'imports = ["http", "tcp",')
    manifest.write_text(text)
    code = program.read_text().replace('credential: str = "basic"', 'credential: str = ""')
    main = code.index("\n\nif __name__")
    program.write_text(code[:main] + _RAW + code[main:])
    return source


def _check_that_it_shows(scene: Scene) -> None:
    """Check the control of every test here: before it is bound, the stranger sees the secret, by HTTP, in parts and
    by a stream.
    """
    scene.service.kept = KEY
    assert KEY.decode() in scene.read("strange")
    assert KEY.decode()[:10] in scene.read("strange", header="Range: bytes=0-9")
    assert KEY.decode() in scene.read("stream", host="localhost", port=scene.upstream.port)


@pytest.mark.abuse_case("E36")
@pytest.mark.parametrize("action", ["own", "strange"])
def test_a_credential_that_a_service_stored_is_masked_in_every_connectors_responses(
    attack: Attack, scene: Scene, action: str
) -> None:
    """The service returns it later, to a request of the same connector without a credential and to another connector's."""
    for scene.service.shows in SHOWN:
        seen = scene.read(action, credential="")
        attack.denied(f"{action}: shown {scene.service.shows}", [], find(seen.encode("latin-1"), KEY))
        attack.denied("in capitals", False, KEY.decode().upper() in seen)
        masked = "contains a secret" if "unlabelled" in scene.service.shows else "*" * 8
        attack.control("the answer came, with stars, or was refused for what is in it", True, masked in seen)


@pytest.mark.abuse_case("E38")
@pytest.mark.parametrize("action", ["own", "strange"])
def test_a_range_request_gets_the_whole_scrubbed_response(attack: Attack, scene: Scene, action: str) -> None:
    """Parts of a secret could not be recognized, so egress removes the Range field before the service sees it."""
    scene.service.shows, before = "as it is", len(scene.service.heard)
    seen = scene.read(action, header="Range: bytes=0-9")

    attack.denied("Range", [[]], [each.values("range") for each in scene.service.heard[before:]])
    attack.denied("the first half", False, KEY.decode()[:10] in seen)
    attack.control("the whole answer", ("200", True), (seen[:3], "*" * len(KEY) in seen))


@pytest.mark.abuse_case("E37")
def test_a_stream_to_a_host_with_a_bound_credential_is_denied(attack: Attack, scene: Scene) -> None:
    """Streams are not scrubbed: before the credential was bound, the same stream showed the secret."""
    error = scene.refused("stream", host="localhost", port=scene.upstream.port)

    attack.denied(
        "HTTP in a stream", ("capability_denied", "stream_credential"), (error["class"], error["details"]["reason"])
    )
    attack.control("HTTP", "200", scene.read("strange")[:3])


@pytest.mark.abuse_case("E36")
def test_a_locked_vault_prevents_requests_to_the_service(attack: Attack, scene: Scene) -> None:
    """Secrets to mask are unknown while the vault is locked, so requests and streams to the service are refused."""
    scene.service.shows, before = "as it is", len(scene.service.heard)
    scene.home.must("POST", "/v1/vault/lock", {})
    for action in ("own", "strange"):
        attack.denied(f"{action}, locked", "vault_locked", scene.refused(action, credential="")["class"])
    stream = scene.refused("stream", host="localhost", port=scene.upstream.port)
    attack.denied("a stream, locked", "stream_credential", stream["details"]["reason"])
    attack.denied("what arrived", 0, len(scene.service.heard) - before)
    scene.home.unlock()

    attack.control("open again", True, "*" * len(KEY) in scene.read("strange"))


@pytest.mark.abuse_case("E36")
def test_a_replaced_secret_is_still_masked(attack: Attack, scene: Scene) -> None:
    """Both the old and the new secret are masked, even after the vault was locked and the binding revoked."""
    scene.service.shows = "as it is"
    scene.home.must("PUT", "/v1/secrets/pw", {"value_base64": base64.b64encode(NEXT).decode()})
    for scene.service.kept in (KEY, NEXT):
        attack.denied("after a rotation", [], find(scene.read("strange").encode(), KEY, NEXT))
    scene.home.must("POST", "/v1/vault/lock", {})
    scene.home.unlock()
    scene.home.must("DELETE", f"/v1/bindings/{BINDING}")
    for scene.service.kept in (KEY, NEXT):
        attack.denied("after a lock and a revocation", [], find(scene.read("strange").encode(), KEY, NEXT))
    scene.service.kept = b"another-text-of-the-service"

    attack.control("what was never bound", True, "another-text-of-the-service" in scene.read("strange"))


@pytest.mark.abuse_case("E36")
def test_a_key_of_the_gateway_is_masked_in_responses(attack: Attack, scene: Scene) -> None:
    """Only the settings name this key, not a binding: it is masked once they do, and after a restart."""
    home, service, host = scene.home, scene.service, f"localhost:{scene.upstream.port}"
    service.shows, service.kept = "as it is", MODELS
    home.must("PUT", "/v1/secrets/models", {"value_base64": base64.b64encode(MODELS).decode()})
    attack.control("before it is a key", True, MODELS.decode() in scene.read("strange"))
    settings = f'[egress]\nprivate_plain = ["{host}"]\n'
    home.configure(f'{settings}[gateway.upstreams]\nopenai = {{ url = "http://{host}/o", secret = "models" }}\n')
    attack.denied("taken up", [], find(scene.read("strange").encode(), MODELS))
    home.stop()
    stream = scene.refused("stream", host="localhost", port=scene.upstream.port)
    attack.denied("a stream", "stream_credential", stream["details"]["reason"])
    attack.denied("locked", "vault_locked", scene.refused("strange")["class"])
    home.unlock()
    attack.denied("started with it", [], find(scene.read("strange").encode(), MODELS))

    home.configure(settings)
    attack.denied("no longer", [], find(scene.read("strange").encode(), MODELS))
