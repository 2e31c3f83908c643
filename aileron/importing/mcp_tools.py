"""A connector's files made from an MCP server's tools: the frozen tools in `service/tools.json`, and an action for each tool.

A tool is treated as an operation whose body is the tool's input and whose response is its output, so that inputs, rules and
descriptions are made as in any import. Only the gate differs.

Rules
- Every tool waits for a person. A server's own hints can only make this stricter: `destructiveHint` gives a tool the effect
  `delete`. A tool with `readOnlyHint` runs without a person only if the author trusts the server (`trust_read_only`, for all its
  tools), and neither `destructiveHint` nor the tool's name says that it writes.
- A tool is not imported, with a reported reason, if another tool has its name, its name has hidden characters, its schema cannot
  be expressed, or it runs only as a task.
- Descriptions are untrusted text for a model: in actions they are cleaned and shortened; in the frozen file they are unchanged.

Pure. Source: Model Context Protocol 2025-11-25 and 2026-07-28, Tools; docs/how-to/import-an-mcp-server.md. Not here: asking the
server (mcp_listing.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from aileron.actions.operation_names import guessed_effect
from aileron.importing.actions import action_text
from aileron.importing.effects import effect_of
from aileron.importing.found import Described, FoundOperation
from aileron.importing.manifest import manifest_text
from aileron.importing.mcp_cases import cases_text
from aileron.importing.mcp_listing import Listing
from aileron.importing.operations import Imported, Importer, Unimported
from aileron.importing.reading import DocumentError, Files
from aileron.importing.record import RECORD, Choices
from aileron.importing.references import References
from aileron.importing.repository import ActionFiles, Made, record_of, service_of
from aileron.importing.security import Credential, choose
from aileron.importing.words import is_visible, line
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject, checked_text, dict_of, maybe_text
from aileron.model.manifest import Effect
from aileron.model.names import Fqn
from aileron.registry.manifest import MAX_OPERATIONS, parse_connector_manifest
from aileron_connector.mcp.document import FORMAT, Components, Tool, Tools, digest_of
from aileron_connector.mcp.headers import header_problem

__all__ = ["TOOLS", "Described", "described_tools", "make_tools", "runs_alone"]

_PACKAGE: Final = "service"
TOOLS: Final = f"{_PACKAGE}/tools.json"
_PROGRAM: Final = '''\
"""{title}: tools of its MCP server, which are service/tools.json."""

from aileron_connector import mcp

if __name__ == "__main__":
    mcp.run("service")
'''
_PACKAGED: Final = '"""The tools as the server listed them. docs/reference/packed-mcp-tools.md of Aileron."""\n'
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
_MAX_NAME: Final = 60
_MAX_TOOL_NAME: Final = 128
_COMBINING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if", "minProperties"})
_JSON: Final = "application/json"


# Tools as operations


def described_tools(listing: Listing) -> Described:
    """Return the tools as a document's operations. Raises DocumentError if there are none."""
    if not listing.tools:
        raise DocumentError("the server has no tools")
    values: JSONObject = {"tools.json": {}}
    operations: list[FoundOperation] = []
    names: set[str] = set()
    for number, tool in enumerate(listing.tools):
        values[f"{number}.json"] = tool.get("inputSchema")
        values[f"{number}-output.json"] = tool.get("outputSchema")
        operations.append(_operation(tool, number, _name(checked_text(tool["name"]), names)))
    files = Files("tools.json", values, listing.digest)
    return Described(
        title=listing.title,
        version=listing.version,
        license={},
        is_3_0=False,
        servers=(),
        security=None,
        schemes={},
        operations=tuple(operations),
        references=References(files),
        digest=listing.digest,
    )


def _name(said: str, taken: set[str]) -> str:
    """Return the tool name `said` in snake case, with a number if the name is in `taken`, and add the result to `taken`."""
    name = "_".join(word.lower() for word in _WORDS.findall(said))[:_MAX_NAME].strip("_")
    name = name if name[:1].isalpha() else f"tool_{name}".rstrip("_")
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name[: _MAX_NAME - 5]}_{number}", number + 1
    taken.add(candidate)
    return candidate


