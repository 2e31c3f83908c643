"""GitHub connector: the operations of its OpenAPI document (service/document.json), and reading and writing files as text.

In the document, the content of a file is base64, which a person who has to approve the content cannot read. `read_text_file`
and `write_text_file` send the same requests as the document's operations, but take and return text.

Runs inside the jail. Source: docs.github.com/rest/repos/contents. Not here: files that are not text, and files above 1 MB,
whose content GitHub does not return.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from aileron_connector import BadInput, ExternalApiError, op, openapi, run

SERVICE = openapi.declare("service")


@op
def read_text_file(owner: str, repo: str, path: str, ref: str | None = None) -> dict[str, Any]:
    """Read a file as text. The result includes the `sha` that is needed to replace or delete the file."""
    found = SERVICE.call("get_content", _given(owner=owner, repo=repo, path=path, ref=ref))
    if "items" in found or found.get("type") != "file":
        raise BadInput("the path is no file; for a directory use get_content", argument="path")
    if found.get("encoding") != "base64":
        raise BadInput(f"GitHub gives no content of a file of {found.get('size')} bytes", argument="path")
    return {"text": _text(found), **{key: found.get(key) for key in ("path", "sha", "size", "html_url")}}


@op
def write_text_file(
    owner: str, repo: str, path: str, message: str, text: str, sha: str | None = None, branch: str | None = None
) -> dict[str, Any]:
    """Make a commit that creates a file, or that replaces the file whose present content has this `sha`."""
    content = base64.b64encode(text.encode()).decode()
    told = _given(owner=owner, repo=repo, path=path, message=message, content=content, sha=sha, branch=branch)
    done = SERVICE.call("put_content", told)
    file, commit = done.get("content") or {}, done.get("commit") or {}
    return {"path": path, "sha": file.get("sha"), "commit": commit.get("sha"), "html_url": file.get("html_url")}


def _text(found: dict[str, Any]) -> str:
    try:
        return base64.b64decode(found.get("content", "")).decode()
    except UnicodeDecodeError:
        raise BadInput("the file is no text in UTF-8; get_content gives it in base64", argument="path") from None
    except (binascii.Error, TypeError):
        raise ExternalApiError("GitHub's answer has no content that can be decoded") from None


def _given(**arguments: str | None) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


if __name__ == "__main__":
    run()
