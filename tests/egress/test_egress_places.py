"""Keys in a path and in a body: which requests have a place for one, what is sent, and that the key never comes back."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.egress.inject import LentCredential, inject, needles_for
from aileron.egress.journal import RequestIntent
from aileron.egress.key_places import check_body, recorded_path, with_key_in_body, with_key_in_path
from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.scrub import ENCODINGS
from aileron.egress.url import has_dot_segment, parse_url
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from tests.egress.conftest import HOST, World, need, reason_of, use
from tests.support.upstream import Seen, Upstream, answer

pytestmark = pytest.mark.anyio

KEY = b"110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
AWKWARD = 'T000/B000/se"sa\\me <ö>+%41&=?#;x-0123456789'.encode()
TELEGRAM = use(path="/bot{key}")
JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
PLACE = "/bot%7Bkey%7D"

MakeUpstream = Callable[..., Upstream]


# Paths


async def test_a_key_is_put_into_the_path_and_not_into_the_record(world: World, tls_upstream: MakeUpstream) -> None:
    """Telegram's colon stays a colon; without a credential the placeholder is an ordinary path."""
    world.vault.secret = KEY
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=TELEGRAM)
        await world.ask(upstream, f"{PLACE}/getUpdates?limit=1", credential="api_key", grant=grant)
        await world.ask(upstream, f"{PLACE}/getUpdates", grant=grant)

    assert [seen.target for seen in upstream.requests] == [
        f"/bot{KEY.decode()}/getUpdates?limit=1",
        f"{PLACE}/getUpdates",
    ]
    intents = [row.path for row in world.journal.rows if isinstance(row, RequestIntent)]
    assert intents == ["/bot{key}/getUpdates", f"{PLACE}/getUpdates"]
    assert KEY.decode() not in repr(world.journal.rows)


@pytest.mark.parametrize(
    "path",
    ["/", "/bot/getMe", "/bot{}/getMe", "/bot%7bkey%7d/getMe", "/bot%7Bkey%7Dx/getMe", "//bot%7Bkey%7D/getMe",
     "/x/bot%7Bkey%7D/getMe", "/BOT%7Bkey%7D", "/bot%7Bkey%7D;x/getMe", "/bot%7Bkey%7D%2FgetMe",
     "/bot%7Bkey%7D/%7Bkey%7D", "/bot%7Bkey%7D/getMe?x=%7Bkey%7D", "/bot%7Bkey%7D/getMe?%7bKEY%7d"],
)  # fmt: skip
async def test_a_path_without_a_place_for_the_key_is_refused(
    world: World, tls_upstream: MakeUpstream, path: str
) -> None:
    """The refusal comes before anything is lent, and has the expected form; a path with the place is sent."""
    world.vault.secret = KEY
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=TELEGRAM)
        error = await world.refusal(upstream, path.replace("{}", "mine"), credential="api_key", grant=grant)
        assert (upstream.requests, world.vault.lent, world.resolver.asked) == ([], 0, [])
        assert (await world.ask(upstream, PLACE, credential="api_key", grant=grant)).status == 200

    assert reason_of(error) == "path_credential"
    assert "%7Bkey%7D" in error.failure.message
    assert "mine" not in error.failure.message


