"""Discovery of the sign-in for an MCP server: the real engine asks real servers on loopback.

Each refused document stands beside a valid one, from which it differs in one value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from aileron.config import Settings
from aileron.egress import Egress
from aileron.importing.authorization import Authorization, Discovery, NoMetadataError
from aileron.importing.challenges import Bearer
from aileron.importing.reading import DocumentError
from aileron.model.names import HostPort
from tests.oauth.conftest import Nobody
from tests.support.upstream import Authority, Seen, Upstream, answer

JSON = "Content-Type: application/json"
RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
LEAVE_OUT = object()


class Service:
    """A server and its authorization server at one origin, which answers with `pages` by path."""

    def __init__(self, port: int, origin: str, asked: list[Seen]) -> None:
        self.port = port
        self.origin = origin
        self.asked = asked
        self.pages: dict[str, bytes] = {}
        self.put_resource()
        self.put_metadata()

    @property
    def url(self) -> str:
        """The address of the MCP server."""
        return f"{self.origin}/mcp"

    @property
    def paths(self) -> list[str]:
        """The requested paths, in order."""
        return [request.target for request in self.asked]

    def put(self, path: str, document: Any, *fields: str, status: str = "200 OK") -> None:
        """Add a page: JSON, or bytes as they are."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.pages[path] = answer(body, *(fields or (JSON,)), status=status)

    def put_resource(self, at: str = f"{RESOURCE}/mcp", **changes: Any) -> None:
        """Add the metadata of the protected resource."""
        good = {
            "resource": self.url,
            "authorization_servers": [f"{self.origin}/tenant"],
            "scopes_supported": ["read"],
        }
        self.put(at, _changed(good, changes))

    def put_metadata(self, at: str = f"{OAUTH}/tenant", **changes: Any) -> None:
        """Add the metadata of the authorization server."""
        good = {
            "issuer": f"{self.origin}/tenant",
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.put(at, _changed(good, changes))


def _changed(good: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**good, **changes}.items() if value is not LEAVE_OUT}


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service on this machine, without TLS."""
    with Upstream(lambda seen: made.pages.get(seen.target, answer(status="404 Not Found"))) as upstream:
        made = Service(upstream.port, f"http://localhost:{upstream.port}", upstream.requests)
        yield made


def found(
    url: str,
    challenge: Bearer | None = None,
    *,
    settings: Settings | None = None,
    names: dict[str, str] | None = None,
    auth_server: str | None = None,
    scopes: tuple[str, ...] = (),
) -> Authorization:
    """Return the discovered authorization. The hosts in `names` resolve to these addresses, all others to 127.0.0.1."""
    settings = settings or Settings()

    async def resolve(host: str, port: int) -> list[str]:
        return [(names or {}).get(host, "127.0.0.1")]

    async def run() -> Authorization:
        egress = Egress(settings, Nobody(), resolve=resolve)  # type: ignore[arg-type]
        try:
            return await Discovery(url, egress, settings).found(challenge, auth_server=auth_server, scopes=scopes)
        finally:
            await egress.aclose()

    return anyio.run(run)


def test_all_metadata_is_found_at_the_well_known_addresses(service: Service) -> None:
    """The server states no address of its metadata; the well-known ones contain its path and the tenant's."""
    got = found(service.url)

    assert got == Authorization(
        resource=service.url,
        issuer=f"{service.origin}/tenant",
        authorize_url=f"{service.origin}/authorize",
        token_url=f"{service.origin}/token",
        registration_url=f"{service.origin}/register",
        scopes=("read",),
    )
    assert service.paths == [f"{RESOURCE}/mcp", f"{OAUTH}/tenant"]
    assert not [request for request in service.asked if request.values("authorization") or request.values("cookie")]


