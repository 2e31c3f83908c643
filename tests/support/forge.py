"""A forge on loopback that responds as the release endpoints of GitHub, of GitLab and of a Hub do, over TLS.

    with ForgeServer(authority) as forge:
        forge.publish("github://acme/mail/connectors/imap", "1.2.0", archive)
        forge.keys["github://acme/mail"] = pem
        settings = forge.settings(authority)

Three servers: `web` (pages, API and raw files of all three, told apart by the first segment of the path), `storage`, to which
downloads are redirected, and `elsewhere`, which must get no request. A repository in `private` is visible only with its token;
`moved` maps a repository to its new name; `disturb` replaces the next responses.

Source: GitHub REST API 2022-11-28, "Releases", "Release assets", "Contents", "Rate limits"; GitLab REST API v4, "Releases",
"Permanent links to release assets", "Repository files". Left out: everything else they can do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from aileron.config import ForgeSettings, GitHubSettings, GitLabSettings, HubSettings, Settings
from aileron.model.names import Fqn, HostPort
from tests.support.serving import Server
from tests.support.upstream import Authority, Seen, Upstream, answer

__all__ = ["TOKEN", "ForgeServer"]

TOKEN: Final = "forge-token-4711-forge-token"
_ARCHIVE: Final = "aileron.tar.gz"


class ForgeServer(Server):
    """A forge between enter and exit. It keeps releases by full name and version."""

    def __init__(self, authority: Authority, listen: Callable[[], socket.socket] | None = None) -> None:
        """Make each server's listening socket by `listen`, if given, for another machine's loopback (tests/support/names.py)."""
        self._authority = authority
        self._listen = listen
        self.archives: dict[tuple[str, str], bytes] = {}
        self.keys: dict[str, str] = {}
        self.files: dict[tuple[str, str, str], str] = {}
        """Text files by repository, ref and path."""
        self.private: set[str] = set()
        self.moved: dict[str, str] = {}
        self.redirect_to: str | None = None
        """URL to which downloads are redirected, in place of the storage."""
        self._disturbed: list[bytes] = []
        self._stored: dict[str, bytes] = {}
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block."""
        context = self._authority.server_context("localhost")
        listen: Callable[[], socket.socket | None] = self._listen or (lambda: None)
        with (
            Upstream(self._web, context, listen()) as self.web,
            Upstream(self._storage, context, listen()) as self.storage,
            Upstream(lambda _: answer(b"caught"), context, listen()) as self.elsewhere,
        ):
            yield

    def publish(self, name: str, version: str, archive: bytes) -> None:
        """Publish a release of `name` with its archive, in place of any release of that version."""
        self.archives[name, version] = archive

    def disturb(self, *answers: bytes) -> None:
        """Replace the next responses of `web` by these bytes."""
        self._disturbed += answers

    @property
    def asked(self) -> list[str]:
        """Method and path of each request to `web`, in order."""
        return [f"{seen.method} {seen.target}" for seen in self.web.requests]

    def url(self, scheme: str = "") -> str:
        """Return the base URL of a scheme's server, or of all three."""
        return f"https://localhost:{self.web.port}{f'/{scheme}' if scheme else ''}"

    def forges(self, *, token: str | None = None) -> ForgeSettings:
        """Return settings that name this server."""
        storage = (f"https://localhost:{self.storage.port}",)
        return ForgeSettings(
            github=GitHubSettings(
                url=self.url("github"),
                api=self.url("github-api"),
                raw=self.url("github-raw"),
                storage=storage,
                token=token,
            ),
            gitlab=GitLabSettings(url=self.url("gitlab"), storage=storage, token=token),
            hub=HubSettings(url=self.url("hub")),
        )

    def settings(self, *, token: str | None = None) -> Settings:
        """Return settings that name this server and allow the way to it: its ports on loopback, and the authority."""
        ports = (self.web.port, self.storage.port, self.elsewhere.port)
        return Settings(
            egress_private=frozenset(HostPort("localhost", port) for port in ports),
            egress_ca_pem=self._authority.ca_pem,
            forges=self.forges(token=token),
        )

    def toml(self, *, token: str | None = None) -> str:
        """Return the lines of a config.toml with the values of `settings`."""
        forges = self.forges(token=token)
        github, gitlab = forges.github, forges.gitlab
        ports = ", ".join(f'"localhost:{server.port}"' for server in (self.web, self.storage, self.elsewhere))
        named = "" if token is None else f'token = "{token}"\n'
        return (
            f'[egress]\nprivate = [{ports}]\nca_file = "{self._authority.ca_file}"\n'
            f'[forges.github]\nurl = "{github.url}"\napi = "{github.api}"\nraw = "{github.raw}"\n'
            f"storage = {json.dumps(github.storage)}\n{named}"
            f'[forges.gitlab]\nurl = "{gitlab.url}"\nstorage = {json.dumps(gitlab.storage)}\n{named}'
            f'[hub]\nurl = "{forges.hub.url}"\n'
        )

    # What it answers

    def _web(self, seen: Seen) -> bytes | Iterable[bytes]:
        if self._disturbed:
            return self._disturbed.pop(0)
        parts = urlsplit(seen.target)
        segments = [unquote(part) for part in parts.path.strip("/").split("/")]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if seen.method != "GET" or not segments or not seen.values("user-agent"):
            return _error(400)
        match segments:
            case ["github", owner, repo, "releases", "download", tag, file]:
                return self._download(
                    f"github://{owner}/{repo}", tag, file, seen, "/github/{name}/releases/download/{rest}"
                )
            case ["github-api", "repos", owner, repo, *rest]:
                return self._github_api(f"github://{owner}/{repo}", rest, query, seen)
            case ["github-raw", owner, repo, *rest]:
                return self._raw_file(f"github://{owner}/{repo}", rest, seen)
            case ["gitlab", "api", "v4", "projects", project, *rest]:
                return self._gitlab_api(project, rest, query, seen)
            case ["hub", *path]:
                return self._hub(path)
            case _:
                return _error(404)

    def _download(self, repository: str, tag: str, file: str, seen: Seen, moved_to: str) -> bytes:
        if repository in self.moved:
            name = self.moved[repository].partition("://")[2]
            return _redirect(
                self.url() + moved_to.format(name=name, rest=f"{quote(tag, safe='')}/{file}"),
                status="301 Moved Permanently",
            )
        archive = self._archive_of(repository, tag)
        if archive is None or file != _ARCHIVE or not self._may_see(repository, seen):
            return _error(404)
        return self._stored_at(archive)

    def _stored_at(self, archive: bytes) -> bytes:
        place = f"/stored/{next(self._numbers)}/{_ARCHIVE}"
        self._stored[place] = archive
        return _redirect(
            self.redirect_to or f"https://localhost:{self.storage.port}{place}?signature=s3cret-of-the-storage"
        )

    def _github_api(self, repository: str, rest: list[str], query: dict[str, str], seen: Seen) -> bytes:
        if not seen.values("x-github-api-version") or not self._may_see(repository, seen):
            return _error(404 if seen.values("x-github-api-version") else 400)
        if repository in self.moved:
            return _redirect(f"{self.url()}/github-api/repositories/4711", status="301 Moved Permanently")
        tags = [tag for tag, _ in self._tags(repository)]
        match rest:
            case ["releases"]:
                size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
                found = [self._release(repository, tag) for tag in tags[(page - 1) * size : page * size]]
                return _json(found) if repository in self._repositories() else _error(404)
            case ["releases", "latest"]:
                return _json(self._release(repository, tags[-1])) if tags else _error(404)
            case ["releases", "tags", tag]:
                return _json(self._release(repository, tag)) if tag in tags else _error(404)
            case ["releases", "assets", number]:
                archive = self._archive_of(repository, tags[int(number) - 1])
                return (
                    _error(404)
                    if archive is None or seen.values("accept") != ["application/octet-stream"]
                    else self._stored_at(archive)
                )
            case ["contents", *path] if seen.values("accept") == ["application/vnd.github.raw+json"]:
                return self._text(repository, query.get("ref", "HEAD"), "/".join(path))
            case _:
                return _error(404)

    def _release(self, repository: str, tag: str) -> dict[str, Any]:
        number = [found for found, _ in self._tags(repository)].index(tag) + 1
        return {
            "id": number,
            "tag_name": tag,
            "draft": False,
            "prerelease": "actions/" in tag,
            "body": "Notes",
            "assets": [{"id": number, "name": _ARCHIVE, "content_type": "application/gzip"}],
        }

    def _raw_file(self, repository: str, rest: list[str], seen: Seen) -> bytes:
        if not self._may_see(repository, seen):
            return _error(404)
        refs = {ref for found, ref, _ in self.files if found == repository} | {"HEAD"}
        for end in range(1, len(rest)):
            if (ref := "/".join(rest[:end])) in refs:
                return self._text(repository, ref, "/".join(rest[end:]))
        return _error(404)

    def _text(self, repository: str, ref: str, path: str) -> bytes:
        if path == "keys/publisher.pub" and ref == "HEAD":
            text = self.keys.get(repository)
        else:
            text = self.files.get((repository, ref, path))
        return _error(404) if text is None else answer(text.encode(), "Content-Type: text/plain; charset=utf-8")

    def _gitlab_api(self, project: str, rest: list[str], query: dict[str, str], seen: Seen) -> bytes:
        repository = (
            f"gitlab://{project}" if not project.isdecimal() else self._repositories("gitlab")[int(project) - 1]
        )
        if repository not in self._repositories() or not self._may_see(repository, seen):
            return _error(404)
        tags = [tag for tag, _ in self._tags(repository)]
        now = self.moved.get(repository, repository).partition("://")[2]
        match rest:
            case []:
                return _json(
                    {"id": self._repositories("gitlab").index(repository) + 1, "path_with_namespace": now, "name": now}
                )
            case ["releases"]:
                size, page = int(query.get("per_page", 20)), int(query.get("page", 1))
                newest_first = tags[::-1][(page - 1) * size : page * size]
                return _json(
                    [{"tag_name": tag, "description": "Notes", "upcoming_release": False} for tag in newest_first]
                )
            case ["releases", tag, "downloads", file] if file == _ARCHIVE and tag in tags:
                number = self._repositories("gitlab").index(repository) + 1
                version = quote(tag, safe="")
                return _redirect(
                    self.redirect_to
                    or f"{self.url('gitlab')}/api/v4/projects/{number}/packages/generic/aileron/{version}/{file}"
                )
            case ["packages", "generic", "aileron", tag, file] if file == _ARCHIVE:
                archive = self._archive_of(repository, tag)
                return _error(404) if archive is None else self._stored_at(archive)
            case ["repository", "files", path, "raw"]:
                return self._text(repository, query.get("ref", "HEAD"), path)
            case _:
                return _error(404)

    def _hub(self, path: list[str]) -> bytes:
        names = {name.partition("://")[2]: name for name, _ in self.archives if name.startswith("hub://")}
        match path:
            case [*name, "versions.json"] if "/".join(name) in names:
                return _json([version for found, version in self.archives if found == names["/".join(name)]])
            case [*name, version, file] if (
                file == _ARCHIVE and (names.get("/".join(name), ""), version) in self.archives
            ):
                return answer(self.archives[names["/".join(name)], version], "Content-Type: application/gzip")
            case [owner, repo, "keys", "publisher.pub"]:
                return self._text(f"hub://{owner}/{repo}", "HEAD", "keys/publisher.pub")
            case [owner, repo, ref, *rest]:
                return self._text(f"hub://{owner}/{repo}", ref, "/".join(rest))
            case _:
                return _error(404)

    def _storage(self, seen: Seen) -> bytes:
        parts = urlsplit(seen.target)
        is_asked_well = (
            not seen.values("authorization") and not seen.values("private-token") and "signature=" in parts.query
        )
        archive = self._stored.get(parts.path)
        return (
            answer(archive, "Content-Type: application/octet-stream")
            if archive is not None and is_asked_well
            else _error(403)
        )

    def _may_see(self, repository: str, seen: Seen) -> bool:
        sent = [*seen.values("authorization"), *seen.values("private-token")]
        return repository not in self.private or sent in ([f"Bearer {TOKEN}"], [TOKEN])

    def _repositories(self, scheme: str = "") -> list[str]:
        names = [
            *self.keys,
            *(found for found, _, _ in self.files),
            *(_repository(name) for name, _ in self.archives),
            *self.moved,
        ]
        return [name for name in dict.fromkeys(names) if name.startswith(scheme)]

    def _tags(self, repository: str) -> Iterator[tuple[str, bytes]]:
        for (name, version), archive in self.archives.items():
            if _repository(name) == repository:
                yield "/".join((*Fqn.parse(name).path[2:], f"v{version}")), archive

    def _archive_of(self, repository: str, tag: str) -> bytes | None:
        return next((archive for found, archive in self._tags(repository) if found == tag), None)


def _repository(name: str) -> str:
    found = Fqn.parse(name)
    return f"{found.scheme}://{'/'.join(found.path[:2])}"


def _json(value: Any) -> bytes:
    return answer(json.dumps(value).encode(), "Content-Type: application/json; charset=utf-8")


def _error(status: int) -> bytes:
    return answer(b'{"message": "no"}', "Content-Type: application/json", status=f"{status} No")


def _redirect(to: str, status: str = "302 Found") -> bytes:
    assert re.fullmatch(r"[!-~]+", to)
    return answer(b"", f"Location: {to}", status=status)
