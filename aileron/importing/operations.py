"""The import of one complete operation: its request and response in a packed document, and the inputs that an agent gives.

Pure. The result is the complete operation, or the reason why it cannot be imported. Optional parts that cannot be expressed are
left out and reported; required parts are never left out.

Rules
- A JSON object or a form is given property by property; any other body is one argument, `body`.
- A credential is not an argument: the header or query parameter that carries it is left out.

Source: OpenAPI Specification 3.1.1, sections 4.8.10 (Operation), 4.8.12 (Parameter), 4.8.13 (Request Body), 4.8.17
(Response). Not here: inputs (inputs.py), media types (media.py), gates, previews and summaries (actions.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from aileron.importing.effects import effect_of
from aileron.importing.examples import Example, bodies_of, is_found, problem_of
from aileron.importing.found import Described, FoundOperation
from aileron.importing.inputs import MAX_INPUTS, Input, Inputs, snake
from aileron.importing.listing import listing_of
from aileron.importing.media import (
    MEDIA_TYPE,
    body_words,
    chosen_media,
    encodings,
    is_form,
    is_json,
    is_text,
    maybe_style,
    unsupported_style,
    unsupported_styles,
)
from aileron.importing.reading import DocumentError
from aileron.importing.references import Place
from aileron.importing.rules import Rules, json_of, offered, values_by_name
from aileron.importing.schemas import Packed, Packer, UnusableError, plain
from aileron.importing.security import Credential, needs_of
from aileron.importing.servers import Origin
from aileron.importing.words import is_visible, line
from aileron.model.json_value import JSON, JSONObject, checked_text
from aileron.model.manifest import Effect
from aileron_connector.check import Schema, Schemas, maybe_problem
from aileron_connector.openapi.document import (
    Link,
    ListShape,
    Media,
    Operation,
    Parameter,
    RequestBody,
    Response,
    Server,
)
from aileron_connector.openapi.links import IN_BODY

__all__ = ["OWN_SCHEMA", "Imported", "Importer", "Unimported"]

OWN_SCHEMA: Final = "the document's own schema refuses it"
"""Beginning of the reason that is reported for an example that contradicts the document's own schema."""
_MAX_NAMED: Final = 5
"""Maximum number of fields of an example that are reported as null."""

_MAX_PARAMETERS: Final = 500
"""Maximum number of parameters of one operation in the document; known operations have up to 150."""
_MAX_PATH: Final = 1000
_ANY: Final[Schema] = {}
_PLACES: Final[tuple[Literal["path", "query", "header"], ...]] = ("path", "query", "header")
_IGNORED: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that the specification tells readers to ignore."""
_RESERVED: Final = frozenset(
    "accept-encoding connection content-encoding content-length cookie date expect host keep-alive location origin "
    "referer set-cookie te "
    "trailer transfer-encoding upgrade via proxy-authorization "
    "forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-original-url x-rewrite-url "
    "x-http-method x-http-method-override x-method-override".split()
)
"""Names of header parameters that are left out of actions, because egress sets the headers that frame or route a request.

