"""HTTP Digest: published examples, challenges of every kind, and how often a password is tried."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.egress import EgressRequest, Meter, Reason
from aileron.egress.challenged import KEEP_S, MAX_KEPT, Rounds
from aileron.egress.inject import LentCredential, inject
from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import RefusedError
from aileron.egress.rules import admit
from aileron.egress.signing.digest import Challenge, Offered, Round, answer, read_challenges
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import Budget, Grant
from aileron.model.secret import Secret
from tests.egress.conftest import HOST, Got, World, reason_of, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.upstream import Script, Seen, Upstream
from tests.support.upstream import answer as http
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]

USER, PASSWORD = "Mufasa", b"Circle of Life"
RFC = Challenge(
    "http-auth@example.org",
    "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
    "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS",
)


def asked(url: str = "http://www.example.org/dir/index.html", method: str = "GET") -> Outgoing:
    """Return a request before it is answered."""
    return Outgoing(method, parse_url(url))


def parameters(field: str) -> dict[str, str]:
    """Return the parameters of an `Authorization: Digest`, without quotes."""
    assert field.startswith("Digest ")
    found = re.findall(r'([a-z*]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]+))(?:, |$)', field.removeprefix("Digest "))
    return {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in found}


# --- published examples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
    ids=["md5", "sha-256"],
)
def test_digest_answers_match_the_examples_of_rfc_7616(algorithm: str, response: str) -> None:
    """The examples are those of section 3.9.1; the quoting is the RFC's too."""
    challenge = Challenge(RFC.realm, RFC.nonce, RFC.opaque, algorithm)
    made = answer(Round(challenge, "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"), USER, PASSWORD, asked())

    assert made.response == response
    assert made.field == (
        f'Digest username="Mufasa", realm="{RFC.realm}", uri="/dir/index.html", algorithm={algorithm}, '
        f'nonce="{RFC.nonce}", nc=00000001, cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", qop=auth, '
        f'response="{response}", opaque="{RFC.opaque}"'
    )


@pytest.mark.parametrize("userhash", [True, False], ids=["hashed", "in-the-clear"])
def test_the_digest_answer_for_a_non_ascii_user_name_matches_rfc_7616(userhash: bool) -> None:
    """The example is that of section 3.9.2, as erratum 4897 corrects it."""
    (challenge,) = [
        read_challenges(
            [
                'Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, '
                'nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", '
                'opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS", charset=UTF-8'
                + (", userhash=true" if userhash else "")
            ]
        ).best
    ]
    assert challenge is not None
    turn = Round(challenge, "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v")
    made = answer(turn, "J\u00e4s\u00f8n Doe", b"Secret, or not?", asked("http://api.example.org/doe.json"))

    assert made.response == "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"
    if userhash:
        assert 'username="793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b", ' in made.field
        assert made.field.endswith(", userhash=true")
    else:
        assert made.field.startswith("Digest username*=UTF-8''J%C3%A4s%C3%B8n%20Doe, ")


def test_the_digest_answer_matches_the_example_of_rfc_2617() -> None:
    """The challenge of section 3.5 names no algorithm, so the answer names none."""
    challenge = Challenge(
        "testrealm@host.com", "dcd98b7102dd2f0e8b11d0f600bfb0c093", "5ccc069c403ebaf9f0171e9517f40e41"
    )
    made = answer(Round(challenge, "0a4f113b"), USER, b"Circle Of Life", asked("http://h/dir/index.html"))

    assert made.response == "6629fae49393a05397450978507c4ef1"
    assert "algorithm" not in made.field


