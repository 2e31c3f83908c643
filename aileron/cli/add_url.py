"""`aileron add URL`: finds out what is at the address, and adds it like a service that comes with Aileron.

Runs in a command. What is at the address is hostile. It is read as a document first, then asked as a calendar server, and then as
an MCP server. The connector that is made of it is kept in the home, below `imported`, because the daemon builds it from there.

Rules
- Only the address that the person typed is contacted, and what it redirects to within its origin.
- What fails leaves nothing behind.

Source: docs/how-to/add-a-service.md#an-address. Not here: importing (aileron/importing), the dialogue for a service (add.py).
"""

from __future__ import annotations

import re
import shutil
import urllib.parse
from pathlib import Path
from typing import Final

from aileron.api.services import ServiceList
from aileron.catalogue.service import service_at, service_named, services
from aileron.cli import output
from aileron.cli.add import AddOptions, add_service
from aileron.cli.connector_import import Wanted, choices_of, import_source, source_of, tell_made
from aileron.cli.own_files import write_tree
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem, local_work
from aileron.cli.prompts import ask, can_ask
from aileron.cli.supervisor import Supervisor
from aileron.home import Home
from aileron.importing.fetching import load, speaks_caldav
from aileron.importing.found import described
from aileron.importing.reading import DocumentError
from aileron.importing.repository import Made
from aileron.model.names import Fqn
from aileron.model.visible import visible
from aileron.registry.manifest import parse_connector_manifest

__all__ = ["add_url", "remove_imported"]

_FORGES: Final = {"github.com": "github", "gitlab.com": "gitlab"}
_TAG: Final = re.compile(r"/(?:-/)?releases/(?:tag/)?([A-Za-z0-9._-]{1,64})")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,22}[a-z0-9]")
_COMMON: Final = frozenset({"www", "api", "mcp", "rest", "app", "com", "org", "net", "io", "dev", "co"})
"""Parts of host names that do not tell one service from another."""


def add_url(supervisor: Supervisor, url: str, given: AddOptions) -> int:
    """Add what is at an address. Return the exit code. Raises Problem if nothing that can be added is there."""
    parts = _parts(url)
    if parts.hostname in _FORGES and (code := _added_release(_FORGES[parts.hostname], parts.path, given)) is not None:
        return code
    name = _name_for(supervisor, parts.hostname or "", given)
    made = _made_of(url, Fqn.parse(f"github://you/connector-{name}"), given)
    if made is None:
        return _added_calendar(supervisor, parts, given)
    directory = Home(supervisor.home).imported / name
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(directory, ignore_errors=True)  # of an attempt that was killed
    write_tree(directory, made.files)
    code = None
    try:
        tell_made(made, {"name": name}, as_json=False)
        with local_work():
            service = service_at(directory, name, made.title)
        manifest = parse_connector_manifest(service.manifest, file=f"{name}/manifest.toml", allow_unbound=True)
        every = given if given.actions is not None else given._replace(actions="all")
        code = add_service(supervisor, service, manifest, every)
    finally:
        if code not in (OK, UNFINISHED, INTERRUPTED) and not _is_connected(supervisor, name):
            remove_imported(supervisor.home, name)
    return code


def remove_imported(home: Path, name: str) -> None:
    """Remove the files that a service was made from, if there are any."""
    if _NAME.fullmatch(name):
        shutil.rmtree(Home(home).imported / name, ignore_errors=True)


def _is_connected(supervisor: Supervisor, name: str) -> bool:
    return any(entry.name == name for entry in supervisor.fetch(ServiceList, "GET", "/v1/services").services)


def _parts(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise Problem.usage(f"{visible(url)[:200]} is not a URL", fix="aileron add https://HOST/PATH") from None
    if "@" in parts.netloc:  # the URL is not shown, because of the password
        raise Problem.usage("the URL has a user name or password", fix="aileron add https://HOST/PATH")
    return parts


def _name_for(supervisor: Supervisor, host: str, given: AddOptions) -> str:
    """Return the name with which the actions begin: by the address, or by the person. Raises Problem for a name that is taken."""
    labels = [label for label in host.split(".") if label not in _COMMON and _NAME.fullmatch(label)]
    proposed = labels[-1] if labels else "service"
    if proposed in (service.name for service in services()):
        proposed = f"{proposed}-api"
    connected = supervisor.fetch(ServiceList, "GET", "/v1/services").services
    taken = {*(service.name for service in services()), *(entry.name for entry in connected)}
    while can_ask() and given.actions is None:
        name = ask("A name for it; its actions begin with it", proposed).lower()
        if _NAME.fullmatch(name) and name not in taken:
            return name
        output.note("expected 2 to 24 lower-case letters, digits and '-', and a name that no service has")
    if proposed in taken:
        raise Problem.usage(f"{proposed} is connected already", fix=f"aileron remove {proposed}")
    return proposed


def _made_of(url: str, name: Fqn, given: AddOptions) -> Made | None:
    """Return what an import makes of the address; None for a calendar server. Raises Problem if it is none of the three."""
    from aileron.cli.connector_import_server import server_source

    choices = choices_of(
        url,
        server=None,
        host=None,
        variables=(),
        auth=None,
        client_id=given.client_id,
        auth_server=None,
        scopes=(),
        trust_read_only=False,
        fields=(),
        names=(),
        answer_depth=None,
    )
    try:
        found = described(load([url]))
    except DocumentError as no_document:
        if speaks_caldav(url):
            return None
        server = Wanted(sources=(f"mcp+{url}",), choices=choices, everything=True)
        try:
            return import_source(name, server, server_source)
        except Problem as no_server:
            raise Problem.usage(
                f"{visible(url)} is neither an OpenAPI document, an MCP server nor a calendar server",
                why=f"as a document: {visible(str(no_document))}; as an MCP server: {no_server.what}",
                fix="give the address of the service's OpenAPI document, or `aileron add` for what comes with Aileron",
            ) from None
    is_chosen = not can_ask() or given.actions is not None
    wanted = Wanted(sources=(url,), choices=choices, everything=is_chosen)
    return import_source(name, wanted, lambda *asked: source_of(found, *asked))


def _added_calendar(supervisor: Supervisor, parts: urllib.parse.SplitResult, given: AddOptions) -> int:
    service = service_named("caldav")
    manifest = parse_connector_manifest(service.manifest, file="caldav/manifest.toml", allow_unbound=True)
    output.note(f"{visible(parts.netloc)} is a calendar server")
    return add_service(supervisor, service, manifest, given._replace(hosts=(parts.netloc.rpartition("@")[2],)))


def _added_release(forge: str, path: str, given: AddOptions) -> int | None:
    """Install the actions that a repository's release publishes. Return the exit code; None if the path is not a repository's.

    Raises Problem if the address names no release.
    """
    owner, _, rest = path.strip("/").partition("/")
    repository, _, page = rest.partition("/")
    if not owner or not repository or (page and not page.removeprefix("-/").startswith("releases")):
        return None  # a document in the repository, for instance
    named = _TAG.search(path)
    if named is None or named[1] == "latest":
        raise Problem.usage(
            f"https://{forge}.com{visible(path)} names no release, so it could change",
            fix=f"aileron add https://{forge}.com/{visible(owner)}/{visible(repository)}/releases/tag/TAG",
        )
    from aileron.cli.app import main

    suite = f"{forge}://{owner}/{repository}/suite.toml@{named[1]}"
    return main(["action", "add-suite", suite, *(["--yes"] if given.yes else [])])
