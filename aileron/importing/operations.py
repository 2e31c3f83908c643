"""One operation of a document, whole: what it sends and takes back as a packed document has it, and the inputs that an agent
gives.

Pure. It comes out whole or with the reason why not. What is optional and cannot be said is left out, and named; nothing
that is required ever is.

Rules
- Each argument has a name of its own, in snake case. Where two places have one name, the place is added: `id` and `id_body`.
- A JSON object or a form is given property by property; any other body is one argument, `body`.
- A credential is no argument: the header or query parameter that carries it is left out.
- An input has words, and what a model need not read is not there: 16 KiB of rules in all, the required ones first.

Source: OpenAPI Specification 3.1.1, sections 4.8.10 (Operation), 4.8.12 (Parameter), 4.8.13 (Request Body), 4.8.17
(Response). Not here: gates, previews and summaries (actions.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

import msgspec

from aileron.actions.inputs import EXPECTED
from aileron.importing.effects import effect_of
from aileron.importing.found import Described, FoundOperation
from aileron.importing.listing import listing_of
from aileron.importing.reading import DocumentError
from aileron.importing.references import Place
from aileron.importing.rules import Rule, Rules, size_of
from aileron.importing.schemas import Packed, Packer, UnusableError, plain
from aileron.importing.security import Credential, needs_of
from aileron.importing.servers import Origin
from aileron.importing.words import is_visible, line
from aileron.model.manifest import Effect
from aileron.model.names import INPUT_NAME
from aileron_connector.openapi.document import (
    Encoding,
    Link,
    ListShape,
    Media,
    Operation,
    Parameter,
    RequestBody,
    Response,
    Server,
    Style,
)
from aileron_connector.openapi.links import IN_BODY
from aileron_connector.openapi.media import kind_of

__all__ = ["Imported", "Importer", "Input", "Unimported"]

_MAX_INPUTS: Final = 60
"""Of one action: operations of a manifest have at most 64 parameters."""
_MAX_PARAMETERS: Final = 500
"""Of one operation as the document has it: of known ones the most is 150."""
_MAX_PATH: Final = 1000
_MAX_RULES: Final = 16 << 10
"""16 KiB of one action's rules together: each of them is in the context of a model with every request."""
_MAX_OPTIONAL: Final = 2 << 10
"""2 KiB of one that is optional, unless it is all that there is to give."""
_MAX_WORDS: Final = 200
_STYLES: Final[tuple[str, ...]] = get_args(Style)
_PLACES: Final = ("path", "query", "header")
_IGNORED: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that the specification has readers ignore."""
_RESERVED: Final = frozenset(
    "accept-encoding connection content-encoding content-length cookie date expect host keep-alive location origin "
    "referer set-cookie te "
    "trailer transfer-encoding upgrade via proxy-authorization "
    "forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-original-url x-rewrite-url "
    "x-http-method x-http-method-override x-method-override".split()
)
"""What frames or routes a request is egress's to write, and its method is the manifest's: what only reads must not become what
deletes by a header.
"""
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")
_PATH: Final = re.compile(
    r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|\{[^{}/?#]+\})*)+(?:\?[A-Za-z0-9._~=&-]+)?(?:#[A-Za-z0-9._~-]*)?"
)
"""With a query that is always the same, or a name behind `#` that tells two operations of one path apart."""
_SECRETS: Final = frozenset(
    "api_key apikey access_token auth_token authtoken x_api_key api_token x_auth_token x_access_token private_token "
    "session_token secret_key client_secret api_secret x_api_secret".split()
)
"""Parameters that carry a credential wherever there is one."""
_PERHAPS_SECRETS: Final = frozenset("token key secret".split())
"""Those that do if their description says so."""
_ABOUT_SECRETS: Final = re.compile(r"\bapi[ -]?key|\bauth|\bcredential|\bbearer", re.IGNORECASE)
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")
_JSON: Final = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json|\*/\*")
_IN_BODY: Final = re.compile(rf"{re.escape(IN_BODY)}(?:/(?:[^~/]|~[01]){{1,64}}){{1,8}}")
_MAX_LINKED: Final = 4
"""Parameters of the next page: known services have a token, or an id and a time."""
_FORMATS: Final[dict[str, tuple[str, str]]] = {
    "date-time": ("Date and time, such as 2026-11-24T10:00:00Z", "iso 8601"),
    "date": ("Date, such as 2026-11-24", "yyyy"),
    "time": ("Time, such as 10:00:00Z", "hh:"),
    "duration": ("ISO 8601 duration, such as PT15M", "iso 8601"),
    "uuid": ("A UUID", "uuid"),
    "email": ("A mail address", "mail"),
    "uri": ("A URL", "url"),
    "ipv4": ("An IPv4 address", "ip"),
    "ipv6": ("An IPv6 address", "ip"),
}
"""What a model is told of a format, unless the document says that word already."""
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+*-]+")
_FIELDS: Final = 'Fields to return of each item{such_as}; ["*"] for all. Long answers have the most telling ones.'


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One argument: `rule` has its type, in the keywords of actions/inputs.py."""

    name: str
    rule: Rule
    description: str
    required: bool
    is_path: bool = False
    is_base64: bool = False
    format: str = ""
    """As the document says it: `uuid`, `date-time`. Of an array: that of its items."""
    example: Any = msgspec.UNSET

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.rule["type"])


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that can be called. `left_out`: optional things of it that cannot be given, with the reason."""

    found: FoundOperation
    packed: Operation
    inputs: tuple[Input, ...]
    origin: Origin | None
    """Its own; None: the document's."""
    effect: Effect
    answer: Packed
    """The schema of what it answers as JSON, where it says so; true: anything."""
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the connector calls it."""
        return self.found.name


class Unimported(msgspec.Struct, frozen=True):
    """One that is not there, and why."""

    found: FoundOperation
    reason: str


class Importer:
    """Imports operations of one document for one credential."""

    def __init__(self, described: Described, credential: Credential) -> None:
        self.packer: Final = Packer(described.references, is_3_0=described.is_3_0)
        self._rules: Final = Rules(self.packer.lookup)
        self._described: Final = described
        self._credential: Final = credential

    def operation(self, found: FoundOperation, origin: Origin | None) -> Imported | Unimported:
        """One of them. `origin`: its own host, where it has one."""
        try:
            return _Reading(found, self._described, self._credential, self.packer, self._rules).imported(origin)
        except (UnusableError, DocumentError) as error:
            return Unimported(found, str(error))
        except msgspec.ValidationError as error:
            return Unimported(found, f"not valid OpenAPI: {error}")


class _Reading:
    """One operation while it is read."""

    def __init__(
        self, found: FoundOperation, described: Described, credential: Credential, packer: Packer, rules: Rules
    ) -> None:
        self._found = found
        self._described = described
        self._credential = credential
        self._packer = packer
        self._rules = rules
        self._inputs: list[Input] = []
        self._left_out: list[str] = []
        self._taken: set[str] = set()

    def imported(self, origin: Origin | None) -> Imported:
        found = self._found
        if len(found.path) > _MAX_PATH or not _PATH.fullmatch(found.path):
            raise UnusableError("its path has characters that a path does not have")
        if {"", ".", ".."} & set(re.split(r"[?#]", found.path)[0].split("/")[1:-1]) or found.path.endswith(
            ("/.", "/..")
        ):
            raise UnusableError("its path has an empty segment, or one of dots only")
        security = self._security()
        parameters = list(self._parameters())
        self._check_path(parameters)
        body = self._body()
        responses, answer = self._responses()
        listing = self._listing(answer)
        self._fit()
        kept = {one.name for one in self._inputs}
        return Imported(
            found=found,
            packed=Operation(
                operation_id=found.name,
                summary=line(found.summary, 120),
                security=security,
                parameters=[one for one in parameters if one.argument in kept],
                request_body=_with_arguments(body, kept),
                responses={status: _with_links(one, parameters, kept) for status, one in responses.items()},
                servers=[] if origin is None else [Server(origin.url)],
                listing=listing,
            ),
            inputs=tuple(self._inputs),
            origin=origin,
            effect=effect_of(found.method, found.name, found.path),
            answer=answer,
            left_out=tuple(self._left_out),
        )

    # Credential

    def _security(self) -> list[dict[str, list[str]]]:
        need, credential = needs_of(self._found, self._described), self._credential
        if credential.kind is None:
            if need.ways and not need.is_optional and self._described.schemes:
                raise UnusableError(f"it needs a credential ({_ways(need.ways)}), and the connector has none")
            return []
        if not credential.scheme:  # the author's word, but for an operation that says itself that it needs none
            return [] if self._found.raw.get("security") == [] else [{credential.kind: []}]
        if need.scopes(credential.scheme) is not None:
            return [{credential.kind: []}]
        if need.is_optional:
            return []
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
                self._leave_out(str(raw.get("name")), str(error))

    def _declared(self) -> list[Place]:
        """The path's and the operation's own, which take the place of the path's."""
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
        # Path parameters first, in the order of the path: what a call is about.
        order = _TEMPLATE.findall(self._found.path)
        return sorted(
            declared.values(),
            key=lambda one: (
                one.value.get("in") != "path",
                order.index(one.value["name"]) if one.value["name"] in order else 0,
                one.value.get("required") is not True,
            ),
        )

    def _parameter(self, raw: dict[str, Any], file: str) -> Parameter | None:
        name, where = raw["name"], raw.get("in")
        if where not in _PLACES:
            raise UnusableError(f"a parameter in {str(where)[:20]!r}")
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
        is_json = isinstance(content, dict) and len(content) == 1 and bool(_JSON.fullmatch(next(iter(content))))
        if isinstance(content, dict) and content and not is_json:
            raise UnusableError("a parameter that is written as another media type than JSON")
        said = next(iter(content.values())) if isinstance(content, dict) and is_json else raw
        schema = self._packer.sent(said.get("schema", True) if isinstance(said, dict) else True, file)
        style = raw.get("style")
        if style is not None and style not in _STYLES:
            raise UnusableError(f"the style {str(style)[:30]!r} is not supported")
        required = raw.get("required") is True or where == "path"
        argument = self._argument(name, where)
        self._add(argument, schema, raw, required=required, is_path=where == "path")
        packed = _as_schema(plain(schema))
        return Parameter(
            name=name,
            place=where,
            argument=argument,
            required=required,
            schema={} if is_json else packed,
            style=style,
            explode=raw.get("explode") if isinstance(raw.get("explode"), bool) else None,
            allow_reserved=raw.get("allowReserved") is True,
            content={"application/json": {"schema": packed}} if is_json else {},
        )

    def _is_credential(self, where: str, name: str) -> bool:
        if where == "header":
            return name.lower() in _IGNORED or name.lower() == (self._credential.header or "").lower()
        return where == "query" and self._credential.query == name

    def _is_secret(self, raw: dict[str, Any]) -> bool:
        """Whether it carries a credential, by its name or because a security scheme of the document is sent there."""
        name = _snake(raw["name"])
        schemes = [one for one in self._described.schemes.values() if isinstance(one, dict)]
        return (
            name in _SECRETS
            or (name in _PERHAPS_SECRETS and bool(_ABOUT_SECRETS.search(str(raw.get("description", "")))))
            or any(one.get("in") == raw["in"] and _snake(str(one.get("name", ""))) == name for one in schemes if name)
        )

    def _check_path(self, parameters: list[Parameter]) -> None:
        known = {one.name for one in parameters if one.place == "path"}
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
        kind, media = _chosen_media(content)
        required = place.value.get("required") is True
        inputs, left_out = len(self._inputs), len(self._left_out)
        try:
            return self._body_of(kind, media, place, required=required)
        except UnusableError as error:
            if required:
                raise UnusableError(f"body: {error}") from None
            del self._inputs[inputs:], self._left_out[left_out:]
            self._leave_out("body", str(error))
            return None

    def _body_of(self, kind: str, media: dict[str, Any], place: Place, *, required: bool) -> RequestBody | None:
        schema = self._packer.sent(media.get("schema", True), place.file)
        is_form = kind in (_FORM, _MULTIPART)
        if _JSON.fullmatch(kind) or is_form:
            found = self._rules.objects(schema)
            if found is not None:
                return self._by_property(kind, media, schema, found, required=required)
            if is_form or (isinstance(schema, dict) and schema.get("additionalProperties") is False):
                return None  # a form without fields: nothing is sent
        if not is_form and not _JSON.fullmatch(kind):
            schema = {"type": "string"} if _is_text(kind) else {"type": "string", "format": "binary"}
        argument = self._argument("body", "body")
        self._add(argument, schema, {"description": _body_words(kind, place.value)}, required=required)
        return RequestBody(content={kind: Media(_as_schema(plain(schema)))}, required=required, argument=argument)

    def _by_property(
        self, kind: str, media: dict[str, Any], schema: Packed, found: dict[str, Any], *, required: bool
    ) -> RequestBody:
        arguments: dict[str, str] = {}
        needed = found.get("required", ())  # of a body that is given, optional as it may be
        # Documents seldom say that a body is required, and mean it: one without what it requires is of no use.
        required = required or (bool(needed) and self._found.method in ("post", "put"))
        most = _MAX_RULES // 2 if len(found["properties"]) == 1 else _MAX_OPTIONAL
        names = sorted(found["properties"], key=lambda name: name not in needed)
        for name in names:
            inner = found["properties"][name]
            if inner is False and name not in needed:
                continue
            try:
                argument = self._argument(name, "body")
                said = inner if isinstance(inner, dict) else {}
                self._add(argument, inner, said, required=required and name in needed, most_bytes=most)
            except UnusableError as error:
                if name in needed:
                    raise UnusableError(f"{line(name, 60)}: {error}") from None
                self._leave_out(name, str(error))
                continue
            arguments[name] = argument
        if required and not arguments:
            raise UnusableError("none of its properties can be given")
        missing = [name for name in needed if name not in arguments]
        if missing:
            raise UnusableError(f"{line(missing[0], 60)}: required, and not described")
        encoding = {name: one for name, one in _encodings(media) if name in arguments}
        content = {kind: Media(_as_schema(plain(schema)), encoding)}
        return RequestBody(content=content, required=required, arguments=arguments)

    # Answers

    def _responses(self) -> tuple[dict[str, Response], Packed]:
        raw = self._found.raw.get("responses")
        found: dict[str, Response] = {}
        answer: Packed = True
        told = raw.items() if isinstance(raw, dict) else ()
        for status, one in sorted(told, key=lambda item: item[0] == "default"):
            if not re.fullmatch(r"2(?:[0-9]{2}|XX)|default", str(status)):
                continue
            if status == "default" and found:
                continue  # what is left are errors
            try:
                place = self._described.references.resolved(one, self._found.file)
            except DocumentError:
                continue
            content = place.value.get("content") if isinstance(place.value, dict) else None
            media = dict(self._media(content if isinstance(content, dict) else {}, place.file))
            found[status] = Response(content=media, links=self._links(place))
            for kind, one_media in media.items():
                if answer is True and _JSON.fullmatch(kind) and isinstance(one_media.schema, dict):
                    answer = one_media.schema
        return found, answer

    def _links(self, answer: Place) -> dict[str, Link]:
        """The link `next` to this operation, where the answer's body has all that it takes. Others are not imported."""
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

    def _media(self, content: dict[str, Any], file: str) -> Iterator[tuple[str, Media]]:
        for kind, media in list(content.items())[:8]:
            name = kind.partition(";")[0].strip().lower()
            if not _MEDIA_TYPE.fullmatch(name) and name != "*/*":
                continue
            schema: Packed = True
            if _JSON.fullmatch(name) and isinstance(media, dict) and isinstance(media.get("schema"), dict | bool):
                schema = self._packer.answered(media["schema"], file)
            yield name, Media(schema)

    def _listing(self, answer: Packed) -> ListShape | None:
        if not self._found.reads:
            return None
        shape = listing_of(answer, self._packer.lookup)
        if shape is None:
            return None
        argument = next((name for name in ("fields", "answer_fields") if name not in self._taken), "")
        if argument:
            self._taken.add(argument)
            rule = {"type": "array", "items": {"type": "string"}, "maxItems": 50}
            named = json.dumps(shape.fields[:3], ensure_ascii=False)
            told = _FIELDS.format(such_as=f", such as {named}" if shape.fields else "")
            self._inputs.append(Input(name=argument, rule=rule, description=told, required=False))
        return msgspec.structs.replace(shape, argument=argument)

    # Inputs

    def _add(
        self,
        argument: str,
        schema: Packed,
        said: dict[str, Any],
        *,
        required: bool,
        is_path: bool = False,
        most_bytes: int = _MAX_OPTIONAL,
    ) -> None:
        """An input for an argument. UnusableError where it would take more than the schema."""
        try:
            if not required and len(self._inputs) >= _MAX_INPUTS:  # `_fit` would leave it out, after all the work
                raise UnusableError("an action has no room for it")
            rule = self._rules.rule(schema, _MAX_RULES if required else most_bytes)
            if rule["type"] == "boolean" and "enum" in rule:
                raise UnusableError(f"only {str(rule['enum'][0]).lower()}, which an input cannot say")
        except UnusableError:
            self._taken.discard(argument)
            raise
        others = [kind for kind in self._rules.kinds(schema) if kind != rule["type"]]
        if others and {rule["type"], *others} != {"integer", "number"}:
            self._leave_out(argument, f"it is given as {rule['type']}; the service also takes {' and '.join(others)}")
        words = rule.pop("description", "")
        packed = schema if isinstance(schema, dict) else {}
        told = said.get("description") if isinstance(said.get("description"), str) else ""
        example = next(
            (one[key] for one in (said, packed) for key in ("example", "default") if key in one), msgspec.UNSET
        )
        self._inputs.append(
            Input(
                name=argument,
                rule=rule,
                description=_described(line(told or words, _MAX_WORDS), argument, packed, rule),
                required=required,
                is_path=is_path,
                is_base64=_is_base64(packed),
                format=self._format(packed),
                example=example if isinstance(example, str | int | float | bool) else msgspec.UNSET,
            )
        )

    def _format(self, schema: dict[str, Any]) -> str:
        items = schema.get("items")
        if isinstance(items, dict) and isinstance(items.get("$ref"), str):
            items = self._packer.lookup(items["$ref"])
        found = items if isinstance(items, dict) else schema
        return str(found.get("format", ""))

    def _argument(self, name: str, place: str) -> str:
        base = _snake(name) or place
        for candidate in (base, f"{base}_{place}", *(f"{base}_{number}" for number in range(2, 100))):
            if candidate not in self._taken and INPUT_NAME.fullmatch(candidate):
                self._taken.add(candidate)
                return candidate
        raise UnusableError("no name is left for it")

    def _leave_out(self, name: str, reason: str) -> None:
        self._left_out.append(f"{line(name, 60)}: {reason}")

    def _fit(self) -> None:
        """Optional inputs beyond what a model should read are left out, the last first."""
        room = _MAX_RULES - sum(_weight(one) for one in self._inputs if one.required)
        count = sum(one.required for one in self._inputs)
        if room < 0 or count > _MAX_INPUTS:
            raise UnusableError(f"what it requires is more than {_MAX_RULES} bytes of schemas, or {_MAX_INPUTS} inputs")
        kept = []
        for one in self._inputs:
            if not one.required:
                count += 1
                room -= _weight(one)
                if room < 0 or count > _MAX_INPUTS:
                    self._leave_out(one.name, "an action has no room for it")
                    continue
            kept.append(one)
        self._inputs = kept


