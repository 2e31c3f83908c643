"""Sign-in in a browser here or with a code typed in elsewhere, and everything that a provider can answer instead."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import anyio
import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import OAuth2Provider
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.problems import OURS, SIGN_IN
from aileron.oauth.request import challenge
from aileron.oauth.signin import SIGN_IN_S, GrantedTokens, SignIn
from tests.oauth.conftest import asked_for, callback, endpoints_to, port_of, visit
from tests.support.token_server import (
    CLIENT_SECRET,
    SCOPES,
    Said,
    TokenServer,
    id_token,
    json_answer,
    oauth_error,
    tokens_answer,
)
from tests.support.upstream import CLOSE, Authority, answer

pytestmark = pytest.mark.anyio

NOW: Final = 1_795_233_600.0
AGAIN: Final = "aileron binding setup github://you/mail"


@dataclasses.dataclass
class Ended:
    """The end of a sign-in, with the page that was shown."""

    granted: GrantedTokens | None
    error: AileronError | None
    status: int
    page: str

    @property
    def code(self) -> str:
        """The `details.code` of the failure."""
        assert self.error is not None
        code = self.error.failure.details["code"]
        assert isinstance(code, str)
        return code


@contextlib.asynccontextmanager
async def browser_sign_in(
    endpoints: Endpoints, provider: OAuth2Provider
) -> AsyncIterator[tuple[SignIn, dict[str, str]]]:
    """Start a sign-in; yield it with the parameters of its address."""
    with anyio.fail_after(60):
        async with SignIn(provider, endpoints, flow="browser", again=AGAIN, clock=lambda: NOW) as sign_in:
            assert sign_in.invitation.authorize_url is not None
            yield sign_in, asked_for(sign_in.invitation.authorize_url)


async def signed_in(
    endpoints: Endpoints, provider: OAuth2Provider, target: Callable[[dict[str, str]], str] = callback
) -> Ended:
    """Run a whole sign-in, with the person's browser sent back to `target`."""
    ended = Ended(None, None, 0, "")
    async with browser_sign_in(endpoints, provider) as (sign_in, asked), anyio.create_task_group() as tasks:

        async def browse() -> None:
            ended.status, _, ended.page = await visit(port_of(asked), target(asked))

        tasks.start_soon(browse)
        try:
            ended.granted = await sign_in.finished()
        except AileronError as error:
            ended.error = error
    return ended


# In a browser