@given(
    method=st.sampled_from(("GET", "POST", "M-SEARCH")),
    realm=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40),
    nonce=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40),
    algorithm=st.sampled_from(("MD5", "md5-SESS", "SHA-256", "sha-256-sess", "SHA-512-256-sess")),
    user=st.text(st.characters(min_codepoint=0x20, exclude_characters=":\x7f", exclude_categories=["Cs"]), min_size=1),
    password=st.binary(min_size=1, max_size=40),
    query=st.sampled_from(("", "?", "?a=1&b='", "?x=%22")),
    count=st.integers(1, 0xFFFFFFFF),
)
@example("GET", 'a"b\\c', 'n"\\', "MD5", 'x"\\y', b"p", "?a", 1)
def test_a_server_computes_the_same_digest_answer_from_the_authorization_field(
    method: str, realm: str, nonce: str, algorithm: str, user: str, password: bytes, query: str, count: int
) -> None:
    """The server uses only the field and what it knows of the user; the challenge is read from a field too."""
    quoted = [re.sub(r'(["\\])', r"\\\1", text) for text in (realm, nonce)]
    challenge = read_challenges(
        [f'DIGEST realm="{quoted[0]}",nonce="{quoted[1]}",qop="auth",algorithm={algorithm}']
    ).best
    assert challenge is not None
    request = asked(f"https://h.example/a%20b{query}", method)
    made = answer(Round(challenge, "0a4f113b", count), user, password, request)

    said = parameters(made.field)
    function = algorithm.lower().removesuffix("-sess").replace("sha-512-256", "sha512_256").replace("-", "")

    def digest(*parts: bytes) -> bytes:
        return hashlib.new(function, b":".join(parts)).hexdigest().encode()

    key = digest(user.encode(), realm.encode(), password)
    if algorithm.lower().endswith("-sess"):
        key = digest(key, nonce.encode(), said["cnonce"].encode())
    effect = digest(method.encode(), request.url.target.encode())
    parts = (key, nonce.encode(), said["nc"].encode(), said["cnonce"].encode(), said["qop"].encode(), effect)
    assert digest(*parts).decode() == said["response"] == made.response
    assert (said["realm"], said["nonce"], said["uri"], int(said["nc"], 16)) == (realm, nonce, request.url.target, count)
    assert made.field.isascii()
    assert made.field.isprintable()
    assert_clean(made.field.encode(), *([password] if len(password) > 8 else []))


# --- challenges -------------------------------------------------------------------------------------------------------

GOOD = 'Digest realm="r", nonce="n", qop="auth"'


@pytest.mark.parametrize(
    ("values", "algorithm"),
    [
        ([f"{GOOD}, algorithm=MD5, {GOOD}, algorithm=SHA-256"], "SHA-256"),
        ([f"{GOOD}, algorithm=SHA-256", f"{GOOD}, algorithm=MD5"], "SHA-256"),
        ([f"{GOOD}, algorithm=SHA-256", f"{GOOD}, algorithm=SHA-512-256"], "SHA-512-256"),
        ([f"{GOOD}, algorithm=SHA-256-sess", f"{GOOD}, algorithm=SHA-256"], "SHA-256-sess"),
        ([f"{GOOD}, algorithm=SHA-999", f"{GOOD}, algorithm=md5"], "md5"),
        ([f"Negotiate, NTLM, {GOOD}, algorithm=MD5"], "MD5"),
        ([f'Negotiate YII=, {GOOD}, algorithm="MD5", Basic realm="x"'], "MD5"),
        ([f"Basic realm=x , , {GOOD} ,algorithm = MD5 ,"], "MD5"),
        (['dIgEsT Nonce="n",REALM="r", QOP="auth-int , AUTH", algorithm=MD5, unknown=1'], "MD5"),
        (['Digest realm="r", nonce="n", qop=auth, algorithm=MD5'], "MD5"),
        (['Digest realm="a, Basic realm=\\"x\\"", nonce="n", qop="auth", algorithm=MD5'], "MD5"),
        (['Basic realm="broken', f"{GOOD}, algorithm=MD5"], "MD5"),
    ],
)  # fmt: skip
def test_the_strongest_of_several_digest_challenges_is_chosen(values: list[str], algorithm: str) -> None:
    """Other challenges stand beside it, in one field or several, in any spelling."""
    best = read_challenges(values).best
    assert best is not None
    assert best.algorithm == algorithm