def test_addresses_are_tried_in_the_order_of_the_specification(service: Service) -> None:
    """A page without JSON counts as missing. The failure lists the addresses that were tried."""
    service.pages.clear()
    service.put_resource(RESOURCE)
    service.put(f"{OAUTH}/tenant", b"<html>", "Content-Type: text/html")
    service.put_metadata(f"/tenant{OPENID}")
    assert found(service.url).issuer == f"{service.origin}/tenant"
    assert service.paths == [
        f"{RESOURCE}/mcp",
        RESOURCE,
        f"{OAUTH}/tenant",
        f"{OPENID}/tenant",
        f"/tenant{OPENID}",
    ]

    assert found(f"{service.url}/").issuer == f"{service.origin}/tenant"
    assert f"{RESOURCE}/mcp/" in service.paths

    service.pages.clear()
    with pytest.raises(NoMetadataError, match=f"{RESOURCE}/mcp: status 404"):
        found(service.url)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_server_without_metadata_of_its_own_is_its_own_authorization_server(service: Service, slash: str) -> None:
    """Metadata at its origin must name that origin as issuer, with or without a slash. The author may name another server."""
    del service.pages[f"{RESOURCE}/mcp"]
    service.put_metadata(OAUTH, issuer=f"{service.origin}{slash}", scopes_supported=["read"])
    expected = (f"{service.origin}{slash}", service.url, ())
    authorization = found(service.url)
    assert (authorization.issuer, authorization.resource, authorization.scopes) == expected
    assert found(service.url, auth_server=f"{service.origin}/tenant").issuer == f"{service.origin}/tenant"

    service.put_metadata(OAUTH, issuer="https://evil.example")
    with pytest.raises(NoMetadataError, match=r"its issuer is https://evil\.example"):
        found(service.url)
    service.put_metadata(OAUTH, issuer=service.origin, code_challenge_methods_supported=LEAVE_OUT)
    with pytest.raises(NoMetadataError, match="PKCE with S256"):
        found(service.url)


@pytest.mark.parametrize(("named", "itself"), [("", "/"), ("/", ""), ("/", "/")])
def test_an_issuer_without_a_path_may_be_named_with_or_without_a_final_slash(
    service: Service, named: str, itself: str
) -> None:
    """The issuer's own spelling counts from then on; a slash after a path makes another issuer."""
    service.put_resource(authorization_servers=[f"{service.origin}{named}"])
    service.put_metadata(OAUTH, issuer=f"{service.origin}{itself}")
    assert found(service.url).issuer == f"{service.origin}{itself}"
    assert found(service.url, auth_server=service.origin).issuer == f"{service.origin}{itself}"


def test_the_challenge_of_a_server_overrides_the_well_known_address_and_the_listed_scopes(service: Service) -> None:
    """The challenge overrides the well-known address and `scopes_supported`; the author overrides both."""
    service.put_resource("/elsewhere", resource=service.origin)
    challenge = Bearer(resource_metadata=f"{service.origin}/elsewhere", scopes=("write",))

    assert found(service.url, challenge).scopes == ("write",)
    assert found(service.url, challenge).resource == service.origin
    assert f"{RESOURCE}/mcp" not in service.paths
    assert found(service.url, challenge, scopes=("own",)).scopes == ("own",)
    service.put_resource("/elsewhere", scopes_supported=LEAVE_OUT)
    assert found(service.url, Bearer(resource_metadata=f"{service.origin}/elsewhere")).scopes == ()


def test_offline_access_is_requested_only_if_the_provider_lists_it(service: Service) -> None:
    """The scope is OpenID's; a provider that does not know it would refuse the whole sign-in."""
    service.put_metadata(scopes_supported=["read", "offline_access"])

    assert found(service.url).scopes == ("read", "offline_access")
    assert found(service.url, scopes=("read",)).scopes == ("read",)
    service.put_metadata(scopes_supported=["read"])
    assert found(service.url).scopes == ("read",)


def test_the_first_authorization_server_is_used_unless_the_author_chooses_another(service: Service) -> None:
    """A server that the resource does not name cannot be chosen."""
    service.put_resource(authorization_servers=[f"{service.origin}/tenant", f"{service.origin}/other"])
    service.put_metadata(f"{OAUTH}/other", issuer=f"{service.origin}/other")

    assert found(service.url).issuer == f"{service.origin}/tenant"
    assert found(service.url, auth_server=f"{service.origin}/other").issuer == f"{service.origin}/other"
    with pytest.raises(DocumentError, match="does not name it"):
        found(service.url, auth_server="https://evil.example")


