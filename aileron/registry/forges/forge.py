"""The interface of forges, and their common code: tags, size limits, redirects, errors.

Runs in the daemon. A forge is trusted only to return the bytes that it has under a name. The signature, the hash and the person
decide whether these bytes are accepted, so no code here looks into an artifact.

Rules
- A redirect goes to the forge's own storage, or stays in the requested repository. Any other redirect is an error: a repository
  that moved counts as another publisher, even if the forge vouches for the move.
- A token goes to the forge itself and never along with a redirect.
- Every response has a size limit. A response that cannot be parsed is an error that names its address.

Source: docs/reference/forges.md. Not here: connections (daemon/packages/forge_web.py).
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote, urljoin

import msgspec

from aileron.model.counted import check_values
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.names import Fqn, check_semver, precedence
from aileron.model.secret import Secret
from aileron.model.visible import visible
from aileron.registry.keyring import Authority
from aileron.registry.signatures import MAX_KEY_FILE_BYTES, PublicKey
from aileron.registry.tarball import MAX_ARCHIVE_BYTES

__all__ = [
    "ARCHIVE",
    "KEY_PATH",
    "MAX_KEY_BYTES",
    "MAX_PAGES",
    "MAX_SUITE_BYTES",
    "MAX_VERSIONS",
    "Answer",
    "Forge",
    "Progress",
    "Repositories",
    "SuiteText",
    "Way",
    "Web",
    "check_ref",
    "key_in",
    "newest",
    "no_file",
    "no_repository",
    "no_version",
    "not_understood",
    "quoted",
    "tag_of",
    "versions_in",
]

ARCHIVE: Final = "aileron.tar.gz"
KEY_PATH: Final = "keys/publisher.pub"
MAX_JSON_BYTES: Final = 4 << 20
"""Maximum size in bytes of a JSON response: 4 MiB, for a page of a hundred releases with long notes and many assets."""
MAX_JSON_VALUES: Final = 400_000
"""Maximum number of JSON values in a response; commas in strings count too.

4 MiB of GitHub's releases, the densest known response, have some 100,000.
"""
MAX_VERSIONS: Final = 1000
"""Maximum number of versions per artifact at a Hub: enough for a release each working day for four years."""
MAX_SUITE_BYTES: Final = 256 << 10
MAX_PAGES: Final = 10
"""Maximum number of pages of a hundred releases each: older releases are not listed, but can be installed."""
_PER_PAGE: Final = 100
_MAX_REDIRECTS: Final = 3
_MAX_VERSION: Final = 100
"""Maximum number of characters in a listed version.

Versions are compared as numbers, and Python refuses to parse numbers of thousands of digits.
"""
_MAX_TOLD: Final = 8
"""Maximum number of existing versions that the error for a missing version lists."""
_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")

Progress = Callable[[int, int | None], None]
"""Callback for the number of bytes received so far, and the total if it is known."""
_T = TypeVar("_T")


class Answer(NamedTuple):
    """The response to a request, with header names in lower case. Redirects are not followed."""

    status: int
    headers: dict[str, str]
    body: bytes


class Web(Protocol):
    """The HTTP client through which forges send requests."""

    async def get(
        self, url: str, *, headers: Sequence[tuple[str, str]], limit_bytes: int, progress: Progress | None = None
    ) -> Answer:
        """Send a GET. Raises AileronError(network_error) if no server responds, (resource_limit_exceeded) if the body
        exceeds the limit.
        """
        ...


class SuiteText(NamedTuple):
    """The text of a suite's file, and the git ref at which it was read."""

    text: str
    ref: str


class Forge(Protocol):
    """A service that publishes connectors, actions and suites: GitHub, GitLab or a Hub.

    Each method raises AileronError: not_found, unauthorized, busy (a rate limit), network_error, external_api_error,
    or invalid_request if the response is not understood.
    """

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """Return the archive (`aileron.tar.gz`) of `name` in this version, unparsed."""
        ...

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """Return the published versions of `name`, sorted as SemVer orders them, the oldest first."""
        ...

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """Return the key that the repository publishes as its signing key: `keys/publisher.pub` on its default branch."""
        ...

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """Return a file of the repository at a tag, a commit, or `latest` (the newest release)."""
        ...


def tag_of(name: Fqn, version: str) -> str:
    """Return the tag of a version: `v1.2.0`, or `connectors/slack/v1.2.0` if the artifact is in a folder of its repository."""
    return "/".join((*name.path[2:], f"v{version}"))


