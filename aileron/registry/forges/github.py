"""GitHub: releases with an asset `aileron.tar.gz`, at github.com or a GitHub Enterprise server.

Without a token, requests go to the pages that browsers use, which have no tight limit; with a token, to the API, which also
shows private repositories. Versions are always listed through the API.

Source: GitHub REST API, "Releases", "Release assets", "Contents"; docs/reference/forges.md.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from aileron.config import GitHubSettings
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry.forges.forge import (
    ARCHIVE,
    Progress,
    Repositories,
    Way,
    Web,
    no_repository,
    quoted,
    tag_of,
)
from aileron.registry.keyring import Authority

__all__ = ["GitHub"]

_VERSION: Final = ("X-GitHub-Api-Version", "2022-11-28")
_RAW: Final = "application/vnd.github.raw+json"


class _Asset(msgspec.Struct, frozen=True):
    id: int
    name: str


class _Release(msgspec.Struct, frozen=True):
    tag_name: str
    draft: bool = False
    assets: list[_Asset] = []


class GitHub(Repositories):
    """A client of a GitHub server, with a token or without."""

    def __init__(self, web: Web, settings: GitHubSettings, token: Secret | None = None) -> None:
        self._url = settings.url
        self._api = settings.api
        self._raw = settings.raw
        self._has_token = token is not None
        bearer = None if token is None else ("Authorization Bearer ", token)
        self._pages = Way(web, settings.url, settings.storage)
        self._files = Way(web, settings.raw)
        self._calls = Way(web, settings.api, settings.storage, headers=(_VERSION,), token=bearer)

    async def _maybe_archive(self, name: Fqn, version: str, progress: Progress | None) -> bytes | None:
        if self._has_token:
            return await self._private(name, version, progress)
        page = f"{self._url}/{_path_of(Authority.of_repository(name))}"
        url = f"{page}/releases/download/{quoted(tag_of(name, version))}/{ARCHIVE}"
        return await self._pages.archive(url, (page,), None, progress)

    async def _tags(self, repository: Authority) -> list[str]:
        """Return the tags of releases that are not drafts and have the archive."""
        releases = await self._calls.maybe_pages(f"{self._repository(repository)}/releases", _Release)
        if releases is None:
            raise no_repository(repository)
        return [release.tag_name for release in releases if not release.draft and _archive_of(release) is not None]

    async def _maybe_latest(self, repository: Authority) -> str | None:
        """Return the tag of the release that the repository calls its latest."""
        found = await self._calls.maybe_json(f"{self._repository(repository)}/releases/latest", _Release)
        return None if found is None else found.tag_name

    async def _private(self, name: Fqn, version: str, progress: Progress | None) -> bytes | None:
        within = self._repository(Authority.of_repository(name))
        url = f"{within}/releases/tags/{quoted(tag_of(name, version))}"
        release = await self._calls.maybe_json(url, _Release)
        asset = None if release is None else _archive_of(release)
        if asset is None:
            return None
        found = f"{within}/releases/assets/{asset.id}"
        return await self._calls.archive(found, (within,), "application/octet-stream", progress)

    async def _maybe_file(self, repository: Authority, path: str, ref: str, limit_bytes: int) -> str | None:
        if self._has_token:
            url = f"{self._repository(repository)}/contents/{quote(path)}?ref={quoted(ref)}"
            return await self._calls.maybe_text(url, limit_bytes, _RAW)
        return await self._files.maybe_text(
            f"{self._raw}/{_path_of(repository)}/{quote(ref)}/{quote(path)}", limit_bytes
        )

    def _repository(self, repository: Authority) -> str:
        return f"{self._api}/repos/{_path_of(repository)}"


def _path_of(repository: Authority) -> str:
    return "/".join(repository.path)


def _archive_of(release: _Release) -> _Asset | None:
    return next((asset for asset in release.assets if asset.name == ARCHIVE), None)