async def test_a_key_placeholder_in_an_undeclared_path_is_refused(world: World, tls_upstream: MakeUpstream) -> None:
    """A client library puts its key into the path, and the manifest declares no `path`."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, f"{PLACE}/getMe", credential="api_key", grant=grant)
        await world.ask(upstream, "/bot/getMe", credential="api_key", grant=grant)

    assert reason_of(error) == "path_credential"
    assert "set path in [capabilities.credential]" in error.failure.message
    assert [seen.target for seen in upstream.requests] == ["/bot/getMe"]


@pytest.mark.parametrize(
    ("template", "path", "secret", "sent"),
    [
        ("/services/{key}", "/services/%7Bkey%7D", b"T000/B000/xXxXx", "/services/T000/B000/xXxXx"),
        ("/v1/{key}/hook", "/v1/%7Bkey%7D/hook/7", b"sesame-123", "/v1/sesame-123/hook/7"),
        ("/k={key};v=1", "/k=%7Bkey%7D;v=1", b"a?b#c%2e [\xff]", "/k=a%3Fb%23c%252e%20%5B%FF%5D;v=1"),
        ("/{key}", "/%7Bkey%7D", b"-._~!$&'()*+,;=:@", "/-._~!$&'()*+,;=:@"),
    ],
)
def test_characters_of_a_key_that_a_path_segment_can_hold_are_not_encoded(
    template: str, path: str, secret: bytes, sent: str
) -> None:
    """The characters are those of RFC 3986 section 3.3, and the slash; a percent sign of the key is encoded."""
    assert with_key_in_path(template, path, secret) == sent
    assert parse_url(f"https://h{sent}").path == sent


@pytest.mark.parametrize(
    ("template", "secret"),
    [("/{key}", b"/sesame-1"), ("/{key}", b"sesame-1/"), ("/{key}", b"sesame//1"), ("/{key}", b"sesame/../1"),
     ("/{key}", b"sesame/./1"), ("/{key}", b"sesame/.."), ("/{key}", b"../sesame"), ("/x{key}", b"./sesame"),
     ("/{key}", b"sesame/..;x/1"), ("/..{key}", b";sesame-1"), ("/{key};x", b"sesame/..")],
)  # fmt: skip
def test_a_key_that_would_lead_to_another_path_is_refused(template: str, secret: bytes) -> None:
    """The failure is the binding's, names the command that fixes it, and quotes none of the key."""
    with pytest.raises(AileronError) as caught:
        _injected(use(path=template), secret, template.replace("{key}", "%7Bkey%7D"))

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert "aileron secret set" in caught.value.failure.message
    assert "sesame" not in str(caught.value.failure)


@given(
    st.binary(min_size=8, max_size=60).filter(lambda key: min(key) >= 0x20 and 0x7F not in key),
    st.sampled_from(["/bot{key}", "/{key}", "/a/{key}.json", "/..{key}", "/x{key}/y", "/{key};p"]),
    st.sampled_from(["", "/", "/getMe", "/a%2Fb//c"]),
)
@example(b"%2e%2e/%2e%2e", "/{key}", "/x")
@example(b"aaaa/..;", "/{key}", "/x")
def test_inserting_any_key_into_a_path_gives_the_intended_path_or_is_refused(
    key: bytes, template: str, rest: str
) -> None:
    """The path decodes to the template with the key, and our own URL parser accepts it unchanged."""
    path = template.replace("{key}", "%7Bkey%7D") + rest
    try:
        made = with_key_in_path(template, path, key)
    except ValueError:
        assert b"." in key or not all(key.split(b"/")) or ".." in template
        return
    assert parse_url(f"https://h{made}").path == made
    assert not has_dot_segment(made)
    assert made.endswith(rest)
    placed = unquote(made.removesuffix(rest) if rest else made, "latin-1")
    assert placed == template.replace("{key}", key.decode("latin-1"))
    assert recorded_path(need(path=template), path) == template + rest


# Bodies


async def test_a_key_is_put_into_a_json_body(world: World, tls_upstream: MakeUpstream) -> None:
    """Numbers, order and everything else stay; the length is that of the sent body."""
    world.vault.secret = KEY
    body = b'{ "n": 12345678901234567890.10, "auth" : {"z":[1e400, -0.0],"a":"\\u00e9\\/"}, "b":1}'
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(body="json:/auth/token"))
        await world.ask(upstream, method="POST", headers=(JSON,), body=body, credential="api_key", grant=grant)

    [seen] = upstream.requests
    assert seen.body == (
        b'{"n":12345678901234567890.10,"auth":{"z":[1e400, -0.0],"a":"\\u00e9\\/","token":"%b"},"b":1}' % KEY
    )
    assert seen.values("content-length") == [str(len(seen.body))]
    assert seen.values("transfer-encoding") == []