def versions_in(tags: Sequence[object], name: Fqn) -> tuple[str, ...]:
    """Return the versions of `name` among all tags of its repository, the oldest first."""
    prefix = tag_of(name, "")
    found = {tag.removeprefix(prefix) for tag in tags if isinstance(tag, str) and tag.startswith(prefix)}
    return tuple(sorted(filter(_is_version, found), key=precedence))


def newest(versions: Sequence[str], *, prerelease: bool = False) -> str | None:
    """Return the last version that is not a pre-release, or with `prerelease` the last of all; None if no version qualifies."""
    wanted = [version for version in versions if prerelease or "-" not in version.partition("+")[0]]
    return wanted[-1] if wanted else None


def _is_version(text: str) -> bool:
    try:
        return len(text) <= _MAX_VERSION and bool(check_semver(text))
    except ValueError:
        return False


def quoted(text: str) -> str:
    """Quote a text, slashes included, as one segment of a path (RFC 3986, section 2.1)."""
    return quote(text, safe="")


class Way:
    """An HTTP client for one forge.

    `storage` are the origins where the forge stores files; the token is sent to the forge only, and never to its storage.
    """

    def __init__(
        self,
        web: Web,
        url: str,
        storage: Sequence[str] = (),
        *,
        headers: Sequence[tuple[str, str]] = (),
        token: tuple[str, Secret] | None = None,
    ) -> None:
        """Prepare the client of the forge at `url`, which adds `headers` and the token to its requests.

        `storage`: origins (`https://host[:port]`); `token`: the header's name, the text before the token (such as `Bearer `),
        and the token.
        """
        self._web = web
        self._origin = _origin_of(url)
        self._storage = frozenset(storage)
        self._has_token = token is not None
        self._headers = tuple(headers)
        if token is not None:
            name, value = token
            field, _, before = name.partition(" ")
            self._headers += ((field, before + value.reveal().decode("latin-1")),)

    async def archive(
        self, url: str, within: Sequence[str], accept: str | None, progress: Progress | None
    ) -> bytes | None:
        """Return the file at `url`, an archive, following its redirects; None if the file is missing.

        A redirect must lead to a URL that starts with a prefix in `within`, or to the storage.
        """
        headers = (*self._headers, *((("Accept", accept),) if accept else ()))
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._web.get(url, headers=headers, limit_bytes=MAX_ARCHIVE_BYTES, progress=progress)
            if answer.status not in (301, 302, 303, 307, 308):
                return None if answer.status == 404 else self._ok(url, answer).body
            url = self._next(url, answer, within)
            if not url.startswith(f"{self._origin}/"):
                headers = ()
        raise not_understood(url, f"it redirects more than {_MAX_REDIRECTS} times")

    async def maybe_json(self, url: str, of: type[_T], most: int = MAX_JSON_VALUES) -> _T | None:
        """Return the JSON at `url`, decoded as type `of`, with at most `most` values; None if `url` does not exist.

        Follows no redirect.
        """
        answer = await self._web.get(
            url, headers=(*self._headers, ("Accept", "application/json")), limit_bytes=MAX_JSON_BYTES
        )
        if answer.status == 404:
            return None
        try:
            check_values(body := self._ok(url, answer).body, most)
            return msgspec.json.decode(body, type=of)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise not_understood(url, f"unexpected answer: {error}") from None

    async def maybe_page(self, url: str, of: type[_T], most: int) -> list[_T] | None:
        """Return one page of a JSON list, with at most `most` entries of type `of`; None if `url` does not exist.
        Follows no redirect.
        """
        found = await self.maybe_json(url, list[of])  # type: ignore[valid-type]  # a type as a value
        if found is not None and len(found) > most:
            raise not_understood(url, f"a page of {len(found)} entries, although {most} were requested")
        return found

    async def maybe_pages(self, url: str, of: type[_T], pages: int = MAX_PAGES) -> list[_T] | None:
        """Return the entries on the first `pages` pages of a list, read with `maybe_page`; None if a page is missing."""
        found: list[_T] = []
        for number in range(1, pages + 1):
            page = await self.maybe_page(f"{url}?per_page={_PER_PAGE}&page={number}", of, _PER_PAGE)
            if page is None:
                return None
            found += page
            if len(page) < _PER_PAGE:
                break
        return found

    async def maybe_text(self, url: str, limit_bytes: int, accept: str | None = None) -> str | None:
        """Return the text file at `url`; None if the file is missing. Follows no redirect."""
        found = await self.maybe_answer(url, limit_bytes, accept)
        try:
            return None if found is None else found.body.decode()
        except UnicodeDecodeError:
            raise not_understood(url, "not valid UTF-8") from None

    async def maybe_answer(self, url: str, limit_bytes: int, accept: str | None = None) -> Answer | None:
        """Return a successful response; None if `url` does not exist. Follows no redirect."""
        headers = (*self._headers, *((("Accept", accept),) if accept else ()))
        answer = await self._web.get(url, headers=headers, limit_bytes=limit_bytes)
        return None if answer.status == 404 else self._ok(url, answer)

    def _next(self, url: str, answer: Answer, within: Sequence[str]) -> str:
        """Return the URL that a response redirects to. Raises AileronError if the redirect must not be followed."""
        target = urljoin(url, answer.headers.get("location", ""))
        # Compared as text, not parsed, so it does not matter how a parser other than egress's would read it. The allowed
        # prefixes end in a slash, so that the host ends there for every reader.
        is_same = any(target.startswith(f"{place}/") for place in within) and "/../" not in unquote(target)
        if is_same or any(target.startswith(f"{origin}/") for origin in self._storage):
            return target
        raise _elsewhere(url, target)

    def _ok(self, url: str, answer: Answer) -> Answer:
        """Return the response if it is successful. Otherwise raise the AileronError for its status."""
        status, left = (
            answer.status,
            answer.headers.get("x-ratelimit-remaining", answer.headers.get("ratelimit-remaining")),
        )
        if status == 200:
            return answer
        if 300 <= status < 400:
            raise _elsewhere(url, urljoin(url, answer.headers.get("location", "")))
        if status == 429 or (status == 403 and (left == "0" or "retry-after" in answer.headers)):
            raise _limited(url, answer, has_token=self._has_token)
        if status in (401, 403):
            raise _forbidden(url, status, has_token=self._has_token)
        raise _external(url, status, retriable=status >= 500)