Headers that override the method are left out too: they could turn an operation that reads into one that deletes.
"""
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")
_PATH: Final = re.compile(
    r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|\{[^{}/?#]+\})*)+(?:\?[A-Za-z0-9._~=&-]+)?(?:#[A-Za-z0-9._~-]*)?"
)
"""Pattern of a path. It can have a constant query, or a name after `#` that tells two operations on one path apart."""
_SECRETS: Final = frozenset(
    "api_key apikey access_token auth_token authtoken x_api_key api_token x_auth_token x_access_token private_token "
    "session_token secret_key client_secret api_secret x_api_secret".split()
)
"""Names of parameters that always carry a credential."""
_PERHAPS_SECRETS: Final = frozenset("token key secret".split())
"""Names of parameters that carry a credential if their description says so."""
_ABOUT_SECRETS: Final = re.compile(r"\bapi[ -]?key|\bauth|\bcredential|\bbearer", re.IGNORECASE)
_IN_BODY: Final = re.compile(rf"{re.escape(IN_BODY)}(?:/(?:[^~/]|~[01]){{1,64}}){{1,8}}")
_MAX_LINKED: Final = 4
"""Maximum number of parameters that a link to the next page sets; known services use a token, or an id and a time."""
_FIELDS: Final = 'Fields to return of each item{such_as}; ["*"] for all. Long answers have the most telling ones.'


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that can be called. `left_out` has its optional parts that cannot be given, with the reasons."""

    found: FoundOperation
    packed: Operation
    inputs: tuple[Input, ...]
    origin: Origin | None
    """The operation's own origin; if None, the document's origin applies."""
    effect: Effect
    answer: Packed
    """The schema of the operation's JSON response, if the document has one; `True` allows any value."""
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the operation in the connector."""
        return self.found.name


class Unimported(msgspec.Struct, frozen=True):
    """An operation that is not imported, and the reason."""

    found: FoundOperation
    reason: str


class Importer:
    """An importer of one document's operations, all of which use the same credential."""

    def __init__(self, described: Described, credential: Credential) -> None:
        self.packer: Final = Packer(described.references, is_3_0=described.is_3_0)
        self._rules: Final = Rules(self.packer.lookup)
        self._described: Final = described
        self._credential: Final = credential

    def operation(self, found: FoundOperation, origin: Origin | None) -> Imported | Unimported:
        """Import an operation, or return why it cannot be imported. `origin` is the operation's own; None if it has the
        document's.
        """
        try:
            return _Reading(found, self._described, self._credential, self.packer, self._rules).imported(origin)
        except (UnusableError, DocumentError) as error:
            return Unimported(found, str(error))
        except msgspec.ValidationError as error:
            return Unimported(found, f"not valid OpenAPI: {error}")


