"""GitHub: releases with an asset `aileron.tar.gz`, at github.com or a server of its kind.

Without a token the pages that browsers use are asked, which have no tight limit; with one the API is, which also shows what is
private. Listing versions takes the API in any case.

Source: GitHub REST API, "Releases", "Release assets", "Contents"; docs/reference/forges.md.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from aileron.config import GitHubSettings
from aileron.model.failure import AileronError
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry.forges.forge import (
    ARCHIVE,
    KEY_PATH,
    MAX_KEY_BYTES,
    MAX_PAGES,
    MAX_SUITE_BYTES,
    Progress,
    SuiteText,
    Way,
    Web,
    key_in,
    no_file,
    no_release,
    no_repository,
    no_version,
    quoted,
    tag_of,
    versions_in,
)
from aileron.registry.keyring import Authority
from aileron.registry.signatures import PublicKey

__all__ = ["GitHub"]

_PER_PAGE: Final = 100
_VERSION: Final = ("X-GitHub-Api-Version", "2022-11-28")
_RAW: Final = "application/vnd.github.raw+json"


class _Asset(msgspec.Struct, frozen=True):
    id: int
    name: str


class _Release(msgspec.Struct, frozen=True):
    tag_name: str
    draft: bool = False
    assets: list[_Asset] = []


class GitHub:
    """One server, and one token or none."""

    def __init__(self, web: Web, settings: GitHubSettings, token: Secret | None = None) -> None:
        self._url = settings.url
        self._api = settings.api
        self._raw = settings.raw
        self._has_token = token is not None
        bearer = None if token is None else ("Authorization Bearer ", token)
        self._pages = Way(web, settings.url, settings.storage)
        self._files = Way(web, settings.raw)
        self._calls = Way(web, settings.api, settings.storage, headers=(_VERSION,), token=bearer)

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """As Forge."""
        if self._has_token:
            found = await self._private(name, version, progress)
        else:
            page = f"{self._url}/{_repository(name)}"
            url = f"{page}/releases/download/{quoted(tag_of(name, version))}/{ARCHIVE}"
            found = await self._pages.archive(url, (page,), None, progress)
        if found is None:
            raise no_version(name, version, await self._versions_there(name))
        return found

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """As Forge: those of releases that are no drafts and have the archive."""
        tags: list[str] = []
        for page in range(1, MAX_PAGES + 1):
            url = f"{self._repository(name)}/releases?per_page={_PER_PAGE}&page={page}"
            releases = await self._calls.maybe_page(url, _Release, _PER_PAGE)
            if releases is None:
                raise no_repository(Authority.of_repository(name))
            tags += [one.tag_name for one in releases if not one.draft and _archive_of(one) is not None]
            if len(releases) < _PER_PAGE:
                break
        return versions_in(tags, name)

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """As Forge."""
        return key_in(await self._file(repository, KEY_PATH, "HEAD", MAX_KEY_BYTES), repository)

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """As Forge. `latest` is what the repository calls its latest release."""
        if ref == "latest":
            found = await self._calls.maybe_json(
                f"{self._api}/repos/{'/'.join(repository.path)}/releases/latest", _Release
            )
            if found is None:
                raise no_release(repository)
            ref = found.tag_name
        text = await self._file(repository, path, ref, MAX_SUITE_BYTES)
        if text is None:
            raise no_file(repository, path, ref)
        return SuiteText(text, ref)

    async def _private(self, name: Fqn, version: str, progress: Progress | None) -> bytes | None:
        within = self._repository(name)
        url = f"{within}/releases/tags/{quoted(tag_of(name, version))}"
        release = await self._calls.maybe_json(url, _Release)
        asset = None if release is None else _archive_of(release)
        if asset is None:
            return None
        found = f"{within}/releases/assets/{asset.id}"
        return await self._calls.archive(found, (within,), "application/octet-stream", progress)

    async def _file(self, repository: Authority, path: str, ref: str, limit_bytes: int) -> str | None:
        repo = "/".join(repository.path)
        if self._has_token:
            url = f"{self._api}/repos/{repo}/contents/{quote(path)}?ref={quoted(ref)}"
            return await self._calls.maybe_text(url, limit_bytes, _RAW)
        return await self._files.maybe_text(f"{self._raw}/{repo}/{quote(ref)}/{quote(path)}", limit_bytes)

    async def _versions_there(self, name: Fqn) -> tuple[str, ...]:
        try:
            return await self.versions(name)
        except AileronError:  # a limit, above all: that the version is missing is what was asked
            return ()

    def _repository(self, name: Fqn) -> str:
        return f"{self._api}/repos/{_repository(name)}"


def _repository(name: Fqn) -> str:
    return "/".join(name.path[:2])


def _archive_of(release: _Release) -> _Asset | None:
    return next((asset for asset in release.assets if asset.name == ARCHIVE), None)