RESOURCES: list[tuple[dict[str, Any], str]] = [
    ({"resource": LEAVE_OUT}, "no resource"),
    ({"resource": "https://evil.example/mcp"}, r"about https://evil\.example/mcp, and the server is at"),
    ({"resource": "{origin}/mcp2"}, "about the path /mcp2, and the server's is /mcp"),
    ({"resource": "{origin}/mc"}, "about the path /mc, "),
    ({"resource": "{origin}/mcp?x=1"}, "has a query"),
    ({"resource": "{origin}/../mcp"}, "dot segment"),
    ({"resource": "http://LOCALHOST:{port}/mcp"}, "spelled otherwise than"),
    ({"scopes_supported": ["a b"]}, "no scope that can be asked for"),
    ({"authorization_servers": []}, "names no authorization server"),
    ({"authorization_servers": "{origin}/tenant"}, "not a list of strings"),
    ({"authorization_servers": ["http://auth.example.com"]}, "is not https"),
    ({"authorization_servers": ["{origin}/tenant#x"]}, "fragment"),
    ({"bearer_methods_supported": ["body"]}, "no token in the Authorization header"),
]
METADATA: list[tuple[dict[str, Any], str]] = [
    ({"issuer": "{origin}/tenant/"}, "they have to be the same"),
    ({"issuer": LEAVE_OUT}, "its issuer is none"),
    ({"issuer": "https://evil.example"}, r"its issuer is https://evil\.example"),
    ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
    ({"code_challenge_methods_supported": LEAVE_OUT}, "PKCE with S256"),
    ({"response_types_supported": ["token"]}, "response_types_supported has no code"),
    ({"grant_types_supported": ["client_credentials"]}, "does not take codes"),
    ({"token_endpoint": LEAVE_OUT}, "no token_endpoint"),
    ({"authorization_endpoint": 1}, "is no address"),
    ({"token_endpoint": "http://auth.example.com/token"}, "token_endpoint http://auth.example.com/token is not https"),
    ({"token_endpoint": "https://auth.example.com/token?a=b"}, "has a query"),
    ({"registration_endpoint": "https://Auth.example.com/r"}, "spelled otherwise"),
    ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "private_key_jwt only"),
]


def _at(service: Service, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes with the service's origin and port filled in."""

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(part) for part in value]
        if not isinstance(value, str):
            return value
        return value.replace("{origin}", service.origin).replace("{port}", str(service.port))

    return {key: put(value) for key, value in changes.items()}


@pytest.mark.abuse_case("O22")
@pytest.mark.parametrize(("changes", "words"), RESOURCES)
def test_metadata_of_another_resource_is_refused(service: Service, changes: dict[str, Any], words: str) -> None:
    """The message says what differs, and the authorization server gets no request."""
    assert found(service.url)
    service.put_resource(**_at(service, changes))
    before = len(service.asked)
    with pytest.raises(DocumentError, match=words):
        found(service.url)
    assert f"{OAUTH}/tenant" not in service.paths[before:] or "scopes_supported" in changes


@pytest.mark.abuse_case("O22")
@pytest.mark.parametrize(("changes", "words"), METADATA)
def test_an_unsuitable_authorization_server_is_refused(service: Service, changes: dict[str, Any], words: str) -> None:
    """The metadata names another issuer, or lacks what keeps a code safe. The next address is not tried."""
    assert found(service.url)
    service.put_metadata(**_at(service, changes))
    service.put_metadata(f"{OPENID}/tenant")
    with pytest.raises(DocumentError, match=words):
        found(service.url)
    assert f"{OPENID}/tenant" not in service.paths


ANY: tuple[Any, ...] = (None, 1, True, "x", "", ["x"], [1], [[]], {"a": 1}, "https://[::1]/", "\x00")


@pytest.mark.parametrize("of_resource", [True, False])
def test_a_document_with_any_field_value_is_accepted_or_refused(service: Service, of_resource: bool) -> None:
    """Each field gets each kind of value: DocumentError is the only exception, and null counts as missing."""
    put, at = (service.put_resource, f"{RESOURCE}/mcp") if of_resource else (service.put_metadata, f"{OAUTH}/tenant")
    more = ("scopes_supported", "bearer_methods_supported", "grant_types_supported", "revocation_endpoint")
    fields = [*json.loads(service.pages[at].partition(b"\r\n\r\n")[2]), *more]
    settings = Settings()

    async def run() -> list[str]:
        egress = Egress(settings, Nobody())  # type: ignore[arg-type]
        taken = []
        for field in fields:
            for value in ANY:
                put(**{field: value})
                try:
                    await Discovery(service.url, egress, settings).found(None, auth_server=None, scopes=())
                    taken.append(field)
                except DocumentError as error:
                    assert len(str(error)) < 2000  # noqa: PT017  (which of them is taken is counted below)
        await egress.aclose()
        return taken

    taken = anyio.run(run)
    assert set(more) <= set(taken)
    assert not {"resource", "issuer", "token_endpoint"} & set(taken)


