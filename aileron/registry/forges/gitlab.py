"""GitLab: releases with a link whose file path is `aileron.tar.gz`, at gitlab.com or a self-hosted server.

Source: GitLab REST API, "Releases", "Repository files", and "Permanent links to release assets"; docs/reference/forges.md.
"""

from __future__ import annotations

import msgspec

from aileron.config import GitLabSettings
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.model.visible import visible
from aileron.registry.forges.forge import (
    ARCHIVE,
    MAX_PAGES,
    Progress,
    Repositories,
    Way,
    Web,
    no_repository,
    quoted,
    tag_of,
)
from aileron.registry.keyring import Authority

__all__ = ["GitLab"]


class _Release(msgspec.Struct, frozen=True):
    tag_name: str
    upcoming_release: bool = False


class _Project(msgspec.Struct, frozen=True):
    id: int
    path_with_namespace: str


class GitLab(Repositories):
    """A client of a GitLab server, with a token or without."""

    def __init__(self, web: Web, settings: GitLabSettings, token: Secret | None = None) -> None:
        self._url = settings.url
        private = None if token is None else ("PRIVATE-TOKEN", token)
        self._way = Way(web, settings.url, settings.storage, token=private)

    async def _maybe_archive(self, name: Fqn, version: str, progress: Progress | None) -> bytes | None:
        """Return the archive of `name` in this version; None if it is missing. Its permanent link redirects to the
        package registry of the same project, or to GitLab's storage.
        """
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
        return await self._way.archive(url, within, None, progress)

    async def _tags(self, repository: Authority) -> list[str]:
        return [release.tag_name for release in await self._releases(repository)]

    async def _maybe_latest(self, repository: Authority) -> str | None:
        """Return the tag of the release that GitLab lists first by date."""
        releases = await self._releases(repository, pages=1)
        return releases[0].tag_name if releases else None

    async def _releases(self, repository: Authority, pages: int = MAX_PAGES) -> list[_Release]:
        found = await self._way.maybe_pages(f"{self._project(repository)}/releases", _Release, pages)
        if found is None:
            raise no_repository(repository)
        return [release for release in found if not release.upcoming_release]

    async def _maybe_file(self, repository: Authority, path: str, ref: str, limit_bytes: int) -> str | None:
        url = f"{self._project(repository)}/repository/files/{quoted(path)}/raw?ref={quoted(ref)}"
        return await self._way.maybe_text(url, limit_bytes)

    def _project(self, repository: Authority) -> str:
        """Return the project's address in the API, where the project's path is quoted as one segment."""
        return f"{self._url}/api/v4/projects/{quoted('/'.join(repository.path))}"


def _moved(repository: Authority, now: str) -> AileronError:
    return AileronError(
        FailureClass.CAPABILITY_DENIED,
        f"{repository} is now called {visible(now[:200])}, which is another publisher's name: if you want it, use that name",
        boundary=Boundary.EXTERNAL,
    )