class _Reading:
    """The state of one operation while it is being imported."""

    def __init__(
        self, found: FoundOperation, described: Described, credential: Credential, packer: Packer, rules: Rules
    ) -> None:
        self._found = found
        self._described = described
        self._credential = credential
        self._packer = packer
        self._rules = rules
        self._inputs = Inputs(rules, packer)
        self._examples: list[Example] = []
        """Examples of the request body in the document."""
        self._body_schema: Packed = True

    def imported(self, origin: Origin | None) -> Imported:
        found = self._found
        _check_characters(found.path)
        security = self._security()
        parameters = list(self._parameters())
        self._check_path(parameters)
        body = self._body()
        responses, answer = self._responses()
        listing = self._listing(answer)
        self._inputs.fit()
        kept = {entry.name for entry in self._inputs.every}
        sent = _with_arguments(body, kept)
        self._try_examples(sent)
        return Imported(
            found=found,
            packed=Operation(
                operation_id=found.name,
                summary=line(found.summary, 120),
                security=security,
                parameters=[parameter for parameter in parameters if parameter.argument in kept],
                request_body=sent,
                responses={status: _with_links(response, parameters, kept) for status, response in responses.items()},
                servers=[] if origin is None else [Server(origin.url)],
                listing=listing,
            ),
            inputs=self._inputs.every,
            origin=origin,
            effect=effect_of(found.method, found.name, found.path),
            answer=answer,
            left_out=self._inputs.left_out,
        )

    def _try_examples(self, body: RequestBody | None) -> None:
        """Record which of the document's examples of the request body cannot be given, and why."""
        for number, example in enumerate(self._examples, 1):
            which = f"example {number} of the document" if len(self._examples) > 1 else "the document's example"
            if example.nulls:
                names = ", ".join(line(name, 60) for name in example.nulls[:_MAX_NAMED])
                self._inputs.leave_out("body", f"{which} has null, which cannot be given, for {names}")
            if (problem := problem_of(example.value, body, self._inputs.every)) is not None:
                refused = self._refused(example.value)
                why = f"{OWN_SCHEMA}: {refused}" if refused else problem
                self._inputs.leave_out("body", f"{which} cannot be given: {why}")

    def _refused(self, value: Any) -> str:
        """Return why the document's schema refuses `value`, its own example; empty if the schema accepts it."""
        schema = plain(self._body_schema)
        named = self._packer.reachable(iter([schema]))
        raw = {name: msgspec.Raw(msgspec.json.encode(definition)) for name, definition in named.items()}
        problem = maybe_problem(value, schema, Schemas(raw, search=is_found), reading="argument")
        return "" if problem is None else line(f"{problem.place or 'it'} {problem.words}", 160)

    # Credential

    def _security(self) -> list[dict[str, list[str]]]:
        need, credential = needs_of(self._found, self._described), self._credential
        if credential.kind is None:
            if need.ways and not need.is_optional and self._described.schemes:
                if need.are_several:
                    raise UnusableError(_several(need.ways))
                raise UnusableError(f"it needs a credential ({_ways(need.ways)}), and the connector has none")
            return []
        if not credential.scheme:  # the author's choice
            is_open = self._found.raw.get("security") == [] and self._described.schemes
            return [] if is_open else [{credential.kind: []}]  # a document without schemes does not say who can call
        if need.scopes(credential.scheme) is not None:
            return [{credential.kind: []}]
        if need.is_optional:
            return []
        if need.are_several:
            raise UnusableError(_several(need.ways))
        raise UnusableError(
            f"it needs another credential ({_ways(need.ways)}): import it with --auth into another connector"
        )

    # Parameters

    def _parameters(self) -> Iterator[Parameter]:
        for place in self._declared():
            raw = place.value
            if (needed := raw.get("required") is True) and raw.get("in") == "cookie":
                raise UnusableError(f"a cookie is required: {line(str(raw.get('name')), 60)}")
            try:
                if (parameter := self._parameter(raw, place.file)) is not None:
                    yield parameter
            except UnusableError as error:
                if needed or raw.get("in") == "path":
                    raise UnusableError(f"{line(str(raw.get('name')), 60)}: {error}") from None
                self._inputs.leave_out(str(raw.get("name")), str(error))

    def _declared(self) -> list[Place]:
        """Return the parameters that the path and the operation declare; an operation's parameter replaces one of the
        path with the same name.
        """
        declared: dict[tuple[Any, Any], Place] = {}
        said = self._found.raw.get("parameters")
        own = said if isinstance(said, list) else []
        if len(self._found.shared) + len(own) > _MAX_PARAMETERS:
            raise UnusableError(f"more than {_MAX_PARAMETERS} parameters")
        for raw in (*self._found.shared, *own):
            place = self._described.references.resolved(raw, self._found.file)
            if not isinstance(place.value, dict) or not isinstance(place.value.get("name"), str):
                raise UnusableError("a parameter without a name")
            declared[str(place.value.get("in")), place.value["name"]] = place
        # Path parameters first, in the order of the path: they say what a call is about.
        order = _TEMPLATE.findall(self._found.path)
        return sorted(
            declared.values(),
            key=lambda parameter: (
                parameter.value.get("in") != "path",
                order.index(parameter.value["name"]) if parameter.value["name"] in order else 0,
                parameter.value.get("required") is not True,
            ),
        )

    def _parameter(self, raw: JSONObject, file: str) -> Parameter | None:
        name, where = checked_text(raw["name"]), next((place for place in _PLACES if place == raw.get("in")), None)
        if where is None:
            raise UnusableError(f"a parameter in {str(raw.get('in'))[:20]!r}")
        if not is_visible(name) or not name:
            raise UnusableError("a hidden character in its name")
        if where == "path" and f"{{{name}}}" not in self._found.path:
            return None
        if self._is_credential(where, name):
            return None
        if where != "path" and self._is_secret(raw):
            if self._credential.kind is not None:
                return None
            raise UnusableError(f"it looks like a credential, which no agent may hold; give --auth {where}:{name}")
        if where == "header" and (name.lower() in _RESERVED or not _HEADER.fullmatch(name)):
            raise UnusableError("a header that a connector cannot send")
        content = raw.get("content")
        as_json = isinstance(content, dict) and len(content) == 1 and is_json(next(iter(content)))
        if isinstance(content, dict) and content and not as_json:
            raise UnusableError("a parameter that is written as another media type than JSON")
        said = next(iter(content.values())) if isinstance(content, dict) and as_json else raw
        schema = self._packer.sent(said.get("schema", True) if isinstance(said, dict) else True, file)
        style, explode = maybe_style(raw.get("style")), raw.get("explode")
        if style is None and raw.get("style") is not None:
            raise UnusableError(unsupported_style(raw["style"]))
        required = raw.get("required") is True or where == "path"
        argument = self._inputs.named(name, where)
        self._inputs.add(argument, schema, raw, required=required, is_path=where == "path")
        packed = _as_schema(plain(schema))
        return Parameter(
            name=name,
            place=where,
            argument=argument,
            required=required,
            schema=_ANY if as_json else packed,
            style=style,
            explode=explode if isinstance(explode, bool) else None,
            allow_reserved=raw.get("allowReserved") is True,
            content={"application/json": {"schema": json_of(packed)}} if as_json else {},
        )

    def _is_credential(self, where: str, name: str) -> bool:
        if where == "header":
            return name.lower() in _IGNORED or name.lower() == (self._credential.header or "").lower()
        return where == "query" and self._credential.query == name

    def _is_secret(self, raw: JSONObject) -> bool:
        """Return whether a parameter carries a credential, judging by its name or because a security scheme uses it."""
        name = snake(checked_text(raw["name"]))
        schemes = [scheme for scheme in self._described.schemes.values() if isinstance(scheme, dict)]
        return (
            name in _SECRETS
            or (name in _PERHAPS_SECRETS and bool(_ABOUT_SECRETS.search(str(raw.get("description", "")))))
            or any(
                scheme.get("in") == raw["in"] and snake(str(scheme.get("name", ""))) == name
                for scheme in schemes
                if name
            )
        )

    def _check_path(self, parameters: list[Parameter]) -> None:
        known = {parameter.name for parameter in parameters if parameter.place == "path"}
        for name in _TEMPLATE.findall(self._found.path):
            if name not in known:
                raise UnusableError(f"its path has {{{line(name, 60)}}}, which is not described")

    # Body

    def _body(self) -> RequestBody | None:
        raw = self._found.raw.get("requestBody")
        if raw is None:
            return None
        place = self._described.references.resolved(raw, self._found.file)
        content = place.value.get("content") if isinstance(place.value, dict) else None
        if not isinstance(content, dict) or not content:
            return None
        kind, media = chosen_media(content)
        required = place.value.get("required") is True
        before = self._inputs.mark
        try:
            return self._body_of(kind, media, place, required=required)
        except UnusableError as error:
            if required or self._is_all(before):
                raise UnusableError(f"body: {error}") from None
            self._inputs.undone(before)
            self._inputs.leave_out("body", str(error))
            return None

    def _is_all(self, before: tuple[int, int]) -> bool:
        """Return whether a call is POST, PUT or PATCH, and has no parameters but those in the path. If so, the request
        body is required, though documents seldom say so. `before` is the inputs' `mark` before the body.
        """
        parameters = self._inputs.every[: before[0]]
        return self._found.method in ("post", "put", "patch") and all(parameter.is_path for parameter in parameters)

    def _body_of(self, kind: str, media: JSONObject, place: Place, *, required: bool) -> RequestBody | None:
        if is_json(kind):
            self._examples = bodies_of(media, self._described.references, place.file)
        schema = self._body_schema = self._packer.sent(_schema_of(media), place.file)
        of_fields = is_form(kind)
        if is_json(kind) or of_fields:
            found, told = self._rules.object_of(schema, self._values)
            if found is not None:
                if told:
                    self._inputs.leave_out("body", told)
                return self._by_property(kind, media, schema, found, required=required)
            if of_fields or (isinstance(schema, dict) and schema.get("additionalProperties") is False):
                return None  # a form without fields: nothing is sent
        if not of_fields and not is_json(kind):
            schema = {"type": "string"} if is_text(kind) else {"type": "string", "format": "binary"}
        argument = self._inputs.named("body", "body")
        said: Schema = {"description": body_words(kind, place.value)}
        self._inputs.add(argument, schema, said, required=required, used=self._values)
        return RequestBody(content={kind: Media(_as_schema(plain(schema)))}, required=required, argument=argument)

    @property
    def _values(self) -> list[JSON]:
        return [example.value for example in self._examples]

    def _by_property(
        self, kind: str, media: JSONObject, schema: Packed, found: Schema, *, required: bool
    ) -> RequestBody:
        arguments: dict[str, str] = {}
        needed = found.get("required", ())  # if a body is given, which can be optional
        # Documents seldom mark a body as required, but mean it: a body without its required properties is useless.
        required = required or (bool(needed) and self._found.method in ("post", "put"))
        used, unwritable = values_by_name(self._values), unsupported_styles(media) if is_form(kind) else {}
        known = offered(found, used)
        is_crowded = len(known) > MAX_INPUTS  # then those of the examples come first, else all stand as in the document
        for name in sorted(known, key=lambda name: (name not in needed, is_crowded and name not in used)):
            inner = known[name]
            try:
                if name in unwritable:
                    raise UnusableError(unwritable[name])
                argument = self._inputs.named(name, "body")
                said: Schema = inner if isinstance(inner, dict) else {}
                is_needed = required and name in needed
                self._inputs.add(argument, inner, said, required=is_needed, used=used.get(name, ()))
            except UnusableError as error:
                if name in needed:
                    raise UnusableError(f"{line(name, 60)}: {error}") from None
                self._inputs.leave_out(name, str(error))
                continue
            arguments[name] = argument
        if (required or known) and not arguments:
            raise UnusableError("none of its properties can be given")
        missing = [name for name in needed if name not in arguments]
        if missing:
            raise UnusableError(f"{line(missing[0], 60)}: required, and not described")
        encoding = {name: field for name, field in encodings(media) if name in arguments}
        content = {kind: Media(_as_schema(plain(schema)), encoding)}
        return RequestBody(content=content, required=required, arguments=arguments)

    # Answers

    def _responses(self) -> tuple[dict[str, Response], Packed]:
        raw = self._found.raw.get("responses")
        found: dict[str, Response] = {}
        answer: Packed = True
        told = raw.items() if isinstance(raw, dict) else ()
        for status, response in sorted(told, key=lambda item: item[0] == "default"):
            if not re.fullmatch(r"2(?:[0-9]{2}|XX)|default", str(status)):
                continue
            if status == "default" and found:
                continue  # the other answers are errors
            try:
                place = self._described.references.resolved(response, self._found.file)
            except DocumentError:
                continue
            content = place.value.get("content") if isinstance(place.value, dict) else None
            media = dict(self._media(content if isinstance(content, dict) else {}, place.file))
            found[status] = Response(content=media, links=self._links(place))
            for kind, one_media in media.items():
                if answer is True and is_json(kind) and isinstance(one_media.schema, dict):
                    answer = one_media.schema
        return found, answer

    def _links(self, answer: Place) -> dict[str, Link]:
        """Return a mapping with the link `next`, which leads from a response to the next call of this operation. The
        mapping is empty unless the link takes all its parameters from the response body.

        Other links are not imported.
        """
        said = answer.value.get("links") if isinstance(answer.value, dict) else None
        if not isinstance(said, dict) or "next" not in said:
            return {}
        link = self._described.references.maybe(said["next"], answer.file)
        given = link.get("parameters")
        own = self._found.raw.get("operationId")
        if own is None or link.get("operationId") != own or not isinstance(given, dict) or "requestBody" in link:
            return {}
        if not 0 < len(given) <= _MAX_LINKED or not all(_IN_BODY.fullmatch(str(value)) for value in given.values()):
            return {}
        parameters = {re.sub(r"^(?:path|query|header)\.", "", str(name)): str(value) for name, value in given.items()}
        return {"next": Link(operation_id=self._found.name, parameters=parameters)}

    def _media(self, content: JSONObject, file: str) -> Iterator[tuple[str, Media]]:
        for kind, media in list(content.items())[:8]:
            name = kind.partition(";")[0].strip().lower()
            if not MEDIA_TYPE.fullmatch(name) and name != "*/*":
                continue
            schema: Packed = True
            if is_json(name) and isinstance(media, dict) and isinstance(media.get("schema"), dict | bool):
                if self._is_file(media["schema"], file):
                    name = "*/*"  # bytes, even if the document calls them JSON
                else:
                    schema = self._packer.answered(media["schema"], file)
            yield name, Media(schema)

    def _is_file(self, schema: Any, file: str) -> bool:
        """Return whether the schema of a response specifies bytes; `type: file` of Swagger 2.0 does so too."""
        found = self._described.references.maybe(schema, file)
        return found.get("type") == "file" or (found.get("type") == "string" and found.get("format") == "binary")

    def _listing(self, answer: Packed) -> ListShape | None:
        if not self._found.reads:
            return None
        shape = listing_of(answer, self._packer.lookup)
        if shape is None:
            return None
        if argument := self._inputs.maybe_own("fields", "answer_fields"):
            rule: Schema = {"type": "array", "items": {"type": "string"}, "maxItems": 50}
            named = json.dumps(shape.fields[:3], ensure_ascii=False)
            told = _FIELDS.format(such_as=f", such as {named}" if shape.fields else "")
            self._inputs.put(Input(name=argument, rule=rule, description=told, required=False))
        return msgspec.structs.replace(shape, argument=argument)