def _weight(one: Input) -> int:
    return size_of(one.rule) + len(one.description) + len(one.name)


def _with_arguments(body: RequestBody | None, kept: set[str]) -> RequestBody | None:
    """The body without properties whose inputs there was no room for."""
    if body is None or not body.arguments:
        return body if body is None or body.argument in kept else None
    arguments = {name: argument for name, argument in body.arguments.items() if argument in kept}
    if not arguments and body.required:
        raise UnusableError("an action has no room for its body")
    return msgspec.structs.replace(body, arguments=arguments) if arguments else None


def _with_links(answer: Response, parameters: Sequence[Parameter], kept: set[str]) -> Response:
    """The answer without links to what no input is for."""
    given = {one.name for one in parameters if one.argument in kept}
    links = {name: link for name, link in answer.links.items() if link.parameters.keys() <= given}
    return msgspec.structs.replace(answer, links=links)


def _ways(ways: tuple[Any, ...]) -> str:
    return line(" or ".join(" and ".join(way) for way in ways), 120)


def _as_schema(schema: Packed) -> dict[str, Any]:
    if schema is True:
        return {}
    return {"not": {}} if schema is False else schema


def _snake(name: str) -> str:
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    made = _NOT_NAME.sub("_", words.lower()).strip("_")[:60].rstrip("_")
    return made if made[:1].isalpha() else f"arg_{made}" if made else ""