@pytest.mark.parametrize(
    "value",
    [
        "", ",", "Basic realm=x", "Bearer", "Digest", "Digest abc==", 'realm="r", nonce="n", qop="auth"',
        'Digest realm="r", nonce="n"', 'Digest realm="r", nonce="n", qop="auth-int"', 'Digest realm="r", qop="auth"',
        'Digest nonce="n", qop="auth"', f'{GOOD}, nonce="m"', f'{GOOD}, NONCE="n"', f"{GOOD}, algorithm=SHA-1",
        'Digest realm="r\u00e9", nonce="n", qop="auth"', 'Digest realm="", nonce="n", qop="auth"',
        'Digest realm="r", nonce="n\x01", qop="auth"', f'{GOOD}, opaque="\u00e9"', f'{GOOD}; algorithm=MD5', f'{GOOD}, x="y',
        f'Digest realm="{"r" * 1025}", nonce="n", qop="auth"', f'{GOOD}, x="{"y" * 8192}"',
        ", ".join(["Basic a=b"] * 16 + [GOOD]), ", ".join([GOOD, *(f"x{number}=y" for number in range(30))]),
        'Digest realm="r" nonce="n" qop="auth"',
    ],
)  # fmt: skip
def test_a_challenge_that_cannot_be_answered_is_ignored(value: str) -> None:
    """Malformed fields, repeated parameters and RFC 2069 without qop are rejected instead of guessed at."""
    assert read_challenges([value]).best is None
    assert read_challenges([", ".join([GOOD, *(f"x{number}=y" for number in range(29))])]).best == Challenge("r", "n")
    assert read_challenges([GOOD]).best == Challenge("r", "n")


@given(
    st.lists(
        st.text('Digest Basic realm="nonce=qop,auth\\\t=\x00\u00e9', max_size=80) | st.text(max_size=80), max_size=4
    )
)
@example(['Digest realm="' + "\\" * 8191])
@example(["a=" * 4096])
@example([", " * 4096])
@example(['a="' * 2700])
def test_reading_challenges_never_raises_and_never_invents_a_scheme(values: list[str]) -> None:
    """Any text from a server is accepted; each scheme that is read occurs in it."""
    offered = read_challenges(values)
    assert all(scheme in " ".join(values).lower() for scheme in offered.schemes)
    if offered.best is not None:
        assert "digest" in offered.schemes


@pytest.mark.parametrize("username", [None, "", "a:b", "a\nb"], ids=["none", "empty", "colon", "line"])
def test_a_user_name_that_digest_cannot_carry_is_a_failed_binding(username: str | None) -> None:
    """Binding refuses such a name, so this is a second check."""
    lent = LentCredential("digest", Secret(PASSWORD), username, round=Round(RFC, "c"))
    with pytest.raises(AileronError, match="user name") as caught:
        inject(use("digest"), lent, asked())
    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED


def test_no_authorization_field_is_added_without_a_digest_challenge() -> None:
    """The password is still scrubbed from the response."""
    made = inject(use("digest"), LentCredential("digest", Secret(PASSWORD), USER), asked())
    assert (made.request.fields, made.roots, made.once) == ((), frozenset({PASSWORD}), frozenset())


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_cached_challenge_is_not_used_for_another_host_or_binding_or_password() -> None:
    """Each answer raises the nonce count and keeps the client nonce; a cached challenge expires."""
    clock = [0.0]
    rounds, name, other = Rounds(lambda: clock[0]), BindingName("digest", "s", "a"), BindingName("digest", "s", "b")
    here, there = HostPort("a.example", 443), HostPort("b.example", 443)
    accepted = Round.first(RFC)
    rounds.keep(name, here, b"x", accepted)
    rounds.keep(name, here, b"x", accepted)

    found = [rounds.next(name, here, b"x") for _ in range(2)]
    assert [reply and (reply.count, reply.cnonce) for reply in found] == [(2, accepted.cnonce), (3, accepted.cnonce)]
    assert rounds.next(other, here, b"x") is rounds.next(name, there, b"x") is None
    clock[0] = KEEP_S + 1
    assert rounds.next(name, here, b"x") is None

    rounds.keep(name, here, b"x", accepted)
    assert rounds.next(name, here, b"another password") is None
    rounds.keep(name, here, b"x", accepted)
    rounds.forget(name, here, Round.first(Challenge("r", "another")))
    assert rounds.next(name, here, b"x") is not None
    rounds.forget(name, here, accepted)
    assert rounds.next(name, here, b"x") is None