async def test_a_key_is_put_into_a_form(world: World, tls_upstream: MakeUpstream) -> None:
    """The key's field follows the connector's fields, or is alone in an empty form."""
    world.vault.secret = b"sesame&=+ 1\xc3\xa9"
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(body="form:token"))
        for body in (b"channel=%23a&text=x+y", b"", None):
            await world.ask(upstream, method="POST", headers=(FORM,), body=body, credential="api_key", grant=grant)

    field = b"token=sesame%26%3D%2B+1%C3%A9"
    assert [seen.body for seen in upstream.requests] == [b"channel=%23a&text=x+y&" + field, field, field]
    assert [seen.values("content-length") for seen in upstream.requests] == [
        ["51"],
        [str(len(field))],
        [str(len(field))],
    ]


NO_JSON = {
    "nothing": b"", "no_json": b"token", "an_array": b"[]", "a_string": b'"auth"', "no_parent": b"{}",
    "a_null_parent": b'{"auth":null}', "an_array_parent": b'{"auth":[{}]}', "it_is_there": b'{"auth":{"token":null}}',
    "escaped": b'{"auth":{"\\u0074oken":1}}', "in_capitals": b'{"auth":{"TOKEN":1}}', "snake_case": b'{"auth":{"to_ken":1}}',
    "with_a_nul": b'{"auth":{"token\\u0000x":1}}', "long_s_and_kelvin": '{"auth":{"to\u212aen":1}}'.encode(),
    "two_parents": b'{"auth":{},"auth":{}}', "two_alike_parents": b'{"auth":{},"Auth":{}}',
    "two_members_elsewhere": b'{"auth":{},"x":[{"a":1,"a":2}]}', "nan": b'{"auth":{},"x":NaN}',
    "utf_16": '{"auth":{}}'.encode("utf-16"),
    "bom": b'\xef\xbb\xbf{"auth":{}}', "latin_1": b'{"auth":{},"x":"\xe9"}', "two_values": b'{"auth":{}}{}',
    "a_comma": b'{"auth":{},}',
    "a_control": b'{"auth":{},"x":"\n"}', "half_a_pair": b'{"auth":{"\\ud800":1}}', "comment": b'{"auth":{}/**/}',
    "too_deep": b'{"auth":{},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}  # fmt: skip
NO_FORM = {
    "it_is_there": b"token=1", "last": b"a=1&token", "after_a_semicolon": b"a=1;token=2", "encoded": b"%74oken=1",
    "encoded_twice": b"%2574oken=1", "in_brackets": b"token[]=1", "a_part": b"token%5Ba%5D=1", "in_capitals": b"TOKEN=1",
    "a_blank_first": b"+token=1", "json": b'{"a": 1}', "a_line": b"a=1\r\n", "latin_1": b"a=\xe9",
}  # fmt: skip


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_json_body_without_a_place_for_the_key_is_refused(
    world: World, tls_upstream: MakeUpstream, body: bytes
) -> None:
    """The refusal comes before anything is lent, and the message is short."""
    await _refused(world, tls_upstream, "json:/auth/token", JSON, body, b'{"auth":{"tokens":1}}')


@pytest.mark.parametrize("body", NO_FORM.values(), ids=NO_FORM)
async def test_a_form_without_a_place_for_the_key_is_refused(
    world: World, tls_upstream: MakeUpstream, body: bytes
) -> None:
    """The refusal comes before anything is lent, and the message is short."""
    await _refused(world, tls_upstream, "form:token", FORM, body, b"tokens=1&a=token&x[token]=1")


@pytest.mark.parametrize(
    ("place", "fields", "good"),
    [
        ("json", (), JSON),
        ("json", (FORM,), JSON),
        ("json", (JSON, JSON), JSON),
        ("json", (("Content-Type", "application/json; charset=utf-16"),), ("content-type", "Application/JSON; charset=UTF-8")),
        ("json", (("Content-Type", "text/json"),), ("Content-Type", "application/vnd.api+json")),
        ("json", (JSON, ("Content-Encoding", "identity")), JSON),
        ("json", (JSON, ("Content_Type", "text/plain")), JSON),
        ("json", (JSON, ("content_encoding", "gzip")), JSON),
        ("form", (JSON,), FORM),
        ("form", (("Content-Type", "multipart/form-data; boundary=x"),), ("Content-Type", f"{FORM[1]};charset=utf-8")),
    ],
)  # fmt: skip
def test_a_body_is_refused_if_its_declared_format_does_not_fit_the_place_for_the_key(
    place: str, fields: tuple[tuple[str, str], ...], good: tuple[str, str]
) -> None:
    """The service may parse the body by its declared format, and misread the key."""
    body = b"{}" if place == "json" else b"a=1"
    with pytest.raises(RefusedError) as caught:
        check_body(need(body=f"{place}:{'/' if place == 'json' else ''}token"), fields, body)
    assert caught.value.reason is Reason.BODY_CREDENTIAL

    check_body(need(body=f"{place}:{'/' if place == 'json' else ''}token"), (good,), body)


async def test_a_streamed_body_gets_the_key_once_it_is_whole(world: World, tls_upstream: MakeUpstream) -> None:
    """The body is sent with its length; a body without a place for the key is refused, and nothing is lent."""

    async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    asked: dict[str, Any] = {"method": "POST", "headers": (JSON,), "credential": "api_key"}
    world.vault.secret = KEY
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(body="json:/token"))
        error = await world.refusal(upstream, body=pieces(b'{"to', b'ken":1}'), **asked, grant=grant)
        assert world.vault.lent == 0
        await world.ask(upstream, body=pieces(b'{"a"', b":1}"), **asked, grant=grant)

    assert reason_of(error) == "body_credential"
    [seen] = upstream.requests
    assert seen.body == b'{"a":1,"token":"%b"}' % KEY
    assert (seen.values("content-length"), seen.values("transfer-encoding")) == ([str(len(seen.body))], [])