class Repositories(abc.ABC):
    """Base class of forges with repositories and releases. A subclass provides the URLs, and decides which releases are
    considered.
    """

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """Return the archive of that version.

        Raises AileronError(not_found) with the existing versions if the version is missing.
        """
        found = await self._maybe_archive(name, version, progress)
        if found is None:
            raise no_version(name, version, await self._versions_there(name))
        return found

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """Return the versions of `name` among the releases that the subclass considers, the oldest first."""
        return versions_in(await self._tags(Authority.of_repository(name)), name)

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """Return the key in `keys/publisher.pub` on the default branch."""
        return key_in(await self._maybe_file(repository, KEY_PATH, "HEAD", MAX_KEY_BYTES), repository)

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """Return a file of the repository at a ref. `latest` is the release that the forge calls its latest."""
        if ref == "latest":
            tag = await self._maybe_latest(repository)
            if tag is None:
                raise no_release(repository)
            ref = tag
        text = await self._maybe_file(repository, path, ref, MAX_SUITE_BYTES)
        if text is None:
            raise no_file(repository, path, ref)
        return SuiteText(text, ref)

    async def _versions_there(self, name: Fqn) -> tuple[str, ...]:
        try:
            return await self.versions(name)
        except AileronError:  # mostly a rate limit: the caller asked only for the missing version
            return ()

    @abc.abstractmethod
    async def _maybe_archive(self, name: Fqn, version: str, progress: Progress | None) -> bytes | None: ...

    @abc.abstractmethod
    async def _tags(self, repository: Authority) -> Sequence[str]: ...

    @abc.abstractmethod
    async def _maybe_latest(self, repository: Authority) -> str | None: ...

    @abc.abstractmethod
    async def _maybe_file(self, repository: Authority, path: str, ref: str, limit_bytes: int) -> str | None: ...


def _elsewhere(url: str, target: str) -> AileronError:
    return AileronError(
        FailureClass.CAPABILITY_DENIED,
        f"{_told(url)} redirects to {_told(target)}, which is not followed: a different owner, repository "
        "or host is a different publisher. If you want that one, use its own name",
        boundary=Boundary.EXTERNAL,
        details={"from": _told(url), "to": _told(target)},
    )