def test_the_number_of_cached_challenges_is_bounded() -> None:
    """The least recently used challenge is dropped."""
    rounds, name = Rounds(), BindingName("digest", "s", "a")
    for number in range(MAX_KEPT):
        rounds.keep(name, HostPort("a.example", number + 1), b"x", Round.first(RFC))
    assert rounds.next(name, HostPort("a.example", 1), b"x") is not None
    rounds.keep(name, HostPort("b.example", 1), b"x", Round.first(RFC))

    assert rounds.next(name, HostPort("a.example", 2), b"x") is None
    assert rounds.next(name, HostPort("a.example", 1), b"x") is not None


# --- at one that keeps count ------------------------------------------------------------------------------------------


class Strict:
    """A service with one user, which accepts each count once and in order, and whose verdicts a test can replace."""

    def __init__(self, password: bytes = PASSWORD) -> None:
        self.password = password
        self.nonces: dict[str, int] = {}
        self.says: list[str] = []
        self.lies: str | None = None

    def __call__(self, seen: Seen) -> bytes:
        said = parameters(seen.values("authorization")[0]) if seen.values("authorization") else {}
        verdict = "nobody" if not said else self._verdict(said, seen)
        self.says.append(verdict)
        if verdict == "welcome":
            return http(b"welcome:" + seen.body)
        nonce = f"nonce-{len(self.nonces)}-of-this-test"
        self.nonces[nonce] = 0
        stale = ", stale=true" if verdict == "stale" else ""
        field = f'WWW-Authenticate: Digest realm="strict", nonce="{nonce}", qop="auth", algorithm=SHA-256-sess{stale}'
        return http(b"no", field, status="401 Unauthorized")

    def _verdict(self, said: dict[str, str], seen: Seen) -> str:
        if self.lies is not None:
            return self.lies

        def digest(*parts: str | bytes) -> str:
            joined = b":".join(part.encode() if isinstance(part, str) else part for part in parts)
            return hashlib.sha256(joined).hexdigest()

        key = digest(digest(said["username"], "strict", self.password), said["nonce"], said["cnonce"])
        effect = digest(seen.method, seen.target)
        if digest(key, said["nonce"], said["nc"], said["cnonce"], said["qop"], effect) != said["response"]:
            return "wrong"
        if self.nonces.get(said["nonce"], -1) + 1 != int(said["nc"], 16):
            return "stale"
        self.nonces[said["nonce"]] += 1
        return "welcome"

    def forget(self) -> None:
        """Forget all nonces, as a restart would."""
        self.nonces = dict.fromkeys(self.nonces, 1000)


async def ask(world: World, upstream: Upstream, path: str = "/", **options: object) -> Got:
    """Send a request with the password."""
    options.setdefault("grant", world.grant_for(upstream, credential=use("digest")))
    return await world.ask(upstream, path, credential="digest", **options)  # type: ignore[arg-type]


@pytest.fixture
def mufasa(world: World) -> World:
    """Return a world with the right name and password."""
    world.vault.username, world.vault.secret = USER, PASSWORD
    return world


