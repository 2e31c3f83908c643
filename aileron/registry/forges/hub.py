"""A Hub: a directory of files behind any web server, as `aileron hub build` lays it out.

    BASE/OWNER/…/NAME/versions.json            ["1.0.0", "1.1.0"]
    BASE/OWNER/…/NAME/1.1.0/aileron.tar.gz     beside it manifest.toml or action.md
    BASE/OWNER/REPOSITORY/keys/publisher.pub
    BASE/index.json

A Hub has no redirects, no tokens and no authority over names: an artifact with a `hub://` name is checked like any other.

Source: docs/reference/hub.md.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import anyio.to_thread

from aileron.config import HubSettings
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.http_date import parse_http_date
from aileron.model.names import Fqn
from aileron.registry.forges.forge import (
    ARCHIVE,
    KEY_PATH,
    MAX_KEY_BYTES,
    MAX_SUITE_BYTES,
    MAX_VERSIONS,
    Progress,
    SuiteText,
    Way,
    Web,
    key_in,
    no_file,
    no_version,
    not_understood,
    quoted,
    tag_of,
    versions_in,
)
from aileron.registry.hub_index import INDEX, MAX_INDEX_BYTES, Index, parse_index
from aileron.registry.keyring import Authority
from aileron.registry.signatures import PublicKey
from aileron.registry.tarball import ACTION, MANIFEST, MAX_BYTES, Kind

__all__ = ["Dated", "Hub"]


class Dated(NamedTuple):
    """An index, and its Last-Modified time (RFC 3339), if the server states one."""

    content: Index
    as_of: str | None


class Hub:
    """A client of the Hub that is configured in config.toml."""

    def __init__(self, web: Web, settings: HubSettings) -> None:
        self._url = settings.url
        self._way = Way(web, settings.url or "")

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """Return the archive of that version.

        Raises AileronError(not_found) with the existing versions if the version is missing.
        """
        place = self._place(name.path)
        found = await self._way.archive(f"{place}/{quoted(version)}/{ARCHIVE}", (), None, progress)
        if found is None:
            raise no_version(name, version, await self._listed(name) or ())
        return found

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """Return the listed versions, the oldest first. Raises AileronError(not_found) if the Hub has no such name."""
        listed = await self._listed(name)
        if listed is None:
            raise AileronError(
                FailureClass.NOT_FOUND, f"the Hub at {self._base()} has no {name}", boundary=Boundary.EXTERNAL
            )
        return listed

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """Return the key in `keys/publisher.pub` of the repository."""
        place = self._place(repository.path)
        return key_in(await self._way.maybe_text(f"{place}/{KEY_PATH}", MAX_KEY_BYTES), repository)

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """Return a file of the repository, read from the directory named `ref`. A Hub has no `latest`."""
        place = self._place(repository.path)
        if ref == "latest":
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                "a Hub has no latest release of a whole repository: give a ref after the @",
                boundary=Boundary.USER,
            )
        text = await self._way.maybe_text(f"{place}/{quoted(ref)}/{quote(path)}", MAX_SUITE_BYTES)
        if text is None:
            raise no_file(repository, path, ref)
        return SuiteText(text, ref)

    @property
    def address(self) -> str:
        """Address of the Hub. Raises AileronError(invalid_request) if config.toml specifies none."""
        return self._base()

    async def index(self) -> Dated:
        """Return the Hub's index.

        Raises AileronError (not_found) if the Hub has none, (invalid_request) if the index is not valid.
        """
        url = f"{self._base()}/{INDEX}"
        found = await self._way.maybe_answer(url, MAX_INDEX_BYTES)
        if found is None:
            problem = f"no Hub at {self._base()}: {INDEX} is missing. Check hub.url in config.toml"
            raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.EXTERNAL)
        try:
            # Parsing one of the largest takes some hundred milliseconds, in which the event loop could answer nothing else.
            index = await anyio.to_thread.run_sync(parse_index, found.body)
        except ValueError as error:
            raise not_understood(url, f"the index is not valid: {error}") from None
        return Dated(index, _maybe_time(found.headers.get("last-modified")))

    async def document(self, name: Fqn, version: str, kind: Kind) -> tuple[str, bytes]:
        """Return a version's manifest.toml or action.md, unparsed, and its address.

        Raises AileronError(not_found) if it is missing.
        """
        file = MANIFEST if kind == "connector" else ACTION
        url = f"{self._place(name.path)}/{quoted(version)}/{file}"
        found = await self._way.maybe_answer(url, MAX_BYTES[file])
        if found is None:
            problem = (
                f"the Hub's index names {name}@{version}, but {url} does not exist: the index is out of date, try again"
            )
            raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.EXTERNAL)
        return url, found.body

    async def _listed(self, name: Fqn) -> tuple[str, ...] | None:
        place = self._place(name.path)
        listed = await self._way.maybe_json(f"{place}/versions.json", list[str], MAX_VERSIONS + 1)
        return None if listed is None else versions_in([tag_of(name, version) for version in listed], name)

    def _place(self, path: tuple[str, ...]) -> str:
        return f"{self._base()}/{'/'.join(path)}"

    def _base(self) -> str:
        if self._url is None:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                'config.toml names no Hub: [hub] url = "https://…"',
                boundary=Boundary.USER,
            )
        return self._url


def _maybe_time(text: str | None) -> str | None:
    """Return an HTTP date as RFC 3339; None if the text is not a date."""
    moment = None if text is None else parse_http_date(text)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")