def _operation(tool: JSONObject, number: int, name: str) -> FoundOperation:
    schema, answer = tool.get("inputSchema"), tool.get("outputSchema")
    body: JSONObject = {}
    if isinstance(schema, dict) and not _is_empty(schema):
        needed = bool(schema.get("required")) or bool(_COMBINING & schema.keys())
        body = {"requestBody": {"required": needed, "content": {_JSON: {"schema": schema}}}}
    reference: JSONObject = {"$ref": f"{number}-output.json"}
    answers: JSONObject = (
        {"responses": {"200": {"content": {_JSON: {"schema": reference}}}}} if isinstance(answer, dict) else {}
    )
    notes = tool.get("annotations")
    title = next((text for text in (tool.get("title"), dict_of(notes).get("title")) if isinstance(text, str)), "")
    description = tool.get("description") if isinstance(tool.get("description"), str) else ""
    return FoundOperation(
        name=name,
        path=f"/{number}",
        method="post",
        tags=(),
        summary=line(title, 200),
        raw={"operationId": tool["name"], "description": description, **body, **answers},
        shared=(),
        servers=(),
        file=f"{number}.json",
    )


def _is_empty(schema: JSONObject) -> bool:
    """Return whether the tool takes no arguments."""
    return not (schema.get("properties") or schema.get("required") or _COMBINING & schema.keys())


def _problem(tool: JSONObject, names: Counter[str]) -> str | None:
    """Return why a tool cannot be called at all, whatever the arguments; None if it can be called. `names` counts the
    tools of each name.
    """
    name = checked_text(tool["name"])
    if not name or len(name) > _MAX_TOOL_NAME or not is_visible(name):
        return f"its name is empty, longer than {_MAX_TOOL_NAME} characters, or has characters that cannot be seen"
    if names[name] > 1:
        return f"the server lists {names[name]} tools of this name"
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "its input schema is not that of an object"
    return header_problem(schema)


# Gates


def runs_alone(tool: JSONObject, effect: Effect, *, trust_read_only: bool) -> bool:
    """Return whether a tool runs without a person: its hints and its effect say it reads, and the author trusts the hints."""
    notes = dict_of(tool.get("annotations"))
    says_so = notes.get("readOnlyHint") is True and notes.get("destructiveHint") is not True
    return trust_read_only and says_so and effect is Effect.READ


def _effect(tool: JSONObject, name: str) -> Effect:
    """Return the effect of a tool from its hints and its name; the heavier effect if they differ."""
    notes = dict_of(tool.get("annotations"))
    if notes.get("destructiveHint") is True:
        return Effect.DELETE
    if notes.get("readOnlyHint") is True:
        return effect_of("get", name, "")
    by_words = effect_of("post", name, "")
    return Effect.READ if by_words is Effect.CREATE and guessed_effect(name) is Effect.READ else by_words


# Files


def make_tools(
    listing: Listing, described: Described, operations: Sequence[FoundOperation], connector: Fqn, choices: Choices
) -> Made:
    """Make all files of a connector for the chosen tools. Raises DocumentError if none can be made; problems with
    single tools are in `unimported`.
    """
    credential = _credential(listing, described, operations, choices)
    importer = Importer(described, credential)
    names = Counter(checked_text(tool["name"]) for tool in listing.tools)
    imported, unimported = _imported(importer, listing, operations, names, choices)
    service = service_of(connector)
    actions = ActionFiles(service)
    for operation in imported:
        name = actions.names.of(operation.name)
        said = line(checked_text(operation.found.raw["operationId"]), 100).replace("`", "'")
        text = action_text(name, connector, operation, None, listing.title, tag=service, called=f"the tool `{said}`")
        actions.add(operation, name, text, has_preview=False)
    files, kept = actions.files, actions.kept
    unimported += actions.refused
    _check_number(kept, unimported)
    tools = _tools(listing, importer, kept, credential)
    files |= {
        "manifest.toml": _manifest(listing, kept, connector, credential),
        "connector.py": _PROGRAM.format(title=line(listing.title, 60).replace("\\", "").replace('"', "'")).encode(),
        f"{_PACKAGE}/__init__.py": _PACKAGED.encode(),
        TOOLS: msgspec.json.format(msgspec.json.encode(tools), indent=1) + b"\n",
    }
    if (cases := cases_text(tools, kept)) is not None:
        files["tests/cases.toml"] = cases.encode()
    files[RECORD] = record_of(described, operations, choices, files).encoded()
    return Made(
        files=files,
        actions=tuple(actions.made),
        imported=tuple(kept),
        unimported=tuple(unimported),
        left_out={operation.name: operation.left_out for operation in kept if operation.left_out},
        credential=credential,
        has_client=choices.client_id is not None,
        origins=(listing.origin,),
        document_bytes=len(files[TOOLS]),
        title=listing.title,
        license="",
        is_document=False,
    )