def check_ref(ref: str) -> str:
    """Return a valid tag or commit unchanged. Raises ValueError if `ref` is neither."""
    if not _REF.fullmatch(ref) or ".." in ref or "//" in ref or ref.endswith(("/", ".")):
        raise ValueError(f"{ref!r} is not a tag, a commit or 'latest'")
    return ref


def key_in(text: str | None, repository: Authority) -> PublicKey:
    """Return the public key in `text`, the content of `keys/publisher.pub`; None for `text` means that the file is missing.

    Raises AileronError (not_found) if it is missing, (invalid_request) if it is no key.
    """
    if text is None:
        raise _absent(f"{repository} has no {KEY_PATH} on its default branch: its publisher does not sign")
    try:
        return PublicKey.parse(text)
    except ValueError as error:
        raise AileronError(
            FailureClass.INVALID_REQUEST, f"{KEY_PATH} of {repository}: {error}", boundary=Boundary.EXTERNAL
        ) from None


MAX_KEY_BYTES: Final = MAX_KEY_FILE_BYTES


def no_repository(repository: Authority) -> AileronError:
    """Return the error that no repository of that name is visible."""
    return _absent(f"no repository {repository}, or reading it needs a token")


def no_release(repository: Authority) -> AileronError:
    """Return the error that the repository has no release, so `latest` refers to none."""
    return _absent(f"{repository} has no release: give a tag or a commit after the @")


def no_file(repository: Authority, path: str, ref: str) -> AileronError:
    """Return the error that the repository has no file `path` at the ref `ref`."""
    return _absent(f"{repository} has no {path} at {ref}")


def no_version(name: Fqn, version: str, there: Sequence[str]) -> AileronError:
    """Return the error for a version that was not published; it lists versions that were."""
    if there:
        listed = ", ".join(reversed(there[-_MAX_TOLD:]))
        known = f"there are {listed}" + (f" and {len(there) - _MAX_TOLD} older" if len(there) > _MAX_TOLD else "")
    else:
        known = "no version of it is published there, or reading it needs a token"
    return AileronError(
        FailureClass.NOT_FOUND,
        f"{name} has no version {version}: {known}",
        boundary=Boundary.EXTERNAL,
        details={"versions": list(there[-MAX_PAGES * 10 :])},
    )


def _absent(problem: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.EXTERNAL)


def _origin_of(url: str) -> str:
    """Return the origin of a checked address, that is everything before the first slash of its path."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _told(url: str) -> str:
    """Return an address for people, without the parts that may be secret: the query, which may be signed, and user
    information.
    """
    scheme, _, rest = url.partition("?")[0].partition("#")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return visible(f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"[:300])


def _limited(url: str, answer: Answer, *, has_token: bool) -> AileronError:
    after = answer.headers.get("retry-after", "")
    seconds = int(after) if after.isdecimal() and len(after) < 6 else None
    when = f"again in {seconds} s" if seconds is not None else "again later"
    fix = "" if has_token else "; a token raises the limit (forges.github.token or forges.gitlab.token in config.toml)"
    details: JSONObject = {"host": _origin_of(url)} | ({"retry_after_s": seconds} if seconds is not None else {})
    return AileronError(
        FailureClass.BUSY,
        f"{_origin_of(url)} limits requests for now: try {when}{fix}",
        boundary=Boundary.EXTERNAL,
        retriable=True,
        details=details,
    )


def _forbidden(url: str, status: int, *, has_token: bool) -> AileronError:
    fix = (
        "the token that config.toml names for it is not allowed to read that, or has expired"
        if has_token
        else (
            "private repositories need a token: store one with `aileron secret set NAME`, and name it in "
            "config.toml (forges)"
        )
    )
    return AileronError(FailureClass.UNAUTHORIZED, f"{_told(url)} answered {status}: {fix}", boundary=Boundary.EXTERNAL)


def _external(url: str, status: int, *, retriable: bool) -> AileronError:
    return AileronError(
        FailureClass.EXTERNAL_API_ERROR,
        f"{_told(url)} answered {status}{': try again in a while' if retriable else ''}",
        boundary=Boundary.EXTERNAL,
        retriable=retriable,
        details={"status": status},
    )


def not_understood(url: str, problem: str) -> AileronError:
    """Return the error that the response from an address is not understood."""
    return AileronError(FailureClass.INVALID_REQUEST, f"{_told(url)}: {problem}", boundary=Boundary.EXTERNAL)