def _chosen_media(content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """JSON where there is a choice, then forms, then text, then bytes. UnusableError where there is none that can be sent."""
    ranked: list[tuple[int, int, str, dict[str, Any]]] = []
    for number, (said, media) in enumerate(content.items()):
        kind = str(said).partition(";")[0].strip().lower()
        if not isinstance(media, dict):
            continue
        if kind in ("*/*", "application/*"):
            kind = "application/json"
        if _MEDIA_TYPE.fullmatch(kind) and "*" not in kind and kind != "multipart/mixed":
            ranked.append((_rank(kind), number, kind, media))
    if not ranked:
        raise UnusableError("no media type of its body can be sent")
    _, _, kind, media = min(ranked, key=lambda one: one[:2])
    return kind, media


def _rank(kind: str) -> int:
    if kind == "application/json":
        return 0
    if _JSON.fullmatch(kind):
        return 1
    return {_FORM: 2, _MULTIPART: 3}.get(kind, 4 if kind.startswith("text/") else 5)


def _encodings(media: dict[str, Any]) -> Iterator[tuple[str, Encoding]]:
    said = media.get("encoding")
    for name, raw in said.items() if isinstance(said, dict) else ():
        if isinstance(raw, dict):
            style = raw.get("style")
            yield (
                name,
                Encoding(
                    content_type=said if isinstance(said := raw.get("contentType"), str) and is_visible(said) else "",
                    style=style if style in _STYLES else None,
                    explode=raw.get("explode") if isinstance(raw.get("explode"), bool) else None,
                    allow_reserved=raw.get("allowReserved") is True,
                ),
            )


def _body_words(kind: str, raw: dict[str, Any]) -> str:
    said = line(str(raw.get("description", "")), 120)
    return f"The content ({kind}): {said}" if said else f"The content ({kind})."


def _is_text(kind: str) -> bool:
    return kind_of(kind) != "binary"


def _is_base64(schema: dict[str, Any]) -> bool:
    return schema.get("format") in ("binary", "byte") or schema.get("contentEncoding") == "base64"


def _described(words: str, name: str, schema: dict[str, Any], rule: Rule) -> str:
    """The document's words, or those of its name; and what is sent if it is left out."""
    told = words or f"{name.replace('_', ' ').capitalize()}: {EXPECTED[rule['type']]}."
    if _is_base64(schema):
        told = f"{told.rstrip('. ')}. As base64."
    elif (form := _FORMATS.get(schema.get("format", ""))) and rule["type"] == "string" and form[1] not in told.lower():
        told = f"{told.rstrip('. ')}. {form[0]}."
    default = schema.get("default")
    if isinstance(default, str | int | float | bool) and default != "" and "default" not in told.lower():
        told = f"{told.rstrip('. ')}. Default: {line(str(default).lower() if isinstance(default, bool) else str(default), 60)}."
    return told