def _check_characters(path: str) -> None:
    if not path.startswith("/"):
        is_argument = _TEMPLATE.match(path) is not None
        why = (
            "begins with an argument, with which an agent would choose the host"
            if is_argument
            else "does not begin with /"
        )
        raise UnusableError(f"its path {line(path, 60)} {why}; correct it in a copy of the document")
    if "{" in path.partition("?")[2]:
        told = line(path.partition("?")[2], 60)
        raise UnusableError(
            f"its path has parameters behind its ? ({told}); make them query parameters in a copy of the document"
        )
    if len(path) > _MAX_PATH or not _PATH.fullmatch(path):
        raise UnusableError("its path has characters that a path does not have")
    segments = re.split(r"[?#]", path)[0].split("/")[1:-1]
    if {"", ".", ".."} & set(segments) or path.endswith(("/.", "/..")):
        raise UnusableError("its path has an empty segment, or one of dots only")


def _with_arguments(body: RequestBody | None, kept: set[str]) -> RequestBody | None:
    """Return the body without the properties whose inputs did not fit."""
    if body is None or not body.arguments:
        return body if body is None or body.argument in kept else None
    arguments = {name: argument for name, argument in body.arguments.items() if argument in kept}
    if not arguments and body.required:
        raise UnusableError("an action has no room for its body")
    return msgspec.structs.replace(body, arguments=arguments) if arguments else None


def _with_links(answer: Response, parameters: Sequence[Parameter], kept: set[str]) -> Response:
    """Return the response without links that set a parameter for which there is no input."""
    given = {parameter.name for parameter in parameters if parameter.argument in kept}
    links = {name: link for name, link in answer.links.items() if link.parameters.keys() <= given}
    return msgspec.structs.replace(answer, links=links)


def _ways(ways: tuple[Any, ...]) -> str:
    return line(" or ".join(" and ".join(way) for way in ways), 120)


def _schema_of(media: JSONObject) -> Any:
    """Return the schema of a Media Type Object; a null schema counts as none."""
    return True if media.get("schema") is None else media["schema"]


def _several(ways: tuple[Any, ...]) -> str:
    return (
        f"it needs several credentials in one request ({_ways(ways)}), and a connector has one; if only one of them is secret, "
        "describe the others as parameters in a copy of the document"
    )


def _as_schema(schema: Packed) -> Schema:
    if schema is True:
        return {}
    return {"not": {}} if schema is False else schema
