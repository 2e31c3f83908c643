"""GitLab: releases with a link named `aileron.tar.gz` by its file path, at gitlab.com or a server of one's own.

Source: GitLab REST API, "Releases", "Repository files", and "Permanent links to release assets"; docs/reference/forges.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from aileron.config import GitLabSettings
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.model.visible import visible
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

__all__ = ["GitLab"]

_PER_PAGE: Final = 100


class _Release(msgspec.Struct, frozen=True):
    tag_name: str
    upcoming_release: bool = False


class _Project(msgspec.Struct, frozen=True):
    id: int
    path_with_namespace: str


class GitLab:
    """One server, and one token or none."""

    def __init__(self, web: Web, settings: GitLabSettings, token: Secret | None = None) -> None:
        self._url = settings.url
        private = None if token is None else ("PRIVATE-TOKEN", token)
        self._way = Way(web, settings.url, settings.storage, token=private)

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """As Forge. The permanent link leads to the package registry of the same project, or to the storage."""
        repository = Authority.of_repository(name)
        project = await self._way.maybe_json(self._project(repository), _Project)
        if project is None:
            raise no_repository(repository)
        if (
            project.path_with_namespace.lower() != "/".join(repository.path).lower()
        ):  # the API answers for the old name too
            raise _moved(repository, project.path_with_namespace)
        within = (
            self._project(repository),
            f"{self._url}/api/v4/projects/{project.id}",
            f"{self._url}/{'/'.join(repository.path)}",
        )
        url = f"{self._project(repository)}/releases/{quoted(tag_of(name, version))}/downloads/{ARCHIVE}"
        found = await self._way.archive(url, within, None, progress)
        if found is None:
            raise no_version(name, version, await self._versions_there(name))
        return found

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """As Forge."""
        repository = Authority.of_repository(name)
        return versions_in([one.tag_name for one in await self._releases(repository)], name)

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """As Forge."""
        return key_in(await self._file(repository, KEY_PATH, "HEAD", MAX_KEY_BYTES), repository)

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """As Forge. `latest` is the release that GitLab lists first, by its date."""
        if ref == "latest":
            releases = await self._releases(repository, pages=1)
            if not releases:
                raise no_release(repository)
            ref = releases[0].tag_name
        text = await self._file(repository, path, ref, MAX_SUITE_BYTES)
        if text is None:
            raise no_file(repository, path, ref)
        return SuiteText(text, ref)

    async def _releases(self, repository: Authority, pages: int = MAX_PAGES) -> list[_Release]:
        found: list[_Release] = []
        for page in range(1, pages + 1):
            url = f"{self._project(repository)}/releases?per_page={_PER_PAGE}&page={page}"
            releases = await self._way.maybe_page(url, _Release, _PER_PAGE)
            if releases is None:
                raise no_repository(repository)
            found += [one for one in releases if not one.upcoming_release]
            if len(releases) < _PER_PAGE:
                break
        return found

    async def _file(self, repository: Authority, path: str, ref: str, limit_bytes: int) -> str | None:
        url = f"{self._project(repository)}/repository/files/{quoted(path)}/raw?ref={quoted(ref)}"
        return await self._way.maybe_text(url, limit_bytes)

    async def _versions_there(self, name: Fqn) -> tuple[str, ...]:
        try:
            return await self.versions(name)
        except AileronError:
            return ()

    def _project(self, repository: Authority) -> str:
        """Its API: the path of a project is one segment there."""
        return f"{self._url}/api/v4/projects/{quoted('/'.join(repository.path))}"


def _moved(repository: Authority, now: str) -> AileronError:
    return AileronError(
        FailureClass.CAPABILITY_DENIED,
        f"{repository} is called {visible(now[:200])} now, which is another publisher's name: if you want that, name it so",
        boundary=Boundary.EXTERNAL,
    )
