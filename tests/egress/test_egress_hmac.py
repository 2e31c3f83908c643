"""Requests signed with an HMAC: published examples, the services' own receivers, and the bytes on the wire."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import Clock, SignatureVerifier
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from aileron.egress.inject import LentCredential, inject, reserved_fields
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.signing.hmac_template import Occasion, sign, signs_body
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.request_signing import IN_FIELDS, PLACEHOLDERS, HmacTemplate, KeyForm
from aileron.model.secret import Secret
from tests.egress.conftest import HOST, World, need, reason_of, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.upstream import Authority, Script, Seen, Upstream, answer
from tests.support.upstream_h2 import H2Seen, H2Upstream, data, head

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

MANIFEST_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "connector-manifest.md"
KEY = b"It's a Secret to Everybody"
WHSEC = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVERYTHING = HmacTemplate(
    algorithm="sha512",
    encoding="base64",
    message="{method}|{host}|{path}|{query}|{target}|{body_sha256}|{time}|{time_ms}|{id}|{body}",
    headers=(
        ("X-Signature", "t={time};m={time_ms};id={id};v1={signature}"),
        ("X-Signed-Target", "{method} {target}"),
        ("X-Signed-Host", "{host}"),
        ("X-Digest", "{body_sha256}"),
    ),
)


def of_page(heading: str) -> HmacTemplate:
    """Return the template that the manifest's page shows below this comment."""
    block = re.search(rf"```text\n# {re.escape(heading)}\n(.*?)```", MANIFEST_PAGE.read_text(encoding="utf-8"), re.S)
    assert block is not None
    table = tomllib.loads(block[1])["capabilities"]["credential"]["hmac"]
    return HmacTemplate(**{**table, "headers": tuple(table["headers"].items())})


def request(body: bytes | None = b"", url: str = "https://hooks.example.com/in", method: str = "POST") -> Outgoing:
    """Return a request before it is signed."""
    return Outgoing(method, parse_url(url), body=body)


# --- published examples and the services' own receivers ---------------------------------------------------------------


def test_the_signature_matches_github_s_published_example() -> None:
    """The example is in docs.github.com, "Validating webhook deliveries"."""
    signed = sign(of_page("as GitHub signs"), KEY, request(b"Hello, World!"), Occasion(0, "x"))

    expected = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert signed.fields == (("X-Hub-Signature-256", f"sha256={expected}"),)
    assert signed.signature == expected