@pytest.mark.parametrize(
    ("place", "query"),
    [("form:token", "token=1"), ("form:token", "TOKEN[]=1"), ("json:/token", "x=1&%74oken=2"),
     ("json:/auth/token", "auth[token]=1"), ("json:/auth/token", "auth.token=1"), ("json:/auth/token", "x=1&Token=2"),
     ("json:/auth/~0token", "~token=1"), ("json:/~1auth/token", "%2Fauth=1"), ("json:/~1auth/token", "%252Fauth[]=1")],
)  # fmt: skip
async def test_a_query_parameter_with_the_name_of_the_key_s_body_field_is_refused(
    world: World, tls_upstream: MakeUpstream, place: str, query: str
) -> None:
    """Servlets, Rails and PHP merge the parameters of query and body."""
    fields, body = ((FORM,), b"") if place.startswith("form") else ((JSON,), b'{"auth":{},"/auth":{}}')
    asked: dict[str, Any] = {"method": "POST", "headers": fields, "body": body, "credential": "api_key"}
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(body=place))
        error = await world.refusal(upstream, f"/?{query}", **asked, grant=grant)
        await world.ask(upstream, "/?x=token&auths=1", **asked, grant=grant)

    assert reason_of(error) == "header_credential"


def test_an_api_key_that_is_not_utf_8_is_not_put_into_a_json_body() -> None:
    """Another key is the binding's problem; a form encodes it."""
    with pytest.raises(AileronError, match="UTF-8"):
        _injected(use(body="json:/token"), b"sesame-\xff", body=b"{}")
    assert _injected(use(body="form:token"), b"sesame-\xff").request.body == b"token=sesame-%FF"


_names = st.text(st.sampled_from('aAbB_-~/"\\\0ſ\u212a\U0001f600 é'), max_size=4)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(_names, _values, max_size=4),
    st.lists(_names.filter(str), min_size=1, max_size=3),
    st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=8, max_size=30),
    st.booleans(),
)
def test_inserting_a_key_into_json_changes_nothing_else(
    body: dict[str, Any], names: list[str], key: str, plain: bool
) -> None:
    """Another parser reads each number as it was written and each member in its place; the key's member is the last."""
    at: Any = body
    for name in names[:-1]:
        at[name] = at = at[name] if isinstance(at.get(name), dict) else {}
    text = json.dumps(body, ensure_ascii=plain, indent=1 if plain else None).encode()
    place = "json:" + "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
    try:
        check_body(need(body=place), [JSON], text)
    except RefusedError:
        return
    made = with_key_in_body(place, text, key.encode())

    assert names[-1] not in at
    at[names[-1]] = key
    assert _in_order(made) == _in_order(json.dumps(body).encode())


