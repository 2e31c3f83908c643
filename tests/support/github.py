"""GitHub's REST API as its reference documents it, in the test's process: a real TLS server with a memory.

    with GitHubServer(authority.server_context(*NAMES), listener=machine.listen_at("api.github.com")) as github:
        github.allow("github_pat_…", {"issues": "write"})
        …                                        # something asks it
        assert github.issues[0]["title"] == "A crack"

It answers `GET /user`, `GET /repos/OWNER/REPO`, and `GET` and `POST /repos/OWNER/REPO/issues`, for one user and one
repository. An unknown token gets 401, a request without User-Agent 403, one that the token's permissions do not cover 403 with
`X-Accepted-GitHub-Permissions`, and a repository that the token does not have 404.

`asked` is every request, with a digest in place of the token. Source: docs.github.com/rest (users, repos, issues; "Getting
started", "Troubleshooting", "Permissions required for fine-grained personal access tokens").
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["NAMES", "REPOSITORY", "Asked", "GitHubServer", "digest_of"]

NAMES: Final = ("api.github.com",)
"""Names in the server's certificate."""
REPOSITORY: Final = "octocat/hello-world"
_EVERY: Final = {"metadata": "read", "issues": "write", "contents": "write", "pull_requests": "write"}
_COVERS: Final = {"read": ("read", "write"), "write": ("write",)}


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request. `authorization` is the digest of that field, as `digest_of` makes it; None if it had none."""

    method: str
    host: str
    path: str
    body: bytes
    authorization: str | None

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


class _RefusedError(Exception):
    def __init__(self, status: str, message: str, *fields: str) -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields
        self.body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": status[:3]}


def digest_of(token: str) -> str:
    """Return the value of `Asked.authorization` for a request with this bearer token."""
    return hashlib.sha256(f"Bearer {token}".encode()).hexdigest()


class GitHubServer(Service):
    """A server with one user, `mira`, and one repository."""

    def __init__(self, tls: ssl.SSLContext | None, *, listener: socket.socket | None = None) -> None:
        super().__init__(tls, listener)
        self.asked: Final[list[Asked]] = []
        self.issues: Final[list[dict[str, Any]]] = []
        self._allowed: Final[dict[str, Mapping[str, str]]] = {}

    def allow(self, token: str, permissions: Mapping[str, str] = _EVERY) -> None:
        """Accept this token from now on, for the repository and with these permissions (`read` or `write`)."""
        with self._lock:
            self._allowed[digest_of(token)] = permissions

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        path = urllib.parse.urlsplit(seen.target).path
        authorization = next(iter(seen.values("authorization")), None)
        digest = authorization and hashlib.sha256(authorization.encode()).hexdigest()
        with self._lock:
            self.asked.append(Asked(seen.method, next(iter(seen.values("host")), ""), path, seen.body, digest))
            try:
                status, body = self._done(seen, path, digest)
            except _RefusedError as error:
                return _json(error.body, *error.fields, status=error.status)
            return _json(body, status=status)

    def _done(self, seen: Seen, path: str, digest: str | None) -> tuple[str, Any]:
        if not seen.values("user-agent"):
            raise _RefusedError("403 Forbidden", "Request forbidden by administrative rules.")
        if digest is None or digest not in self._allowed:
            raise _RefusedError("401 Unauthorized", "Bad credentials" if digest else "Requires authentication")
        match seen.method, path.removeprefix(f"/repos/{REPOSITORY}"):
            case "GET", "/user":
                return "200 OK", {"login": "mira", "id": 1, "type": "User", "name": "Mira"}
            case "GET", "":
                self._check(digest, "metadata", "read")
                return "200 OK", {"id": 2, "full_name": REPOSITORY, "visibility": "public", "default_branch": "main"}
            case "GET", "/issues":
                self._check(digest, "issues", "read")
                return "200 OK", self.issues
            case "POST", "/issues":
                self._check(digest, "issues", "write")
                return "201 Created", self._created(json.loads(seen.body))
        raise _RefusedError("404 Not Found", "Not Found")

    def _check(self, digest: str, permission: str, access: str) -> None:
        if self._allowed[digest].get(permission) not in _COVERS[access]:
            message = "Resource not accessible by personal access token"
            raise _RefusedError("403 Forbidden", message, f"X-Accepted-GitHub-Permissions: {permission}={access}")

    def _created(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        number = len(self.issues) + 1
        issue = {
            "number": number,
            "title": asked["title"],
            "body": asked.get("body"),
            "state": "open",
            "user": {"login": "mira"},
            "html_url": f"https://github.com/{REPOSITORY}/issues/{number}",
        }
        self.issues.append(issue)
        return issue


def _json(body: Any, *fields: str, status: str) -> bytes:
    return answer(json.dumps(body).encode(), "Content-Type: application/json; charset=utf-8", *fields, status=status)