def test_the_signature_matches_slack_s_published_example() -> None:
    """The example is in docs.slack.dev, "Verifying requests from Slack"."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signed = sign(
        of_page("as Slack signs"), b"8f742231b10e8888abcd99yyyzzz85a5", request(body), Occasion(1531420618_000, "x")
    )

    assert signed.fields == (
        ("X-Slack-Request-Timestamp", "1531420618"),
        ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    )


class _Stopped(Clock):
    def __init__(self, at: float) -> None:
        self._at = at

    def now(self) -> float:
        return self._at


def test_slack_s_own_receiver_accepts_a_signature_when_it_is_made_but_not_an_hour_later() -> None:
    """The receiver refuses a signature that is an hour old, or that belongs to another body."""
    now, body = 1_700_000_000, '{"text": "pâté"}'
    signed = sign(of_page("as Slack signs"), KEY, request(body.encode()), Occasion(now * 1000 + 999, "x"))

    def takes(at: float, what: str) -> bool:
        return SignatureVerifier(KEY.decode(), _Stopped(at)).is_valid_request(what, dict(signed.fields))

    assert (takes(now, body), takes(now + 3600, body), takes(now, body + " ")) == (True, False, False)


def test_stripe_s_own_receiver_accepts_the_signature() -> None:
    """The signature is over the time and the body, and one field has time and signature."""
    body = '{"id": "evt_1", "object": "event"}'
    signed = sign(of_page("as Stripe signs"), b"whsec_a-text-of-stripes", request(body.encode()), Occasion.now())
    ((name, value),) = signed.fields

    verify = stripe.WebhookSignature.verify_header
    assert name == "Stripe-Signature"
    assert verify(body, value, "whsec_a-text-of-stripes", 300)
    with pytest.raises(stripe.SignatureVerificationError):
        verify(body.replace("1", "2"), value, "whsec_a-text-of-stripes", 300)


def test_the_receiver_of_standard_webhooks_accepts_the_signature() -> None:
    """The key is decoded; a wrong key, another body or an hour's delay is refused."""
    template, body = of_page("Standard Webhooks"), b'{"type": "ping"}'
    signed = dict(sign(template, WHSEC, request(body), Occasion.now()).fields)
    late = dict(sign(template, WHSEC, request(body), Occasion(time.time_ns() // 1_000_000 - 3_600_000, "x")).fields)

    assert Webhook(WHSEC.decode()).verify(body, signed) == {"type": "ping"}
    for key, what, headers in ((WHSEC, b"{}", signed), (WHSEC[:-4] + b"aaaa", body, signed), (WHSEC, body, late)):
        with pytest.raises(WebhookVerificationError):
            Webhook(key.decode()).verify(what, headers)


# --- what is signed ---------------------------------------------------------------------------------------------------


@given(
    method=st.sampled_from(("GET", "POST", "PUT", "M-SEARCH")),
    path=st.text("abc/._~-%7E{}", max_size=30).map(lambda text: "/" + text.replace("%", "%25")),
    query=st.none() | st.text("ab=&+{}time", max_size=30),
    body=st.none() | st.binary(max_size=200) | st.sampled_from((b"{time}{signature}", b"{body}", b"\xff\x00")),
    time_ms=st.integers(0, 4_102_444_800_000),
    key=st.binary(min_size=1, max_size=100),
)
def test_every_placeholder_of_a_signature_template_is_replaced_by_the_sent_value(
    method: str, path: str, query: str | None, body: bytes | None, time_ms: int, key: bytes
) -> None:
    """The expected values are plain concatenations: text like a placeholder in a path or body is not replaced."""
    path = re.sub("[{}]", "x", path).replace("//", "/").replace("/.", "/a")
    url = f"https://api.example.com:8443{path}" + ("" if query is None else "?" + re.sub("[{}]", "x", query))
    asked = request(body, url, method)
    signed = sign(EVERYTHING, key, asked, Occasion(time_ms, "00ff"))

    parts = [method, "api.example.com:8443", asked.url.path, asked.url.query or "", asked.url.target]
    parts += [hashlib.sha256(body or b"").hexdigest(), str(time_ms // 1000), str(time_ms), "00ff"]
    message = "|".join(parts).encode() + b"|" + (body or b"")
    expected = base64.b64encode(hmac.new(key, message, "sha512").digest()).decode()
    assert signed.signature == expected
    assert signed.fields == (
        ("X-Signature", f"t={time_ms // 1000};m={time_ms};id=00ff;v1={expected}"),
        ("X-Signed-Target", f"{method} {asked.url.target}"),
        ("X-Signed-Host", "api.example.com:8443"),
        ("X-Digest", hashlib.sha256(body or b"").hexdigest()),
    )


def test_the_id_and_time_of_a_signature_are_constant_within_a_request() -> None:
    """The id is random and differs between requests."""
    made = [dict(inject_into(EVERYTHING, KEY).request.fields) for _request in range(3)]

    ids = {re.findall("id=([0-9a-f]{32});", fields["X-Signature"])[0] for fields in made}
    assert len(ids) == 3
    template = HmacTemplate(message="{id}{time}", headers=(("A", "{id}"), ("B", "{time}"), ("C", "{id}:{signature}")))
    (_, first), (_, moment), (_, last) = inject_into(template, KEY).request.fields
    assert last == f"{first}:{hmac.new(KEY, f'{first}{moment}'.encode(), 'sha256').hexdigest()}"
    assert abs(int(moment) - time.time()) < 60


def inject_into(template: HmacTemplate, secret: bytes, body: bytes | None = b"") -> Injection:
    """Return the injection that signs a request."""
    return inject(use("hmac", hmac=template), LentCredential("hmac", Secret(secret)), request(body))


@pytest.mark.parametrize(
    ("form", "stored", "key"),
    [
        ("utf8", "pä=ss".encode(), "pä=ss".encode()),
        ("base64", b"c2VzYW1lLTEyMzQ1", b"sesame-12345"),
        ("hex", b"736573616D652d3132333435", b"sesame-12345"),
        ("whsec", b"whsec_c2VzYW1lLTEyMzQ1", b"sesame-12345"),
    ],
    ids=["utf8", "base64", "hex", "whsec"],
)
def test_an_hmac_key_is_decoded_as_the_manifest_says(form: KeyForm, stored: bytes, key: bytes) -> None:
    """The signature is made with the decoded key; responses are searched for the stored form."""
    made = inject_into(HmacTemplate(key=form, message="{body}", headers=(("X-S", "{signature}"),)), stored, body=b"a")

    signature = hmac.new(key, b"a", "sha256").hexdigest()
    assert made.request.fields == (("X-S", signature),)
    assert made.once == {signature.encode()}
    assert made.roots == ({stored} if len(stored) >= 8 else frozenset())


@pytest.mark.parametrize(
    ("form", "stored", "says"),
    [
        ("base64", b"not base64!", "it is not base64"),
        ("base64", b"c2VzYW1lLTEyMzQ1=", "it is not base64"),
        ("hex", b"abc", "it is not hexadecimal"),
        ("hex", b"73 65 73 61", "it is not hexadecimal"),
        ("whsec", b"c2VzYW1lLTEyMzQ1", "it does not begin with whsec_"),
        ("whsec", b"whsec_", "it is not base64 after whsec_"),
        ("whsec", b"whsec_\xff\xff\xff", "it is not base64 after whsec_"),
    ],
    ids=["letters", "padding", "odd", "blanks", "bare", "empty", "binary"],
)
def test_the_error_for_an_hmac_key_that_cannot_be_decoded_does_not_quote_the_key(
    form: KeyForm, stored: bytes, says: str
) -> None:
    """The message says what to do."""
    template = HmacTemplate(key=form, message="{body}", headers=(("X-S", "{signature}"),))
    with pytest.raises(AileronError) as caught:
        inject_into(template, stored)

    failure = caught.value.failure
    assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_FAILED, Boundary.USER)
    assert says in failure.message
    assert "aileron secret set" in failure.message
    assert_clean(failure, stored if stored != b"whsec_" else b"whsec_c2")
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


def test_every_placeholder_of_signature_templates_has_a_value_and_a_documented_row() -> None:
    """The parser and the signer use one list, so an unlisted placeholder has neither."""
    for name in sorted(PLACEHOLDERS):
        template = HmacTemplate(message=f"{{{name}}}", headers=(("X-S", "{signature}"),))
        assert template.placeholders == {name, "signature"}
        assert sign(template, KEY, request(b"Hello"), Occasion(0, "x")).fields
    with pytest.raises(ValueError, match="a placeholder that there is not"):
        sign(HmacTemplate(message="{tme}", headers=()), KEY, request(b""), Occasion(0, "x"))

    table = MANIFEST_PAGE.read_text(encoding="utf-8").partition("| placeholder | value |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`\{(\w+)\}`", table)) == PLACEHOLDERS | IN_FIELDS


def test_the_function_signs_body_returns_true_exactly_if_the_signature_covers_the_body() -> None:
    """The body may be in the message or in a field, itself or by its hash."""
    field = (("X-S", "{signature}"),)
    assert signs_body(HmacTemplate(message="{body}", headers=field))
    assert signs_body(HmacTemplate(message="{time}", headers=(("X-D", "{body_sha256}"), *field)))
    assert not signs_body(HmacTemplate(message="{time}{target}", headers=field))


# --- on the wire ------------------------------------------------------------------------------------------------------


def checks_everything(key: bytes) -> Script:
    """Return a receiver that computes EVERYTHING's signature from the bytes it got, and answers whether it matches."""

    def script(seen: Seen) -> bytes:
        fields = {name.lower(): value for name, value in seen.fields}
        found = re.fullmatch(r"t=(\d+);m=(\d+);id=([0-9a-f]{32});v1=(.+)", fields["x-signature"])
        assert found is not None
        path, _, query = seen.target.partition("?")
        parts = [seen.method, fields["host"], path, query, seen.target, hashlib.sha256(seen.body).hexdigest()]
        message = "|".join([*parts, found[1], found[2], found[3]]).encode() + b"|" + seen.body
        good = base64.b64encode(hmac.new(key, message, "sha512").digest()).decode() == found[4]
        return answer(b"signed" if good else b"forged")

    return script


@pytest.mark.abuse_case("E46")
@pytest.mark.parametrize(
    "body", [None, b"", b'{"a": "{time}"}', bytes(range(256))], ids=["none", "empty", "json", "bytes"]
)
async def test_the_signed_bytes_are_the_sent_bytes(
    world: World, tls_upstream: MakeUpstream, body: bytes | None
) -> None:
    """The receiver computes the signature from the raw request: no later change could affect it."""
    world.vault.secret = KEY
    with tls_upstream(checks_everything(KEY)) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=EVERYTHING))
        got = await world.ask(
            upstream,
            "/a%20b/c;d/%7E?x=1&&y=%2F&x=",
            method="POST",
            credential="hmac",
            grant=grant,
            body=body,
            headers=(
                ("X-Other", "  blank  "),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body or b""))),
            ),
        )

    assert got.body == b"signed"
    names = [name.lower() for name, _ in upstream.requests[0].fields]
    assert len(names) == len(set(names))
    assert names[-4:] == ["x-signature", "x-signed-target", "x-signed-host", "x-digest"]
    assert KEY not in bytes(upstream.received)