@given(st.binary(max_size=200) | st.text(st.sampled_from('{}[]",:\\tokenu0019 \n'), max_size=60).map(str.encode))
@example(b'{"x":1,"\\u0074oken":2}')
def test_any_body_bytes_are_refused_or_get_the_key_exactly_once(body: bytes) -> None:
    """The only error is RefusedError."""
    for place, field in (("json:/token", JSON), ("form:token", FORM)):
        try:
            check_body(need(body=place), [field], body)
        except RefusedError:
            continue
        made = with_key_in_body(place, body, b"sesame&-1")
        if field is JSON:
            assert json.loads(made) == {**json.loads(body), "token": "sesame&-1"}
        else:
            assert [value for name, value in parse_qsl(made.decode(), keep_blank_values=True) if name == "token"] == [
                "sesame&-1"
            ]


@given(
    st.lists(st.tuples(st.text(st.sampled_from("tokenTOKEN[]%.+ é"), max_size=6), st.text(max_size=5)), max_size=4),
    st.binary(min_size=8, max_size=20),
)
def test_a_form_with_an_inserted_key_keeps_its_fields_and_has_the_key_last(
    fields: list[tuple[str, str]], key: bytes
) -> None:
    """The fields keep their order, and the key is the last."""
    body = urlencode(fields, encoding="utf-8").encode()
    try:
        check_body(need(body="form:token"), [FORM], body)
    except RefusedError:
        return
    made = with_key_in_body("form:token", body, key).decode()

    parsed = parse_qsl(made, keep_blank_values=True, encoding="latin-1")
    assert parsed == [
        *parse_qsl(body.decode(), keep_blank_values=True, encoding="latin-1"),
        ("token", key.decode("latin-1")),
    ]


def test_a_key_is_inserted_into_a_large_body_in_bounded_time() -> None:
    """1 MiB of tiny objects takes processor time; the limit is twenty times what a slow machine needs."""
    body = b'{"x":[' + b",".join([b'{"k":1}'] * 120_000) + b"]}"
    began = time.process_time()
    check_body(need(body="json:/token"), [JSON], body)
    made = with_key_in_body("json:/token", body, KEY)

    assert (len(made) > len(body), time.process_time() - began < 5) == (True, True)


# Where the key is not


@pytest.mark.parametrize("secret", [KEY, AWKWARD], ids=["telegram", "awkward"])
@pytest.mark.parametrize("place", ["path", "json", "form"])
async def test_a_key_that_a_service_echoes_is_masked(
    world: World, tls_upstream: MakeUpstream, place: str, secret: bytes
) -> None:
    """The echoes: an error page with path and body, a redirect, a field, every form, and the sent form encoded once more."""
    credential, path, fields, body = {
        "path": (TELEGRAM, f"{PLACE}/getMe", (), None),
        "json": (use(body="json:/token"), "/", (JSON,), b"{}"),
        "form": (use(body="form:token"), "/", (FORM,), b""),
    }[place]
    forms = sorted({form for _name, encode in ENCODINGS for form in encode(secret)})

    def echo(seen: Seen) -> bytes:
        page = b"no such method: " + seen.target.encode() + b"\n" + seen.body + b"\n" + b"\t".join(forms)
        shown = seen.target if place == "path" else quote(seen.body, safe="")
        return answer(
            page,
            f"Location: https://elsewhere.example.com{seen.target}?b={shown}",
            f"X-Was: {shown}",
            status="302 Found",
        )

    world.vault.secret = secret
    with tls_upstream(echo) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        got = await world.ask(
            upstream, path, method="POST", headers=fields, body=body, credential="api_key", grant=grant
        )

    [seen] = upstream.requests
    sent = quote(secret, safe="!$&'()*+,;=:@/")
    assert _key_in(seen, place) == secret
    everything = got.body + repr(got.headers).encode() + repr(world.journal.rows).encode()
    for form in {*forms, sent.encode(), secret}:
        assert form not in everything
    assert b"0123456789" not in everything if secret is AWKWARD else b"AAHdqTcv" not in everything
    assert b"no such method: /" in got.body
    assert got.header("Location")[0].startswith("https://elsewhere.example.com/")