async def test_a_person_signs_in_in_a_browser_and_the_code_is_redeemed_for_tokens(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The code is redeemed with its verifier, and the page tells the person to go back."""
    provider = server.provider(authorize_params=(("access_type", "offline"),))
    async with browser_sign_in(endpoints, provider) as (sign_in, asked), anyio.create_task_group() as tasks:
        pages: list[Any] = []

        async def browse() -> None:
            pages.append(await visit(port_of(asked), callback(asked)))

        tasks.start_soon(browse)
        granted = await sign_in.finished()
    (sent,) = server.asked

    assert asked == {
        "access_type": "offline",
        "response_type": "code",
        "client_id": "client-of-the-publisher",
        "redirect_uri": f"http://localhost:{port_of(asked)}/callback",
        "scope": "mail.read mail.send",
        "state": asked["state"],
        "code_challenge": challenge(sent.form["code_verifier"]),
        "code_challenge_method": "S256",
    }
    assert (sent.path, sent.form) == (
        "/token",
        {
            "grant_type": "authorization_code",
            "code": "canary-code-of-the-provider",
            "redirect_uri": asked["redirect_uri"],
            "code_verifier": sent.form["code_verifier"],
            "client_id": "client-of-the-publisher",
            "client_secret": CLIENT_SECRET,
        },
    )
    assert sent.seen.values("authorization") == []
    assert granted.tokens.access.reveal() == b"canary-access-token-1"
    assert granted.tokens.refresh is not None
    assert granted.tokens.refresh.reveal() == b"canary-refresh-token-1"
    assert granted.tokens.expires_at == NOW + 3600
    assert granted.tokens.client.token_url == provider.token_url
    assert granted.grant.scopes == SCOPES
    assert granted.grant.refreshable
    assert granted.grant.expires_ms == (NOW + 3600) * 1000
    ((status, fields, page),) = pages
    assert (status, "You are signed in." in page) == (200, True)
    assert fields["referrer-policy"] == "no-referrer"


async def test_state_nonce_and_pkce_challenge_are_new_for_each_sign_in(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """Each has 256 bits in base64url; no two sign-ins share one."""
    seen = set()
    for _ in range(3):
        async with browser_sign_in(endpoints, server.provider(scopes=("openid", *SCOPES))) as (_, asked):
            for name in ("state", "nonce", "code_challenge"):
                assert re.fullmatch(r"[A-Za-z0-9_-]{43}", asked[name])
                seen.add(asked[name])

    assert len(seen) == 9


async def test_a_sign_in_without_a_client_secret_sends_no_client_secret(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """PKCE protects the sign-in instead."""
    ended = await signed_in(endpoints, server.provider(client_secret=None))

    assert ended.granted is not None
    assert "client_secret" not in server.asked[0].form


async def test_the_account_comes_from_the_id_token(server: TokenServer, endpoints: Endpoints) -> None:
    """The account is the `email` claim; issuer, audience and nonce of the token are checked."""
    provider = server.provider(scopes=("openid", "email", *SCOPES))
    async with browser_sign_in(endpoints, provider) as (sign_in, asked), anyio.create_task_group() as tasks:
        claims = {
            "iss": server.url("/"),
            "aud": provider.client_id,
            "nonce": asked["nonce"],
            "email": "mira@example.test",
        }
        server.says(json_answer(tokens_answer(id_token=id_token(claims))))
        tasks.start_soon(lambda: visit(port_of(asked), callback(asked)))
        granted = await sign_in.finished()

    assert granted.grant.account == "mira@example.test"


@pytest.mark.parametrize("code", [code for code in SIGN_IN if code not in OURS])
async def test_every_error_of_the_authorization_page_has_its_message(
    code: str, server: TokenServer, endpoints: Endpoints
) -> None:
    """The message has the cause and the command that starts again; the token endpoint is not asked."""
    ended = await signed_in(endpoints, server.provider(), lambda asked: callback(asked, code=None, error=code))

    assert ended.code == code
    assert ended.error is not None
    assert ended.error.failure.failure_class is FailureClass.BINDING_FAILED
    assert str(ended.error).startswith(SIGN_IN[code].what.format(host=str(server.address)))
    assert AGAIN in str(ended.error) or code == "unsupported_token_type"
    assert (ended.status, "You are not signed in." in ended.page) == (400, True)
    assert server.asked == []


@pytest.mark.parametrize("code", sorted(OURS))
async def test_a_provider_cannot_use_the_error_codes_of_aileron(
    code: str, server: TokenServer, endpoints: Endpoints
) -> None:
    """Neither endpoint can make Aileron report, for example, that the person was too slow."""
    server.says(oauth_error(code))
    found = [
        await signed_in(endpoints, server.provider(), lambda asked: callback(asked, code=None, error=code)),
        await signed_in(endpoints, server.provider()),
    ]

    assert [ended.code for ended in found] == ["unknown_error", "unknown_error"]
    assert all(f"(error code: {code})" in str(ended.error) for ended in found)


TOKEN_ERRORS: Final[dict[str, tuple[Said, str]]] = {
    "invalid_grant": (oauth_error("invalid_grant", error_description="canary-description"), "invalid_grant"),
    "invalid_client": (oauth_error("invalid_client", "401 Unauthorized"), "invalid_client"),
    "a code of its own": (oauth_error("not_today"), "unknown_error"),
    "a code that is no code": (oauth_error("canary \x1b[2J"), "unknown_error"),
    "a code of another type": (json_answer({"error": 7}, "400 Bad Request"), "bad_answer"),
    "too many": (answer(b"", status="429 Too Many Requests"), "too_many_requests"),
    "an error with 200": (json_answer({"error": "invalid_grant"}), "invalid_grant"),
    "down": (answer(b"<h1>canary</h1>", status="503 Service Unavailable"), "unavailable"),
    "an error with 500": (oauth_error("server_error", "500 Oops"), "server_error"),
    "a page": (answer(b"<h1>canary</h1>"), "bad_answer"),
    "not found": (answer(b"", status="404 Not Found"), "bad_answer"),
    "nothing": (answer(b""), "bad_answer"),
    "a list": (json_answer([1]), "bad_answer"),
    "NaN": (json_answer(b'{"access_token":"canary-access","token_type":"Bearer","expires_in":NaN}'), "bad_answer"),
    "a key twice": (
        json_answer(b'{"token_type":"Bearer","access_token":"canary-1","access_token":"canary-2"}'),
        "bad_answer",
    ),
    "deep": (json_answer(b'{"a":' * 9000 + b"1" + b"}" * 9000), "bad_answer"),
    "too much": (json_answer({**tokens_answer(), "x": "y" * 70_000}), "bad_answer"),
    "endless": (lambda asked: _endless(), "bad_answer"),
    "cut off": (lambda asked: [json_answer(tokens_answer())[:-5], CLOSE], "unreachable"),
    "another type": (json_answer(tokens_answer(token_type="mac")), "bad_token_type"),
    "no type": (json_answer(tokens_answer(token_type=None)), "bad_answer"),
    "a short token": (json_answer(tokens_answer(access_token="canary")), "bad_token"),
    "a long token": (json_answer(tokens_answer(access_token="c" * 8193)), "bad_token"),
    "a token that ends a header": (json_answer(tokens_answer(access_token="canary\r\nX-Evil: yes")), "bad_token"),
    "a refresh token that is none": (json_answer(tokens_answer(refresh_token="canary\x00canary")), "bad_token"),
    "less than nothing": (json_answer(tokens_answer(expires_in=-1)), "bad_answer"),
    "not a number": (json_answer(tokens_answer(expires_in="soon")), "bad_answer"),
    "half of it": (json_answer(tokens_answer(scope="mail.read")), "missing_scopes"),
    "an ID token that is none": (json_answer(tokens_answer(id_token="canary.canary")), "bad_id_token"),
}


async def test_a_secret_that_the_token_endpoint_repeats_as_a_code_is_not_quoted(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The endpoint sends the client secret as its error code."""
    server.says(lambda asked: oauth_error(asked.form["client_secret"]))
    ended = await signed_in(endpoints, server.provider(client_secret="secret_like_a_code"))

    assert ended.code == "unknown_error"
    assert "like_a_code" not in str(ended.error)


def _endless() -> Any:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"1000\r\n" + b"a" * 0x1000 + b"\r\n"


@pytest.mark.abuse_case("O16")
@pytest.mark.parametrize(("said", "code"), TOKEN_ERRORS.values(), ids=TOKEN_ERRORS.keys())
async def test_a_bad_answer_of_the_token_endpoint_ends_with_a_message_that_quotes_nothing(
    said: Said, code: str, server: TokenServer, endpoints: Endpoints
) -> None:
    """Standard errors, nonsense and unusable tokens grant nothing, and the failure has neither cause nor context."""
    server.says(said)
    ended = await signed_in(endpoints, server.provider())
    again = await signed_in(endpoints, server.provider())

    assert ended.code == code
    assert ended.error is not None
    assert AGAIN in str(ended.error)
    assert "canary" not in f"{ended.error!r}{ended.error.failure!r}{ended.page}"
    assert "\x1b" not in str(ended.error)
    assert ended.error.__cause__ is None
    assert ended.error.__context__ is None
    assert again.granted is not None  # the same provider, when it answers as it should


async def test_scopes_that_the_person_did_not_grant_are_named(server: TokenServer, endpoints: Endpoints) -> None:
    """A box on the provider's page was left unticked: the message names the scope, made safe to display."""
    server.says(json_answer(tokens_answer(scope="mail.read openid")))
    ended = await signed_in(endpoints, server.provider(scopes=("mail.read", "mail.send", "x\u202ey", "offline_access")))

    assert ended.error is not None
    assert (
        "everything that the connector asks for (missing: mail.send, x\\u202ey); allow everything on the page"
        in str(ended.error)
    )


async def test_the_error_for_an_unreachable_provider_names_its_host(server: TokenServer, endpoints: Endpoints) -> None:
    """The provider's host does not exist, and the message names it."""
    ended = await signed_in(endpoints, server.provider(token_url="https://nobody.invalid:1/token"))

    assert ended.code == "unreachable"
    assert "nobody.invalid:1" in str(ended.error)


@pytest.mark.parametrize("flow", ["browser", "device"])
@pytest.mark.parametrize(
    ("token_url", "setting"),
    [
        ("http://localhost:{port}/token", "egress.private_plain"),
        ("https://localhost:{port}/token", "egress.private"),
        ("https://10.0.0.1/token", "egress.private"),
    ],
)
async def test_a_provider_that_the_settings_do_not_allow_is_refused_before_the_sign_in(
    flow: Any, token_url: str, setting: str, server: TokenServer, endpoints: Endpoints, start_server: Callable[..., Any]
) -> None:
    """The person gets no page to open, and the fix is the setting. An allowed provider works."""
    url = token_url.format(port=start_server().address.port)
    with pytest.raises(AileronError) as caught:
        async with SignIn(server.provider(token_url=url), endpoints, flow=flow, again=AGAIN):
            pytest.fail("there is a page to go to")

    failure = caught.value.failure
    assert failure.details["code"] == "not_allowed_yet"
    assert setting in failure.message
    assert failure.message.endswith(f"allow it in the settings, then run `{AGAIN}`")
    assert "publisher" not in failure.message
    assert server.asked == []
    async with SignIn(server.provider(), endpoints, flow="browser", again=AGAIN) as sign_in:
        assert sign_in.invitation.authorize_url


async def test_a_sign_in_with_an_unreplaced_placeholder_as_client_id_or_secret_sends_no_request(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The client ID or secret of an unreleased manifest is one: no port is opened, and no request sent."""
    for changes in (
        {"client_id": "bound-at-release"},
        {"client_id": "1234567890-xxxxxxx.apps.example"},
        {"client_id": "YOUR_CLIENT_ID"},
        {"client_id": "<client id>"},
        {"client_id": ""},
        {"client_secret": "bound-at-release"},
    ):
        for flow in ("browser", "device"):
            with pytest.raises(AileronError) as caught:
                async with SignIn(server.provider(**changes), endpoints, flow=flow, again=AGAIN):
                    pass
            assert caught.value.failure.details["code"] == "placeholder"

    assert server.connections == 0


async def test_a_sign_in_ends_after_ten_minutes_without_an_answer(
    server: TokenServer, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is closed, and the message says why. The test shortens the time."""
    monkeypatch.setattr("aileron.oauth.signin.SIGN_IN_S", 0.05)
    async with browser_sign_in(endpoints, server.provider()) as (sign_in, asked):
        with pytest.raises(AileronError, match="within 10 minutes") as caught:
            await sign_in.finished()
    with pytest.raises(ConnectionRefusedError):
        await visit(port_of(asked), callback(asked))

    assert SIGN_IN_S == 600
    assert caught.value.failure.details["code"] == "timed_out"


async def test_a_cancelled_sign_in_leaves_no_port_open(server: TokenServer, endpoints: Endpoints) -> None:
    """The sign-in is cancelled while it waits; a later request is not answered."""
    with anyio.CancelScope() as scope:
        async with (
            browser_sign_in(endpoints, server.provider()) as (sign_in, asked),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(sign_in.finished)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    with pytest.raises(ConnectionRefusedError):
        await visit(port_of(asked), callback(asked))

    assert scope.cancelled_caught
    assert server.asked == []


# With a code


class Waits:
    """A stand-in for the time between two requests, which records it."""

    def __init__(self) -> None:
        self.s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.s.append(seconds)
        await anyio.lowlevel.checkpoint()


async def device_sign_in(
    endpoints: Endpoints, provider: OAuth2Provider, sleep: Callable[[float], Awaitable[None]]
) -> GrantedTokens:
    """Run a whole device sign-in."""
    with anyio.fail_after(60):
        async with SignIn(provider, endpoints, flow="device", again=AGAIN, clock=lambda: NOW, sleep=sleep) as sign_in:
            assert sign_in.invitation.user_code == "WDJB-MJHT"
            assert sign_in.invitation.expires_at == NOW + 600
            return await sign_in.finished()


async def test_a_sign_in_with_a_device_code_polls_the_provider_and_gets_tokens(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The polling follows the provider's pace, slower on request, and gets the tokens when the person is done."""
    good = server._good
    pending, slow = oauth_error("authorization_pending"), oauth_error("slow_down", "200 OK")
    server.says(good, pending, slow, answer(b"", status="503 Busy"), pending)
    waits = Waits()
    granted = await device_sign_in(endpoints, server.provider(), waits)

    assert waits.s == [5, 5, 10, 20, 20]
    assert granted.tokens.access.reveal() == b"canary-access-token-1"
    assert server.to("/device")[0].form == {
        "scope": "mail.read mail.send",
        "client_id": "client-of-the-publisher",
        "client_secret": CLIENT_SECRET,
    }
    assert {asked.form["device_code"] for asked in server.to("/token")} == {"canary-device-code"}
    assert {asked.form["grant_type"] for asked in server.to("/token")} == {
        "urn:ietf:params:oauth:grant-type:device_code"
    }


@pytest.mark.parametrize("code", ["access_denied", "expired_token", "invalid_client", "invalid_grant"])
async def test_a_failed_device_sign_in_reports_the_reason(code: str, server: TokenServer, endpoints: Endpoints) -> None:
    """The failure is in the provider's response to a later poll."""
    server.says(server._good, oauth_error("authorization_pending"), oauth_error(code))
    with pytest.raises(AileronError, match=re.escape(AGAIN)) as caught:
        await device_sign_in(endpoints, server.provider(), Waits())

    assert caught.value.failure.details["code"] == code


async def test_a_provider_without_a_device_flow_is_reported(server: TokenServer, endpoints: Endpoints) -> None:
    """The message names the sign-in in a browser instead."""
    with pytest.raises(AileronError, match="on a machine with a browser") as caught:
        await device_sign_in(endpoints, server.provider(device_authorization_url=None), Waits())

    assert caught.value.failure.details["code"] == "no_device_flow"
    assert server.connections == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"user_code": "\x1b[2J"},
        {"user_code": "x" * 65},
        {"user_code": ""},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://evil.example/"},
        {"verification_uri": "https://evil.example/\u202e"},
        {"verification_uri_complete": "file:///etc/passwd"},
        {"device_code": 7},
        {"expires_in": 0},
        {"expires_in": "NaN"},
        {"interval": -1},
    ],
    ids=str,
)
async def test_a_device_code_that_a_terminal_could_not_show_is_refused(
    changes: dict[str, Any], server: TokenServer, endpoints: Endpoints
) -> None:
    """A code and an address are shown and opened: values that could do more are refused."""
    whole = {
        "device_code": "canary-device-code",
        "user_code": "WDJB-MJHT",
        "verification_uri": server.url("/device-page"),
        "expires_in": 900,
    }
    server.says(json_answer({**whole, **changes}), json_answer(whole))
    with pytest.raises(AileronError) as caught:
        await device_sign_in(endpoints, server.provider(), Waits())

    assert caught.value.failure.details["code"] == "bad_answer"
    assert (await device_sign_in(endpoints, server.provider(), Waits())).grant.refreshable


async def test_a_device_code_that_nobody_enters_times_out(
    server: TokenServer, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider itself would never end the wait."""
    monkeypatch.setattr("aileron.oauth.signin.SIGN_IN_S", 0.3)
    server.says(server._good, *[oauth_error("authorization_pending")] * 10_000)

    async def quick(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    with pytest.raises(AileronError, match="within 10 minutes"), anyio.fail_after(60):
        async with SignIn(server.provider(), endpoints, flow="device", sleep=quick) as sign_in:
            await sign_in.finished()


# Who answers


async def test_a_provider_that_omits_its_issuer_is_accepted_if_the_manifest_says_so(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """RFC 9207 section 2.4: the manifest holds the provider's metadata; without that statement no code is redeemed."""
    strict = await signed_in(endpoints, server.provider(issuer=server.url("")))
    was_asked = list(server.asked)
    lax = await signed_in(endpoints, server.provider(issuer=server.url(""), issuer_in_answer=False))

    assert (strict.code, was_asked) == ("issuer_mismatch", [])
    assert lax.granted is not None


# Where it goes


async def test_each_endpoint_on_this_machine_needs_the_user_s_permission(
    authority: Authority, server: TokenServer, start_server: Callable[..., TokenServer]
) -> None:
    """The user allowed one local address; another one in the manifest gets no connection."""
    other = start_server()
    async with endpoints_to(authority, server) as endpoints:
        with pytest.raises(AileronError) as refused:
            await signed_in(endpoints, server.provider(token_url=other.url("/token")))
        good = await signed_in(endpoints, server.provider())

    assert refused.value.failure.details["code"] == "not_allowed_yet"
    assert f"aileron config add egress.private {other.address}" in refused.value.failure.message
    assert other.connections == 0
    assert good.granted is not None
