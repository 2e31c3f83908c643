"""A Hub: a directory of files behind any web server, as `aileron hub build` lays it out.

    BASE/OWNER/…/NAME/versions.json            ["1.0.0", "1.1.0"]
    BASE/OWNER/…/NAME/1.1.0/aileron.tar.gz
    BASE/OWNER/REPOSITORY/keys/publisher.pub

A Hub has no redirects, no tokens and no names of its own to give: what `hub://` names is checked as any other.

Source: docs/reference/hub.md.
"""

from __future__ import annotations

from urllib.parse import quote

from aileron.config import HubSettings
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import Fqn
from aileron.registry.forges.forge import (
    ARCHIVE,
    KEY_PATH,
    MAX_KEY_BYTES,
    MAX_SUITE_BYTES,
    Progress,
    SuiteText,
    Way,
    Web,
    key_in,
    no_file,
    no_version,
    quoted,
    tag_of,
    versions_in,
)
from aileron.registry.keyring import Authority
from aileron.registry.signatures import PublicKey

__all__ = ["Hub"]


class Hub:
    """The one that config.toml names."""

    def __init__(self, web: Web, settings: HubSettings) -> None:
        self._url = settings.url
        self._way = Way(web, settings.url or "")

    async def archive(self, name: Fqn, version: str, progress: Progress | None = None) -> bytes:
        """As Forge."""
        place = self._place(name.path)
        found = await self._way.archive(f"{place}/{quoted(version)}/{ARCHIVE}", (), None, progress)
        if found is None:
            raise no_version(name, version, await self._listed(name) or ())
        return found

    async def versions(self, name: Fqn) -> tuple[str, ...]:
        """As Forge."""
        listed = await self._listed(name)
        if listed is None:
            raise AileronError(
                FailureClass.NOT_FOUND, f"the Hub at {self._base()} has no {name}", boundary=Boundary.EXTERNAL
            )
        return listed

    async def publisher_key(self, repository: Authority) -> PublicKey:
        """As Forge."""
        place = self._place(repository.path)
        return key_in(await self._way.maybe_text(f"{place}/{KEY_PATH}", MAX_KEY_BYTES), repository)

    async def suite(self, repository: Authority, path: str, ref: str) -> SuiteText:
        """As Forge: the ref is a directory."""
        place = self._place(repository.path)
        if ref == "latest":
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                "a Hub has no latest release of a whole repository: name the ref after the @",
                boundary=Boundary.USER,
            )
        text = await self._way.maybe_text(f"{place}/{quoted(ref)}/{quote(path)}", MAX_SUITE_BYTES)
        if text is None:
            raise no_file(repository, path, ref)
        return SuiteText(text, ref)

    async def _listed(self, name: Fqn) -> tuple[str, ...] | None:
        place = self._place(name.path)
        listed = await self._way.maybe_json(f"{place}/versions.json", list[str])
        return None if listed is None else versions_in([tag_of(name, version) for version in listed], name)

    def _place(self, path: tuple[str, ...]) -> str:
        return f"{self._base()}/{'/'.join(path)}"

    def _base(self) -> str:
        if self._url is None:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                'no Hub is named in config.toml: [hub] url = "https://…"',
                boundary=Boundary.USER,
            )
        return self._url
