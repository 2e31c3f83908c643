"""Forges over real TLS and the real egress: versions and archives, failures, and redirects."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from aileron.config import LiveSettings, Settings
from aileron.daemon.packages.forge_web import ForgeWeb
from aileron.egress import Egress
from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry.forges import forge as forges
from aileron.registry.forges.forge import Forge, check_ref, newest, tag_of, versions_in
from aileron.registry.forges.github import GitHub
from aileron.registry.forges.gitlab import GitLab
from aileron.registry.forges.hub import Hub
from aileron.registry.keyring import Authority as Publisher
from aileron.registry.signatures import SigningKey
from tests.oauth.conftest import Nobody
from tests.support.forge import TOKEN, ForgeServer
from tests.support.upstream import CLOSE, Authority, answer

pytestmark = pytest.mark.anyio
ARCHIVE = b"not looked into" * 1000
SCHEMES = ("github", "gitlab", "hub")
FORGES = ("github", "gitlab")
KEY = SigningKey(Secret(b"k" * 32)).public


@pytest.fixture
def server(authority: Authority) -> Iterator[ForgeServer]:
    """Run a server with two connectors of one repository at each forge, in some versions."""
    with ForgeServer(authority) as running:
        for scheme in SCHEMES:
            for version in ("1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1", "1.9.0+build.7"):
                running.publish(f"{scheme}://acme/mail", version, ARCHIVE + version.encode())
            running.publish(f"{scheme}://acme/mail/connectors/imap", "0.1.0", b"imap")
            running.keys[f"{scheme}://acme/mail"] = KEY.to_pem()
        yield running


Started = Callable[..., Forge]


@pytest.fixture
async def start(server: ForgeServer) -> AsyncIterator[Started]:
    """Return a function that starts a forge as the daemon does."""
    async with contextlib.AsyncExitStack() as stack:

        def made(scheme: str, *, token: str | None = None, **changes: Any) -> Forge:
            settings = msgspec.structs.replace(server.settings(), **changes)
            egress = Egress(settings, Nobody())  # type: ignore[arg-type]
            stack.push_async_callback(egress.aclose)
            return _forge(
                scheme,
                ForgeWeb(egress, LiveSettings(settings)),
                settings,
                None if token is None else Secret(token.encode()),
            )

        yield made


def _forge(scheme: str, web: ForgeWeb, settings: Settings, token: Secret | None) -> Forge:
    if scheme == "github":
        return GitHub(web, settings.forges.github, token)
    return GitLab(web, settings.forges.gitlab, token) if scheme == "gitlab" else Hub(web, settings.forges.hub)


async def refused(work: Any) -> Failure:
    """Return the failure of the work."""
    with pytest.raises(AileronError) as error:
        await work
    return error.value.failure


def name(scheme: str, path: str = "acme/mail") -> Fqn:
    """Return a full name at that forge."""
    return Fqn.parse(f"{scheme}://{path}")


# What is there


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", ["acme/mail", "acme/mail/connectors/imap"])
async def test_an_archive_is_fetched_by_its_version(
    server: ForgeServer, start: Started, scheme: str, path: str
) -> None:
    """The tag may have slashes and plus signs. The archive comes from the forge's storage, if any, and progress is reported."""
    wanted = "0.1.0" if "imap" in path else "1.9.0+build.7"
    told: list[tuple[int, int | None]] = []

    archive = await start(scheme).archive(name(scheme, path), wanted, lambda *seen: told.append(seen))

    assert archive == server.archives[f"{scheme}://{path}", wanted]
    assert told[-1] == (len(archive), len(archive))
    assert bool(server.storage.requests) is (scheme != "hub")


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_versions_are_listed_in_semver_order(start: Started, scheme: str) -> None:
    """Only the versions of that artifact are listed."""
    forge = start(scheme)

    assert await forge.versions(name(scheme)) == ("1.0.0", "1.9.0", "1.9.0+build.7", "1.10.0", "2.0.0-rc.1")
    assert await forge.versions(name(scheme, "acme/mail/connectors/imap")) == ("0.1.0",)