BODIES: list[tuple[bytes, str]] = [
    (b'{"resource": "a", "resource": "b"}', "each key once"),
    (b"[]", "one JSON object"),
    (b"{", "one JSON object"),
    (b"[" * 100_000, "bytes"),
    (b'{"x": "' + b"a" * (64 << 10) + b'"}', "bytes"),
]


@pytest.mark.abuse_case("O22")
@pytest.mark.parametrize(("body", "words"), BODIES)
def test_an_invalid_document_is_refused(service: Service, body: bytes, words: str) -> None:
    """The document has duplicate keys, is no object, or is too large."""
    service.put(f"{RESOURCE}/mcp", body)
    with pytest.raises(DocumentError, match=words):
        found(service.url)


@pytest.mark.abuse_case("O22")
def test_metadata_redirects_are_not_followed(service: Service) -> None:
    """This holds for the address in a challenge and for the well-known ones."""
    service.put_resource("/there")
    service.put(f"{RESOURCE}/mcp", b"", f"Location: {service.origin}/there", status="302 Found")
    with pytest.raises(NoMetadataError, match=r"redirects to http://localhost:\d+/there \(status 302\)"):
        found(service.url)
    with pytest.raises(DocumentError, match="which the server names: it redirects"):
        found(service.url, Bearer(resource_metadata=f"{service.origin}{RESOURCE}/mcp"))
    assert "/there" not in service.paths
    assert found(service.url, Bearer(resource_metadata=f"{service.origin}/there"))


PUBLIC = "mcp.example.test"


@pytest.fixture
def public(authority: Authority) -> Iterator[Service]:
    """Run a service that is on the internet, as far as its name and the settings say."""
    context = authority.server_context(PUBLIC, "inside.example.test", "localhost")
    with Upstream(lambda seen: made.pages.get(seen.target, answer(status="404 Not Found")), context) as upstream:
        made = Service(upstream.port, f"https://{PUBLIC}:{upstream.port}", upstream.requests)
        yield made


@pytest.mark.abuse_case("O22")
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("localhost", "on this machine, and the server is not"),
        ("127.0.0.1", "on this machine, and the server is not"),
        ("inside.example.test", "loopback"),
        ("10.0.0.1", "private use"),
        ("169.254.169.254", "always blocked"),
    ],
)
def test_a_public_server_cannot_cause_a_request_to_a_private_address(
    public: Service, authority: Authority, host: str, words: str
) -> None:
    """The address is in its challenge or names its authorization server. The user's settings may allow one."""
    allowed = frozenset({HostPort(PUBLIC, public.port)})
    settings = Settings(egress_private=allowed, egress_ca_pem=authority.ca_pem)

    def look(**more: Any) -> Authorization:
        return found(public.url, settings=settings, **more)

    assert look().resource == public.url
    before = len(public.asked)

    inside = f"https://{host}:{public.port}"
    with pytest.raises(DocumentError, match=words):
        look(challenge=Bearer(resource_metadata=f"{inside}/m"))
    assert len(public.asked) == before
    public.put_resource(authorization_servers=[inside])
    with pytest.raises(DocumentError, match=words):
        look()
    assert len(public.asked) == before + 1


def test_a_private_authorization_server_may_be_allowed_by_name(public: Service, authority: Authority) -> None:
    """The positive control of the test above is a company's own authorization server."""
    inside = f"https://inside.example.test:{public.port}"
    public.put_resource(authorization_servers=[inside])
    public.put_metadata(OAUTH, issuer=inside, token_endpoint=f"{inside}/token")
    hosts = frozenset({HostPort(PUBLIC, public.port), HostPort("inside.example.test", public.port)})

    assert found(public.url, settings=Settings(egress_private=hosts, egress_ca_pem=authority.ca_pem)).issuer == inside


def test_a_public_server_cannot_name_an_endpoint_on_this_machine(public: Service, authority: Authority) -> None:
    """The person's browser, and then the authorization code, would be sent there."""
    settings = Settings(egress_private=frozenset({HostPort(PUBLIC, public.port)}), egress_ca_pem=authority.ca_pem)
    public.put_metadata(token_endpoint="https://localhost:1/token")
    with pytest.raises(DocumentError, match="token_endpoint is at localhost:1, on this machine"):
        found(public.url, settings=settings)