async def test_the_signature_covers_method_host_and_target_of_an_http2_request(
    world: World, authority: Authority
) -> None:
    """They are sent as pseudo-header fields."""
    world.vault.secret = KEY
    seen_by: list[H2Seen] = []

    def script(seen: H2Seen) -> Iterator[bytes]:
        seen_by.append(seen)
        yield head(seen, (":status", "200"))
        yield data(seen, b"ok", end=True)

    with H2Upstream(script, authority.server_context(HOST)) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=EVERYTHING))
        await world.ask(
            None, url=f"https://{HOST}:{upstream.port}/x?y", method="PUT", credential="hmac", grant=grant, body=b"hi"
        )

    (seen,) = seen_by
    h1 = "\r\n".join(
        [
            f"{seen.value(':method')} {seen.value(':path')} HTTP/1.1",
            f"Host: {seen.value(':authority')}",
            f"X-Signature: {seen.value('x-signature')}",
        ]
    )
    assert checks_everything(KEY)(Seen(h1.encode(), seen.body)) == answer(b"signed")


@pytest.mark.abuse_case("E46")
@pytest.mark.parametrize("name", ["X-Signature", "x_signature", "X-SIGNED-TARGET", "Authorization"])
async def test_a_connector_cannot_set_a_field_of_the_signature(
    world: World, tls_upstream: MakeUpstream, name: str
) -> None:
    """A library that signs by itself cannot either; a field with another name passes."""
    world.vault.secret = KEY
    with tls_upstream(checks_everything(KEY)) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=EVERYTHING))
        refused = await world.refusal(upstream, headers=((name, "v1=mine"),), credential="hmac", grant=grant)
        assert (reason_of(refused), upstream.requests, world.vault.lent) == ("header_credential", [], 0)
        passed = await world.ask(upstream, headers=((f"{name}-2", "v1=mine"),), credential="hmac", grant=grant)

    assert passed.body == b"signed"
    assert "x-signature" in reserved_fields(need("hmac", hmac=EVERYTHING))


async def test_a_signature_is_masked_in_its_response_and_the_next_signature_differs(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The key is masked too, and the rows have neither."""
    world.vault.secret = KEY
    with tls_upstream(lambda seen: answer(json.dumps([*seen.fields, KEY.decode()]).encode())) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=EVERYTHING))
        first = await world.ask(upstream, credential="hmac", grant=grant)
        second = await world.ask(upstream, credential="hmac", grant=grant)

    sent = [seen.values("x-signature")[0].partition("v1=")[2] for seen in upstream.requests]
    assert len(set(sent)) == 2
    for got, signature in zip((first, second), sent, strict=True):
        assert_clean(got.body, signature.encode(), KEY)
        assert got.scrubbed >= 2
    assert_clean(world.journal.rows, KEY, *(signature.encode() for signature in sent))