@pytest.mark.abuse_case("B14")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_version_with_a_number_too_long_to_compare_is_not_listed(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """A tag with a number of five thousand digits once caused an internal error."""
    for version in ("1.0." + "9" * 5000, "latest", "v1", "1.0.0-" + "a" * 100, "1.1.0"):
        server.publish(f"{scheme}://acme/odd", version, b"")

    assert await start(scheme).versions(name(scheme, "acme/odd")) == ("1.1.0",)


@pytest.mark.parametrize("scheme", FORGES)
async def test_all_pages_of_a_forges_list_of_versions_are_read(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """A page has a hundred versions."""
    for number in range(250):
        server.publish(f"{scheme}://acme/many", f"0.0.{number}", b"")

    assert len(await start(scheme).versions(name(scheme, "acme/many"))) == 250


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_publishers_key_is_read_from_the_default_branch_of_its_repository(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """A missing or invalid key is reported."""
    forge, repository = start(scheme), Publisher.parse(f"{scheme}://acme/mail")
    assert await forge.publisher_key(repository) == KEY

    server.keys[str(repository)] = "no key"
    assert "it is not an Ed25519 public key" in (await refused(forge.publisher_key(repository))).message
    del server.keys[str(repository)]
    failure = await refused(forge.publisher_key(repository))
    assert (failure.failure_class, "no keys/publisher.pub" in failure.message) == (FailureClass.NOT_FOUND, True)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_suite_is_read_at_its_ref(server: ForgeServer, start: Started, scheme: str) -> None:
    """The ref is a tag or `latest`; a Hub has no latest release."""
    repository = Publisher.parse(f"{scheme}://acme/suites")
    server.files[str(repository), "v1.0.0", "suites/mail one.toml"] = "a suite"
    server.publish(f"{scheme}://acme/suites", "1.0.0", b"")
    forge = start(scheme)

    assert await forge.suite(repository, "suites/mail one.toml", "v1.0.0") == ("a suite", "v1.0.0")
    assert (
        await refused(forge.suite(repository, "suites/none.toml", "v1.0.0"))
    ).failure_class is FailureClass.NOT_FOUND
    if scheme == "hub":
        assert "no latest release" in (await refused(forge.suite(repository, "suites/mail one.toml", "latest"))).message
    else:
        assert await forge.suite(repository, "suites/mail one.toml", "latest") == ("a suite", "v1.0.0")


# What is not


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_missing_version_is_reported_with_the_existing_versions(start: Started, scheme: str) -> None:
    """The newest come first."""
    failure = await refused(start(scheme).archive(name(scheme), "1.2.3"))

    assert failure.failure_class is FailureClass.NOT_FOUND
    assert f"{scheme}://acme/mail has no version 1.2.3: there are 2.0.0-rc.1, 1.10.0" in failure.message


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", ["acme/nothing", "nobody/mail"])
async def test_an_unpublished_artifact_is_not_found(start: Started, scheme: str, path: str) -> None:
    """This holds for its versions and its archive."""
    forge = start(scheme)

    for work in (forge.versions(name(scheme, path)), forge.archive(name(scheme, path), "1.0.0")):
        assert (await refused(work)).failure_class is FailureClass.NOT_FOUND


@pytest.mark.abuse_case("B6")
@pytest.mark.parametrize("scheme", FORGES)
async def test_a_private_repository_needs_a_token(server: ForgeServer, start: Started, scheme: str) -> None:
    """The token goes to the forge alone, never to its storage. With another token or none, the failure does not quote it."""
    server.private.add(f"{scheme}://acme/mail")
    server.files[f"{scheme}://acme/mail", "v1.0.0", "suite.toml"] = "a suite"
    forge = start(scheme, token=TOKEN)

    assert await forge.archive(name(scheme), "1.0.0") == ARCHIVE + b"1.0.0"
    assert "1.0.0" in await forge.versions(name(scheme))
    assert await forge.publisher_key(Publisher.parse(f"{scheme}://acme/mail")) == KEY
    assert (await forge.suite(Publisher.parse(f"{scheme}://acme/mail"), "suite.toml", "v1.0.0")).text == "a suite"
    assert TOKEN.encode() not in server.storage.received
    for other in (start(scheme), start(scheme, token="another-token-of-somebody")):
        failure = await refused(other.archive(name(scheme), "1.0.0"))
        assert (failure.failure_class, TOKEN in failure.message) == (FailureClass.NOT_FOUND, False)


@pytest.mark.parametrize(
    ("fields", "status", "failure_class", "told"),
    [
        (("Retry-After: 30",), 429, FailureClass.BUSY, "again in 30 s"),
        (("Retry-After: 7",), 403, FailureClass.BUSY, "again in 7 s"),
        (("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1"), 403, FailureClass.BUSY, "again later"),
        (("Retry-After: soon",), 429, FailureClass.BUSY, "again later"),
        ((), 403, FailureClass.UNAUTHORIZED, "private repositories need a token"),
        ((), 401, FailureClass.UNAUTHORIZED, "need a token"),
        ((), 503, FailureClass.EXTERNAL_API_ERROR, "answered 503: try again in a while"),
        ((), 418, FailureClass.EXTERNAL_API_ERROR, "answered 418"),
    ],
)
@pytest.mark.parametrize("scheme", FORGES)
async def test_a_forges_error_is_reported_with_what_to_do(
    server: ForgeServer,
    start: Started,
    scheme: str,
    fields: tuple[str, ...],
    status: int,
    failure_class: FailureClass,
    told: str,
) -> None:
    """The message about a rate limit says when it ends, and that about a forbidden repository how to get access."""
    server.disturb(answer(b"{}", *fields, status=f"{status} No"))

    failure = await refused(start(scheme).versions(name(scheme)))

    assert failure.failure_class is failure_class
    assert told in failure.message
    assert failure.retriable is (failure_class is FailureClass.BUSY or status == 503)


@pytest.mark.abuse_case("B8")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"message": "hello"}', b'[{"tag_name": 7}]', b"[" * 5000])
async def test_an_unexpected_response_is_refused(server: ForgeServer, start: Started, scheme: str, body: bytes) -> None:
    """The status is 200, so only the body's unexpected form shows that something is wrong."""
    server.disturb(answer(body))

    failure = await refused(start(scheme).versions(name(scheme)))

    assert failure.failure_class is FailureClass.INVALID_REQUEST
    assert "unexpected answer" in failure.message


@pytest.mark.abuse_case("B8")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_size_of_a_response_is_bounded(
    server: ForgeServer, start: Started, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound also holds for a response without a Content-Length."""
    monkeypatch.setattr(forges, "MAX_ARCHIVE_BYTES", 1000)
    monkeypatch.setattr(forges, "MAX_JSON_BYTES", 1000)
    server.publish(f"{scheme}://acme/large", "1.0.0", b"x" * 1001)
    server.publish(f"{scheme}://acme/fits", "1.0.0", b"x" * 1000)
    forge = start(scheme)

    assert await forge.archive(name(scheme, "acme/fits"), "1.0.0") == b"x" * 1000
    assert "sent more than 1000 bytes" in (await refused(forge.archive(name(scheme, "acme/large"), "1.0.0"))).message
    server.disturb(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 5000)
    assert "sent more than 1000 bytes" in (await refused(forge.versions(name(scheme)))).message


@pytest.mark.abuse_case("B26")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_entries_of_a_response_are_counted_before_it_is_decoded(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """A short JSON text can decode to many times its size in memory."""
    flood = b"[" + b"{}," * 500_000 + b"{}]" if scheme != "hub" else b"[" + b'"1.0.0",' * 1000 + b'"1.0.0"]'
    server.disturb(answer(flood))
    tracemalloc.start()
    try:
        failure = await refused(start(scheme).versions(name(scheme)))
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert failure.failure_class is FailureClass.INVALID_REQUEST
    assert "unexpected answer: more than " in failure.message
    assert grown < 3 * len(flood) + (2 << 20)  # the answer itself, as it comes and joined


@pytest.mark.abuse_case("B26")
@pytest.mark.parametrize("scheme", FORGES)
async def test_a_page_with_more_entries_than_requested_is_refused(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """Ten pages of a hundred are a thousand entries; ten pages of ten thousand would take minutes to sort."""
    server.disturb(answer(b"[" + b",".join([b'{"tag_name": "v1.0.0"}'] * 101) + b"]"))

    assert (
        "a page of 101 entries, although 100 were requested"
        in (await refused(start(scheme).versions(name(scheme)))).message
    )


# Where it sends us


@pytest.mark.abuse_case("B5")
@pytest.mark.parametrize("scheme", FORGES)
async def test_a_redirect_to_another_host_repository_or_scheme_is_refused(
    server: ForgeServer, start: Started, scheme: str
) -> None:
    """The targets are another host, plain http, another repository and lookalike addresses. No other host gets a connection."""
    forge, base = start(scheme), server.url(scheme)
    places = (
        f"https://localhost:{server.elsewhere.port}/aileron.tar.gz",
        f"http://localhost:{server.storage.port}/stored/1/aileron.tar.gz",
        f"{base}/eve/mail/releases/download/v1.0.0/aileron.tar.gz",
        f"{base}/acme/mail2/releases/download/v1.0.0/aileron.tar.gz",
        f"{base}/acme/mail/../../eve/mail/aileron.tar.gz",
        f"{base}/acme/mail/%2e%2e/%2e%2e/eve/mail/aileron.tar.gz",
        f"https://localhost:{server.storage.port}@localhost:{server.elsewhere.port}/",
        f"https://localhost:{server.storage.port}\\@localhost:{server.elsewhere.port}/",
        f"https://localhost:{server.storage.port}0/",
        f"https://localhost:{server.storage.port}.example/stored/1/aileron.tar.gz",
        f"https://someone@localhost:{server.storage.port}/stored/1/aileron.tar.gz",
        f"HTTPS://LOCALHOST:{server.storage.port}/stored/1/aileron.tar.gz",
        "https://169.254.169.254/latest",
        "file:///etc/passwd",
    )
    for place in places:
        server.redirect_to = place
        failure = await refused(forge.archive(name(scheme), "1.0.0"))
        assert failure.failure_class is FailureClass.CAPABILITY_DENIED, place
    assert "a different publisher" in failure.message
    assert server.elsewhere.connections == 0
    server.redirect_to = None
    assert await forge.archive(name(scheme), "1.0.0") == ARCHIVE + b"1.0.0"


@pytest.mark.abuse_case("B5")
@pytest.mark.parametrize("scheme", FORGES)
@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_redirect_to_the_new_place_of_a_moved_repository_is_not_followed(
    server: ForgeServer, start: Started, scheme: str, token: str | None
) -> None:
    """The forge redirects to the new place, but Aileron does not follow."""
    server.moved[f"{scheme}://acme/mail"] = f"{scheme}://eve/mail"
    server.publish(f"{scheme}://eve/mail", "1.0.0", b"hers")

    failure = await refused(start(scheme, token=token).archive(name(scheme), "1.0.0"))

    assert failure.failure_class is FailureClass.CAPABILITY_DENIED
    assert server.storage.connections == 0


@pytest.mark.abuse_case("B5")
async def test_redirects_are_bounded(server: ForgeServer, start: Started) -> None:
    """The redirect leads to itself."""
    server.redirect_to = f"{server.url('github')}/acme/mail/releases/download/v1.0.0/aileron.tar.gz"

    assert "redirects more than 3 times" in (await refused(start("github").archive(name("github"), "1.0.0"))).message


@pytest.mark.abuse_case("B6")
async def test_the_query_of_a_signed_address_is_never_reported(server: ForgeServer, start: Started) -> None:
    """The query holds the storage's secret."""
    server.redirect_to = f"https://localhost:{server.storage.port}/stored/none?signature=s3cret"

    failure = await refused(start("github").archive(name("github"), "1.0.0"))

    assert "s3cret" not in failure.message + str(failure.details)
    assert f"localhost:{server.storage.port}/stored/none answered 403" in failure.message


@pytest.mark.abuse_case("B5")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_forge_at_a_private_address_is_refused_without_permission(start: Started, scheme: str) -> None:
    """A forge at a private address needs the user's permission, as any destination does."""
    failure = await refused(start(scheme, egress_private=frozenset()).archive(name(scheme), "1.0.0"))

    assert failure.failure_class is FailureClass.CAPABILITY_DENIED


@pytest.mark.abuse_case("B8")
async def test_a_truncated_archive_is_an_error(server: ForgeServer, start: Started) -> None:
    """The server closes the connection after fewer bytes than it announced."""
    server.storage._script = lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", CLOSE]

    failure = await refused(start("github").archive(name("github"), "1.0.0"))

    assert failure.failure_class is FailureClass.NETWORK_ERROR


async def test_a_hub_name_is_refused_if_no_hub_is_configured(start: Started) -> None:
    """The failure says which setting to write."""
    failure = await refused(Hub(start("hub")._way._web, Settings().forges.hub).versions(name("hub")))  # type: ignore[attr-defined]

    assert '[hub] url = "https://' in failure.message


# Tags, versions, refs


@pytest.mark.parametrize(
    ("path", "version", "tag"),
    [("acme/mail", "1.0.0", "v1.0.0"), ("acme/mail/actions/send", "1.0.0-rc.1", "actions/send/v1.0.0-rc.1")],
)
async def test_a_version_has_exactly_one_tag(path: str, version: str, tag: str) -> None:
    """The artifact's place in its repository comes before the version, and the tag reads back as that version."""
    assert tag_of(name("github", path), version) == tag
    others = [f"x{tag}", f"{tag}/x", f"actions/other/{tag}", "other/v3.0.0"]
    assert versions_in([tag, *others], name("github", path)) == (version,)


async def test_tags_that_are_no_versions_are_not_listed() -> None:
    """The tags are those of other things, and versions that are not SemVer."""
    tags = ["v1.0.0", "v1.0", "1.0.0", "vlatest", "v01.0.0", "v1.0.0-", 7, None, "v1.0.0/evil", "release/v2.0.0"]

    assert versions_in(tags, name("github")) == ("1.0.0",)


async def test_the_newest_version_is_a_prerelease_only_if_a_prerelease_is_requested() -> None:
    """Build metadata does not make a version a pre-release."""
    assert newest(("1.0.0", "1.1.0+a-b", "2.0.0-rc.1")) == "1.1.0+a-b"
    assert newest(("1.0.0", "2.0.0-rc.1"), prerelease=True) == "2.0.0-rc.1"
    assert newest(("2.0.0-rc.1",)) is None


@pytest.mark.parametrize("ref", ["", "-x", "a..b", "a//b", "a/", "/a", "a b", "ä", "a" * 201, "HEAD^", "a:b", "x."])
async def test_an_invalid_ref_is_refused(ref: str) -> None:
    """Otherwise a part of the ref could become a part of a URL."""
    assert check_ref("connectors/slack/v1.0.0") == "connectors/slack/v1.0.0"
    with pytest.raises(ValueError, match="is not a tag"):
        check_ref(ref)