def _credential(
    listing: Listing, described: Described, operations: Sequence[FoundOperation], choices: Choices
) -> Credential:
    """Return the sign-in as a credential if one was found, else the credential that the author chose."""
    found = listing.authorization
    if found is None:
        return choose(described, operations, choices.auth)
    return Credential(
        scheme="",
        kind="oauth2",
        authorize_url=found.authorize_url,
        token_url=found.token_url,
        scopes=found.scopes,
        client_id=choices.client_id,
        registration_url=found.registration_url,
        resource=found.resource,
        issuer=found.issuer,
        issuer_in_answer=found.names_issuer,
        revocation_url=found.revocation_url,
    )


def _imported(
    importer: Importer,
    listing: Listing,
    operations: Sequence[FoundOperation],
    names: Counter[str],
    choices: Choices,
) -> tuple[list[Imported], list[Unimported]]:
    imported: list[Imported] = []
    unimported: list[Unimported] = []
    for found in operations:
        tool = _tool_of(listing, found)
        problem = _problem(tool, names)
        if tool["name"] in listing.as_tasks:
            problem = "it can be called as a task only, which is not supported"
        outcome = Unimported(found, problem) if problem is not None else importer.operation(found, None)
        if isinstance(outcome, Unimported):
            unimported.append(outcome)
            continue
        imported.append(_gated(outcome, tool, choices))
    return imported, unimported


def _gated(operation: Imported, tool: JSONObject, choices: Choices) -> Imported:
    """Return the operation with the effect of its tool. Its method becomes `get` if the tool runs without a person,
    otherwise `post`.
    """
    effect = _effect(tool, operation.name)
    method = "get" if runs_alone(tool, effect, trust_read_only=choices.trust_read_only) else "post"
    hidden = [
        f"{key}: characters that cannot be seen were left out"
        for key in ("title", "description")
        if not all(map(is_visible, (maybe_text(tool.get(key)) or "").splitlines()))
    ]
    return msgspec.structs.replace(
        operation,
        effect=effect,
        found=msgspec.structs.replace(operation.found, method=method),
        left_out=(*hidden, *operation.left_out),
    )


def _tool_of(listing: Listing, found: FoundOperation) -> JSONObject:
    return listing.tools[int(found.path[1:])]


def _check_number(kept: Sequence[Imported], unimported: Sequence[Unimported]) -> None:
    if not kept:
        first = unimported[0] if unimported else None
        why = "" if first is None else f"; {first.found.name}: {first.reason}"
        raise DocumentError(f"none of the {len(unimported)} tools can be imported{why}")
    if len(kept) > MAX_OPERATIONS:
        raise DocumentError(
            f"{len(kept)} tools; a connector has at most {MAX_OPERATIONS}: choose fewer with --ops or --grep"
        )


def _manifest(listing: Listing, kept: Sequence[Imported], connector: Fqn, credential: Credential) -> bytes:
    text = manifest_text(
        connector,
        line(listing.title, 80),
        line(listing.version, 40),
        listing.digest,
        [str(listing.origin.host)],
        credential,
        None,
        kept,
        made_from="an MCP server",
        imports=("http", "log", "progress"),
    ).encode()
    try:
        parse_connector_manifest(text, file="manifest.toml", allow_unbound=True)
    except AileronError as error:
        raise DocumentError(f"its manifest would not be valid: {error.failure.message}") from None
    return text


def _tools(listing: Listing, importer: Importer, kept: Sequence[Imported], credential: Credential) -> Tools:
    packed = {operation.name: _packed(_tool_of(listing, operation.found), operation) for operation in kept}
    schemas = importer.packer.reachable(_schemas(packed.values()))
    return Tools(
        format=FORMAT,
        title=listing.title,
        version=listing.version,
        path=listing.path,
        protocol=listing.protocol,
        credential=credential.kind or "",
        tools={name: msgspec.Raw(msgspec.json.encode(tool)) for name, tool in packed.items()},
        components=Components({name: msgspec.Raw(msgspec.json.encode(schema)) for name, schema in schemas.items()}),
    )


def _packed(tool: JSONObject, operation: Imported) -> Tool:
    body, answer = operation.packed.request_body, operation.packed.responses.get("200")
    return Tool(
        digest=digest_of(tool),
        listed=tool,
        arguments={} if body is None else body.arguments,
        argument="" if body is None else body.argument,
        sent=True if body is None else body.content[_JSON].schema,
        answered=True if answer is None or _JSON not in answer.content else answer.content[_JSON].schema,
    )


def _schemas(tools: Any) -> Iterator[Any]:
    for tool in tools:
        yield tool.sent
        yield tool.answered