def _key_in(seen: Seen, place: str) -> bytes:
    """Return the key that the service got in this place."""
    if place == "path":
        return unquote_to_bytes(seen.target.removeprefix("/bot").removesuffix("/getMe"))
    if place == "json":
        return str(json.loads(seen.body)["token"]).encode()
    return dict(parse_qsl(seen.body.decode()))["token"].encode()


async def test_the_secret_segment_of_a_key_that_contains_slashes_is_masked_on_its_own(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A server splits the path and names the wrong segment; the name of the workspace is not secret."""
    world.vault.secret = b"T000/B000/sesame-0123456789"
    with tls_upstream(lambda _seen: answer(b"T000: no hook sesame-0123456789")) as upstream:
        grant = world.grant_for(upstream, credential=use(path="/services/{key}"))
        got = await world.ask(upstream, "/services/%7Bkey%7D", credential="api_key", grant=grant)

    assert got.body == b"T000: no hook *****************"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"T000/B000/sesame-0123456789", b"sesame-0123456789"),
        (b"sesame <0123456789>", b"sesame%2520%253C0123456789%253E"),
    ],
    ids=["a-part", "encoded-twice"],
)
async def test_a_key_that_another_step_sent_is_masked_too(
    world: World, tls_upstream: MakeUpstream, key: bytes, shown: bytes
) -> None:
    """A later request to that host, with another credential or none, may get what the service stored."""
    with tls_upstream(lambda _seen: answer(b"last of T000: " + shown)) as upstream:
        host = HostPort(HOST, upstream.port)
        assert shown in (await world.ask(upstream)).body
        world.vault.bound[host] = needles_for([LentCredential("api_key", Secret(key))], host)
        got = await world.ask(upstream)

    assert got.body == b"last of T000: " + b"*" * len(shown)


@pytest.mark.parametrize("key", [KEY, AWKWARD, b"T000/B000/sesame-0123456789", b"sesame-\xff/0123456789abcdef"])
@pytest.mark.parametrize(
    "credential",
    [use(), use(query="key"), use(path="/x/{key}"), use(body="form:token")],
    ids=["header", "query", "path", "form"],
)
def test_a_hosts_scrubbed_forms_include_the_forms_scrubbed_within_one_step(
    credential: CredentialUse, key: bytes
) -> None:
    """Steps need not compute the forms of a secret anew."""
    try:
        made = _injected(credential, key, "/x/%7Bkey%7D", b"")
    except AileronError:
        assert credential.need.query is None  # a header carries ASCII alone
        return
    known = needles_for([LentCredential("api_key", Secret(key))], HostPort("h", 443))
    assert known.covers(made.roots)


async def _refused(
    world: World, tls_upstream: MakeUpstream, place: str, field: tuple[str, str], body: bytes, good: bytes
) -> None:
    asked: dict[str, Any] = {"method": "POST", "headers": (field,), "credential": "api_key"}
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use(body=place))
        error = await world.refusal(upstream, body=body, **asked, grant=grant)
        assert (upstream.requests, world.vault.lent, world.resolver.asked) == ([], 0, [])
        await world.ask(upstream, body=good, **asked, grant=grant)

    assert reason_of(error) == "body_credential"
    assert len(error.failure.message) < 300
    assert len(upstream.requests) == 1


def _injected(credential: CredentialUse, secret: bytes, path: str = "/", body: bytes | None = None) -> Any:
    lent = LentCredential("api_key", Secret(secret))
    return inject(credential, lent, Outgoing("POST", parse_url(f"https://h{path}"), body=body))


def _in_order(text: bytes) -> Any:
    """Parse JSON with members as pairs, and numbers as they are written."""
    return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