async def test_each_digest_answer_to_the_same_nonce_has_the_next_count(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """A nonce serves many requests, with any method, path and body, each with the next count."""
    service = Strict()
    with tls_upstream(service) as upstream:
        first = await ask(mufasa, upstream, "/a?b=c", method="POST", body=b"one")
        rest = [await ask(mufasa, upstream, f"/{number}") for number in range(3)]

    assert first.body == b"welcome:one"
    assert [response.body for response in rest] == [b"welcome:"] * 3
    assert service.says == ["nobody", "welcome", "welcome", "welcome", "welcome"]
    assert upstream.connections == 1
    assert PASSWORD not in bytes(upstream.received)


async def test_a_stale_digest_nonce_causes_one_more_request(mufasa: World, tls_upstream: MakeUpstream) -> None:
    """The service reports that only the nonce was stale, so this is no failed try of the password."""
    service = Strict()
    with tls_upstream(service) as upstream:
        await ask(mufasa, upstream)
        service.forget()
        assert (await ask(mufasa, upstream)).status == 200
        assert (await ask(mufasa, upstream)).status == 200

    assert service.says == ["nobody", "welcome", "stale", "welcome", "welcome"]


@pytest.mark.abuse_case("E44")
@pytest.mark.parametrize("is_known", [False, True], ids=["at-first", "later"])
async def test_a_service_that_calls_every_nonce_stale_gets_at_most_three_digest_answers(
    mufasa: World, tls_upstream: MakeUpstream, is_known: bool
) -> None:
    """A service that always answers `stale` cannot be told from one that refuses the password."""
    service = Strict()
    with tls_upstream(service) as upstream:
        grant = mufasa.grant_for(upstream, credential=use("digest"))
        if is_known:
            await ask(mufasa, upstream, grant=grant)
        service.lies, before = "stale", len(service.says)
        refused, paused = [await mufasa.refusal(upstream, credential="digest", grant=grant) for _ in range(2)]

        assert refused.failure.failure_class is FailureClass.BINDING_FAILED
        assert "takes every answer for too old" in refused.failure.message
        assert "not tried again" in paused.failure.message
        assert service.says[before:] == [*([] if is_known else ["nobody"]), "stale", "stale", "stale"]

        service.lies, mufasa.vault.secret, service.password = None, b"changed since", b"changed since"
        assert (await ask(mufasa, upstream, grant=grant)).status == 200


@pytest.mark.parametrize("status", ["403 Forbidden", "429 Too Many Requests", "502 Bad Gateway"])
async def test_a_status_that_says_nothing_about_the_password_leaves_cached_challenges_unchanged(
    mufasa: World, tls_upstream: MakeUpstream, status: str
) -> None:
    """The response is relayed: its challenge is not cached, and a cached challenge stays."""
    service, before = Strict(), [False]

    def half_open(seen: Seen) -> bytes:
        if before[0] and seen.values("authorization"):
            service.says.append("before")
            return http(b"", status=status)
        return service(seen)

    with tls_upstream(half_open) as upstream:
        grant = mufasa.grant_for(upstream, credential=use("digest"))

        async def says(*, is_relayed: bool) -> list[str]:
            before[0], said = is_relayed, len(service.says)
            assert (await ask(mufasa, upstream, grant=grant)).status == (int(status[:3]) if is_relayed else 200)
            return service.says[said:]

        assert [await says(is_relayed=True) for _ in range(2)] == [["nobody", "before"]] * 2
        assert await says(is_relayed=False) == ["nobody", "welcome"]
        assert await says(is_relayed=True) == ["before"]
        assert await says(is_relayed=False) == ["stale", "welcome"]  # answered at once; the count before was lost


async def test_a_password_that_was_accepted_before_is_tried_once_more_after_a_refusal(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """Some services do not report stale nonces, so the nonce may be at fault. A second refusal is final."""
    service = Strict()
    with tls_upstream(service) as upstream:
        grant = mufasa.grant_for(upstream, credential=use("digest"))
        await ask(mufasa, upstream, grant=grant)
        service.password = b"changed since"
        refused = await mufasa.refusal(upstream, credential="digest", grant=grant)
        paused = await mufasa.refusal(upstream, credential="digest", grant=grant)
        assert "refused the user name or the password" in refused.failure.message
        assert "not tried again" in paused.failure.message
        assert service.says == ["nobody", "welcome", "wrong", "wrong"]

        mufasa.vault.secret = b"changed since"
        assert (await ask(mufasa, upstream, grant=grant)).status == 200


@pytest.mark.abuse_case("E44")
async def test_concurrent_requests_with_a_wrong_password_try_it_once(mufasa: World, tls_upstream: MakeUpstream) -> None:
    """All are challenged at once; a single request answers, and the others get its refusal."""
    service = Strict(b"another password")
    with tls_upstream(service) as upstream:
        grant, errors = mufasa.grant_for(upstream, credential=use("digest")), list[AileronError]()
        meter = Meter(Budget())

        async def one() -> None:
            with pytest.raises(AileronError) as caught:
                await ask(mufasa, upstream, grant=grant, meter=meter)
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _request in range(8):
                tasks.start_soon(one)

    assert service.says.count("wrong") == 1
    assert {error.failure.failure_class for error in errors} == {FailureClass.BINDING_FAILED}


async def test_concurrent_requests_with_the_right_password_all_pass(mufasa: World, tls_upstream: MakeUpstream) -> None:
    """They pass even at a service that accepts counts only in order, which concurrent requests do not keep."""
    service = Strict()
    with tls_upstream(service) as upstream:
        grant, meter, bodies = mufasa.grant_for(upstream, credential=use("digest")), Meter(Budget()), list[bytes]()

        async def one(number: int) -> None:
            bodies.append(
                (await ask(mufasa, upstream, method="POST", body=b"%d" % number, grant=grant, meter=meter)).body
            )

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(one, number)

    assert sorted(bodies) == [b"welcome:%d" % number for number in range(4)]
    assert "wrong" not in service.says


async def test_a_request_that_waits_for_another_request_s_digest_answer_ends_at_the_deadline(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """Another request has answered the challenge and the service is slow; this one waits and sends nothing more."""
    service, go = Strict(), threading.Event()

    def slow(seen: Seen) -> bytes:
        if seen.values("authorization"):
            go.wait(20)
        return service(seen)

    with tls_upstream(slow) as upstream:
        grant, meter = mufasa.grant_for(upstream, credential=use("digest")), Meter(Budget())

        async def first() -> None:
            assert (await ask(mufasa, upstream, grant=grant, meter=meter)).status == 200

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await wait_until_async(lambda: len(upstream.requests) >= 2, "the first is under way")
            mufasa.timeout_s = 1.0
            with pytest.raises(AileronError) as caught:
                await ask(mufasa, upstream, grant=grant, meter=meter)
            go.set()

    assert caught.value.failure.failure_class is FailureClass.NETWORK_ERROR
    assert caught.value.failure.details == {"phase": "queue"}
    assert len(upstream.requests) == 3


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


async def test_a_streamed_body_is_buffered_and_sent_again_after_the_challenge(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """A body of more than 1 MiB is refused."""
    service = Strict()
    with tls_upstream(service) as upstream:
        grant = mufasa.grant_for(upstream, credential=use("digest"))
        got = await ask(mufasa, upstream, method="POST", body=parts(b"a", b"b" * 5), grant=grant)
        large = parts(*[b"x" * (256 << 10)] * 4, b"y")
        refused = await mufasa.refusal(upstream, method="POST", body=large, credential="digest", grant=grant)

    assert got.body == b"welcome:abbbbb"
    assert [len(seen.body) for seen in upstream.requests] == [6, 6]
    assert reason_of(refused) == "body_held"


async def test_a_request_that_needs_no_password_is_sent_once(mufasa: World, tls_upstream: MakeUpstream) -> None:
    """A service that sends no challenge gets no digest answer and no second request."""
    with tls_upstream(lambda seen: http(repr(seen.values("authorization")).encode())) as upstream:
        got = await ask(mufasa, upstream, method="POST", body=b"x")

    assert (got.body, len(upstream.requests)) == (b"[]", 1)


@pytest.mark.parametrize("field", ["", "WWW-Authenticate: Bearer", 'WWW-Authenticate: Digest realm="r", nonce="n"'])
async def test_a_401_without_a_usable_digest_challenge_is_reported_as_a_failed_binding(
    mufasa: World, tls_upstream: MakeUpstream, field: str
) -> None:
    """The password was not sent, so the service cannot have refused it."""
    with tls_upstream(lambda _seen: http(b"", *filter(None, [field]), status="401 No")) as upstream:
        error = await mufasa.refusal(
            upstream, credential="digest", grant=mufasa.grant_for(upstream, credential=use("digest"))
        )

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert "without a Digest challenge that can be answered" in error.failure.message
    assert len(upstream.requests) == 1


def test_a_websocket_is_not_opened_with_digest() -> None:
    """The request that opens a WebSocket is sent once; an ordinary request may answer a challenge."""
    granted = Grant(hosts=(HostPort(HOST, 443),), credential=use("digest"))
    url = parse_url(f"https://{HOST}/")
    with pytest.raises(RefusedError, match="HTTP Digest answers a challenge, and the handshake") as caught:
        admit(url, EgressRequest("GET", f"https://{HOST}/", credential="digest"), granted, is_websocket=True)

    assert caught.value.reason is Reason.CREDENTIAL_NOT_GRANTED
    assert admit(url, EgressRequest("GET", f"https://{HOST}/"), granted, is_websocket=True).use is None
    assert admit(url, EgressRequest("GET", f"https://{HOST}/", credential="digest"), granted).use is not None


async def test_a_connector_cannot_send_its_own_digest_answer(mufasa: World, tls_upstream: MakeUpstream) -> None:
    """The connector's `Authorization` is refused beside the credential."""
    with tls_upstream(Strict()) as upstream:
        grant = mufasa.grant_for(upstream, credential=use("digest"))
        mine = (("Authorization", 'Digest username="x"'),)
        refused = await mufasa.refusal(upstream, headers=mine, credential="digest", grant=grant)
        assert (reason_of(refused), upstream.requests) == ("header_credential", [])
        assert (await ask(mufasa, upstream, grant=grant)).status == 200


async def test_neither_the_password_nor_the_digest_answer_reaches_the_connector(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """The service reflects the request; neither its response nor the recorded rows contain them."""
    sent: list[str] = []

    def reflects(seen: Seen) -> bytes:
        if not seen.values("authorization"):
            return Strict()(seen)
        sent.append(parameters(seen.values("authorization")[0])["response"])
        return http(f"{seen.fields} {PASSWORD.decode()}".encode(), f"X-Echo: {sent[-1]}")

    with tls_upstream(reflects) as upstream:
        got = await ask(mufasa, upstream)

    assert got.scrubbed == 3
    assert_clean([got, mufasa.journal.rows], PASSWORD, sent[0].encode())


@pytest.mark.abuse_case("E47")
async def test_the_authentication_info_field_of_a_response_is_not_relayed(
    mufasa: World, tls_upstream: MakeUpstream
) -> None:
    """A connector could check password guesses against it. It is relayed if no credential was sent."""
    field = 'tion-Info: nextnonce="n", rspauth="6629fae49393a05397450978507c4ef1"'
    said = http(b"", f"Authentica{field}", f"proxy-authentica{field}", "X-Other: 1")
    with tls_upstream(lambda _seen: said) as upstream:
        got, anonymous = await ask(mufasa, upstream), await mufasa.ask(upstream)

    names = [
        [name.lower() for name, _value in response.headers if name.lower() != "content-length"]
        for response in (got, anonymous)
    ]
    assert names == [["x-other"], ["authentication-info", "proxy-authentication-info", "x-other"]]


def test_objects_that_hold_the_password_do_not_print_it() -> None:
    """The cases are the loan, the injection, the answer and the offered challenge."""
    lent = LentCredential("digest", Secret(PASSWORD), USER, round=Round(RFC, "c"))
    made = inject(use("digest"), lent, asked())
    assert_clean([lent, made, answer(Round(RFC, "c"), USER, PASSWORD, asked()), Offered(RFC, frozenset())], PASSWORD)
