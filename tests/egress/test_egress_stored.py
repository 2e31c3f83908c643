"""Services that keep the credential they were sent and show it later: to other steps, in parts, and compressed."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import threading
import zlib
from collections.abc import Callable, Iterator

import anyio
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aileron.egress import Meter, Reason
from aileron.egress.decode import PIECE_BYTES
from aileron.egress.refusal import BadAnswerError
from aileron.egress.scrub import Needles
from aileron.egress.tcp import StreamRequest
from aileron.egress.unlabelled import MAX_HELD_BYTES, MAX_MEMBERS, MEMBER_BYTES, Unlabelled
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import HOST, World, plain_url, reason_of, use
from tests.support.upstream import Script, Seen, Upstream, answer, chunked_answer

pytestmark = pytest.mark.anyio

KEY = b"canary-0123456789-abcdefXYZ"
OTHER = b"another-secret-of-nobody-here"


def stored(_seen: Seen) -> bytes:
    """Return a response with the credential that the service got earlier."""
    return answer(b"log: Authorization: Bearer " + KEY, f"X-Last: {KEY.decode()}")


def in_two(first: bytes, rest: bytes, go: threading.Event) -> Script:
    """Return the script of a service that sends the first half of a response, and the rest after `go`."""

    def script(_seen: Seen) -> Iterator[bytes]:
        pieces = iter(chunked_answer([first, rest]))
        yield next(pieces)
        yield next(pieces)
        go.wait(10)
        yield from pieces

    return script


@pytest.fixture
def bound(world: World) -> Callable[[Upstream], Grant]:
    """Return a function that binds the key for an upstream and returns a grant for it without a credential."""

    def bind(upstream: Upstream) -> Grant:
        world.vault.bound = {HostPort(HOST, upstream.port): Needles([KEY])}
        return world.plain_grant(upstream)

    return bind


async def test_a_secret_bound_for_a_host_is_scrubbed_from_the_first_response(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """The step was lent nothing; the control is another host, for which nothing is bound."""
    with Upstream(stored) as upstream, Upstream(stored) as elsewhere:
        got = await world.ask(upstream, url=plain_url(upstream), grant=bound(upstream))
        control = await world.ask(elsewhere, url=plain_url(elsewhere), grant=world.plain_grant(elsewhere))

    assert world.vault.lent == 0
    assert (KEY in got.body, got.header("X-Last"), got.scrubbed) == (False, ["*" * len(KEY)], 2)
    assert (KEY in control.body, control.scrubbed) == (True, 0)


@pytest.mark.abuse_case("E36")
async def test_a_secret_bound_while_a_response_arrives_is_scrubbed_from_its_rest(world: World) -> None:
    """An example is a log that is read while another connector's token is renewed."""
    changed = threading.Event()
    with Upstream(in_two(b"first " + KEY + b"\n", b"then " + KEY + b"\n", changed)) as upstream:
        world.vault.bound = {HostPort(HOST, upstream.port): Needles([OTHER])}
        grant = world.plain_grant(upstream)
        request = world.request(plain_url(upstream))
        async with world.egress.open(request, grant, Meter(grant.budget), world.journal, 1e12) as response:
            body = [await anext(aiter(response))]
            world.vault.bound = {HostPort(HOST, upstream.port): Needles([KEY])}
            changed.set()
            body += [piece async for piece in response]

    assert b"".join(body) == b"first " + KEY + b"\nthen " + b"*" * len(KEY) + b"\n"


async def test_no_request_goes_to_a_host_with_secrets_while_the_vault_is_locked(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """A request without a credential is refused too: its response could not be scrubbed. Other hosts stay reachable."""
    with Upstream(stored) as upstream, Upstream(stored) as elsewhere:
        grant = bound(upstream)
        world.vault.locked = True
        error = await world.refusal(upstream, url=plain_url(upstream), grant=grant)
        control = await world.ask(elsewhere, url=plain_url(elsewhere), grant=world.plain_grant(elsewhere))

    assert error.failure.failure_class is FailureClass.VAULT_LOCKED
    assert (upstream.connections, control.status) == (0, 200)


async def test_a_response_in_progress_is_still_scrubbed_after_the_vault_is_locked(world: World) -> None:
    """The needles that were known at its beginning stay in use."""
    locked = threading.Event()
    with Upstream(in_two(b"one\n", KEY + b"\n", locked)) as upstream:
        world.vault.bound = {HostPort(HOST, upstream.port): Needles([KEY])}
        grant, request = world.plain_grant(upstream), world.request(plain_url(upstream))
        async with world.egress.open(request, grant, Meter(grant.budget), world.journal, 1e12) as response:
            body = [await anext(aiter(response))]
            world.vault.locked = True
            locked.set()
            body += [piece async for piece in response]

    assert b"".join(body) == b"one\n" + b"*" * len(KEY) + b"\n"


@pytest.mark.abuse_case("E37")
async def test_a_host_with_secrets_gets_no_stream(world: World) -> None:
    """A stream could carry HTTP in pieces. A locked vault changes nothing; without a bound secret the stream opens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        destination = HostPort(HOST, listening.getsockname()[1])
        grant = world.grant(destination, plain=True)
        request = StreamRequest(HOST, destination.port, tls=False)
        deadline = anyio.current_time() + 5

        for world.vault.locked in (False, True):
            world.vault.bound = {destination: Needles([KEY])}
            with pytest.raises(AileronError) as caught:
                async with world.egress.streams.open(request, grant, Meter(Budget()), world.journal, deadline):
                    pass
            assert reason_of(caught.value) == Reason.STREAM_CREDENTIAL
        world.vault.bound = {}
        async with world.egress.streams.open(request, grant, Meter(Budget()), world.journal, deadline) as stream:
            assert stream.address == "127.0.0.1"


@pytest.mark.abuse_case("E37")
async def test_a_stream_ends_when_a_secret_is_bound_for_its_host(world: World) -> None:
    """The secret is bound between the checks and the connection, or while the stream is open: no later bytes are given out."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        destination = HostPort(HOST, listening.getsockname()[1])
        grant, meter = world.grant(destination, plain=True), Meter(Budget())
        request = StreamRequest(HOST, destination.port, tls=False)

        async def read(bind_at: str) -> list[bytes]:
            pieces, world.vault.bound = [], {}
            deadline = anyio.current_time() + world.timeout_s
            async with world.egress.streams.open(request, grant, meter, world.journal, deadline) as stream:
                with listening.accept()[0] as service:
                    service.sendall(b"hello")
                    pieces.append(await stream.receive())
                    if bind_at == "read":
                        world.vault.bound = {destination: Needles([KEY])}
                    service.sendall(KEY)
                    pieces.append(await stream.receive())
            return pieces

        def bind() -> None:
            world.vault.bound = {destination: Needles([KEY])}

        assert await read("never") == [b"hello", KEY]
        with pytest.raises(AileronError) as late:
            await read("read")
        world.journal.on_sending = bind
        with pytest.raises(AileronError) as early:
            await read("dial")

    assert [reason_of(each.value) for each in (late, early)] == [Reason.STREAM_CREDENTIAL] * 2
    assert [(each.method, each.reason) for each in world.journal.denials] == [("TCP", "stream_credential")] * 2
    assert world.journal.last.failure is FailureClass.CAPABILITY_DENIED


async def test_a_response_to_the_supervisor_s_own_request_is_not_scrubbed(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """A provider's response holds the requested tokens; the lock makes no difference."""
    with Upstream(stored) as upstream:
        grant = bound(upstream)
        world.vault.locked = True
        request = world.request(plain_url(upstream))
        async with world.egress.open_own(request, grant, Meter(grant.budget), world.journal, 1e12) as response:
            body = b"".join([piece async for piece in response])

    assert KEY in body


# --- parts of an answer ---------------------------------------------------------------------------------------------

PARTS = (
    ("Range", "bytes=0-20"),
    ("range", "bytes=21-"),
    ("If-Range", '"x"'),
    ("Request-Range", "bytes=0-3"),
    ("A-IM", "vcdiff"),
)


@pytest.mark.abuse_case("E38")
async def test_range_fields_are_dropped_for_a_host_with_a_bound_secret(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """Each way to ask for a part is dropped, and other fields are not; without a bound secret all are sent."""
    with Upstream(stored) as upstream:
        grant, fields = bound(upstream), (*PARTS, ("X-Range", "bytes=0-20"))
        await world.ask(upstream, url=plain_url(upstream), grant=grant, headers=fields)
        world.vault.bound = {}
        await world.ask(upstream, url=plain_url(upstream), grant=grant, headers=fields)
        meter = Meter(Budget())
        lent = world.grant_for(upstream, credential=use(), plain=True)
        await world.ask(upstream, url=plain_url(upstream), grant=lent, headers=PARTS, credential="api_key", meter=meter)

    names = [{name.lower() for name, _value in seen.fields} for seen in upstream.requests]
    asked = {name.lower() for name, _value in PARTS}
    assert [sorted(asked & sent) for sent in names] == [[], sorted(asked), []]
    assert all("x-range" in sent for sent in names[:2])


HALF = b"Bearer " + KEY[:10]
PARTIAL = {
    "206": answer(HALF, "Content-Range: bytes 0-16/90", status="206 Partial Content"),
    "206 without a range": answer(HALF, status="206 Partial Content"),
    "multipart": answer(HALF, "Content-Type: multipart/byteranges; boundary=x", status="206 Partial Content"),
    "200 of the kind": answer(HALF, "Content-Type: multipart/byteranges; boundary=x"),
    "200 with a range": answer(HALF, "Content-Range: bytes 0-16/90"),
    "226": answer(HALF, "IM: vcdiff", status="226 IM Used"),
}


@pytest.mark.abuse_case("E38")
@pytest.mark.parametrize("how", PARTIAL)
async def test_a_partial_response_from_a_host_with_a_bound_secret_is_an_error(
    world: World, bound: Callable[[Upstream], Grant], how: str
) -> None:
    """The part was not requested, or requested in the service's own way. Without a bound secret it arrives."""
    with Upstream(lambda _seen: PARTIAL[how]) as upstream:
        grant = bound(upstream)
        error = await world.refusal(upstream, url=plain_url(upstream), grant=grant)
        world.vault.bound = {}
        control = await world.ask(upstream, url=plain_url(upstream), grant=grant)

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert "a partial answer" in error.failure.message
    assert control.body == HALF


@pytest.mark.abuse_case("E38")
async def test_a_partial_response_from_a_host_whose_bound_secret_is_unknown_is_an_error(world: World) -> None:
    """The vault was replaced by another: there is nothing to search for, and only whole responses arrive."""
    with Upstream(lambda _seen: PARTIAL["206"]) as upstream, Upstream(stored) as other:
        world.vault.bound = {HostPort(HOST, each.port): Needles(()) for each in (upstream, other)}
        error = await world.refusal(upstream, url=plain_url(upstream), grant=world.plain_grant(upstream))
        got = await world.ask(other, url=plain_url(other), grant=world.plain_grant(other), headers=PARTS)

    assert (error.failure.failure_class, got.status) == (FailureClass.NETWORK_ERROR, 200)
    assert not {name.lower() for name, _value in other.requests[0].fields} & {name.lower() for name, _value in PARTS}


async def test_a_416_response_is_relayed_and_not_treated_as_a_partial_response(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """A 416 has a Content-Range, but no part."""
    with Upstream(lambda _seen: answer(b"", "Content-Range: bytes */90", status="416 No")) as upstream:
        got = await world.ask(upstream, url=plain_url(upstream), grant=bound(upstream))

    assert got.status == 416


# --- compressed, and not said so ------------------------------------------------------------------------------------

FILLER = random.Random(7).randbytes(70_000).hex().encode()


def raw_deflate(data: bytes) -> bytes:
    """Compress to raw deflate, without a header."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip in two members": lambda data: gzip.compress(b"x" * 100) + gzip.compress(data),
    "zlib": zlib.compress,
    "zlib, fastest": lambda data: zlib.compress(data, 1),
    "gzip, and then something else": lambda data: gzip.compress(data) + b"tail",
    "gzip with a wrong sum": lambda data: gzip.compress(data)[:-8] + b"\0" * 8,
    "gzip that is cut": lambda data: gzip.compress(data)[:-4],
}


def feed(body: Unlabelled, piece: bytes) -> bytes:
    """Feed a piece, and return all that comes out for it."""
    return b"".join(body.feed(piece))


def opened(packed: bytes, wbits: int = 47) -> bytes:
    """Return what a reader can decompress of these bytes, as gzip or zlib and through all members."""
    out, stream = b"", zlib.decompressobj(wbits=wbits)
    with contextlib.suppress(zlib.error):
        for at in range(len(packed)):
            out += stream.decompress(packed[at : at + 1])
            stream = zlib.decompressobj(wbits=wbits) if stream.eof else stream
    return out


@pytest.mark.abuse_case("E39")
@pytest.mark.parametrize("size", [1, 1000, 65_536])
@pytest.mark.parametrize("how", PACKED)
def test_an_unlabelled_compressed_body_is_searched_for_secrets(how: str, size: int) -> None:
    """A body with the secret is refused before the secret comes out; one without it passes byte for byte."""
    for secret, is_in in ((KEY, True), (OTHER, False)):
        filler = FILLER if size > 1 else FILLER[:3000]
        packed = PACKED[how](filler + KEY + filler[:100])
        body, out, problem = Unlabelled(Needles([secret])), b"", None
        try:
            for at in range(0, len(packed), size):
                out += feed(body, packed[at : at + size])
            out += b"".join(body.finish())
        except Exception as error:  # noqa: BLE001 - which one is looked at
            problem = type(error).__name__
        assert problem == ("BadAnswerError" if is_in else None)
        if is_in:
            assert KEY[:8] not in opened(out)
        else:
            assert out == packed
            assert KEY in opened(out)  # the control


def test_a_secret_at_the_border_of_a_decompressed_piece_is_found() -> None:
    """zlib takes its last input before its last output, which is the end of a secret in a body that is cut."""
    end, tried = KEY[8:], 0
    for over in range(1, len(end)):
        packed = zlib.compress(end + b" " * (PIECE_BYTES - len(KEY) - len(end) + over) + KEY, 9)
        for cut in range(4, 9):
            if KEY in zlib.decompressobj().decompress(packed[:-cut]):
                tried += 1
                body = Unlabelled(Needles([KEY]))
                with pytest.raises(BadAnswerError):
                    b"".join([feed(body, packed[:-cut]), *body.finish()])
    assert tried > len(end)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1}',
        "gr\u00fc\u00dfe".encode() * 10,
        b"\x89PNG\r\n\x1a\n" + FILLER[:500],
        b"\x1f",
        b"",
        b"x",
        b"xz",
        b"x\x9cnot zlib at all",
        b"x^2 + y^2 = z^2, and so on",
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_an_uncompressed_body_comes_out_at_once(body: bytes, size: int) -> None:
    """Only what begins as gzip or zlib and is neither can wait, for some 20 bytes."""
    looked, out = Unlabelled(Needles([KEY])), b""
    for at in range(0, len(body), size):
        out += feed(looked, body[at : at + size])
        assert out == body[: at + size] or body[:2] == b"x^"
    assert out == body
    assert list(looked.finish()) == []


@pytest.mark.abuse_case("E39")
@pytest.mark.parametrize("size", [1, 1000])
def test_an_unlabelled_raw_deflate_body_passes_unchanged(size: int) -> None:
    """Raw deflate has no mark of its own, and no service is known that sends it unlabelled. The control has a header."""
    packed, body = raw_deflate(FILLER[:3000] + KEY), Unlabelled(Needles([KEY]))
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert [feed(body, piece) for piece in pieces] == pieces
    assert KEY in opened(packed, -15)
    for pack in (gzip.compress, zlib.compress):
        body = Unlabelled(Needles([KEY]))
        with pytest.raises(BadAnswerError, match="contains a secret"):
            b"".join([feed(body, pack(FILLER[:3000] + KEY)), *body.finish()])


def test_the_decompressed_output_up_to_an_error_is_searched_for_secrets() -> None:
    """zlib returns nothing from a call that fails, but a reader that goes byte by byte has all that came before. Here the output
    becomes a full piece within the secret, and the error follows at once.
    """
    end, invalid, tried = KEY[8:], 0x63, 0
    for over in range(1, len(end)):
        text = end + b" " * (PIECE_BYTES - len(KEY) - len(end) + over) + KEY
        packer = zlib.compressobj(9, strategy=zlib.Z_FIXED)
        packed = packer.compress(text) + packer.flush()
        size, bits = len(packed), int.from_bytes(packed, "little")
        for sound in range(8 * size - 48, 8 * size - 32):
            damaged = (bits & ((1 << sound) - 1) | invalid << sound).to_bytes(size, "little")
            if opened(damaged) == text:
                tried += 1
                with pytest.raises(BadAnswerError, match="contains a secret"):
                    feed(Unlabelled(Needles([KEY])), damaged)
    assert tried > len(end)


@pytest.mark.abuse_case("E42")
@given(
    st.sampled_from([gzip.compress, zlib.compress, lambda data: zlib.compress(data, 0)]),
    st.one_of(st.sampled_from([b'{"a": "', b"<html>", b"Authorization: Bearer ", b"error: "]), st.binary(max_size=40)),
    st.binary(max_size=20),
    st.lists(st.integers(1, 12), max_size=12),
)
@example(zlib.compress, b"Authorization: Bearer ", b"", [1, 1, 1, 1])
def test_a_secret_in_a_compressed_body_never_comes_out_however_the_body_is_split(
    pack: Callable[[bytes], bytes], before: bytes, after: bytes, sizes: list[int]
) -> None:
    """The header may come in two pieces, and may look like text. In the control another secret is bound."""
    packed = pack(before + KEY + after)
    for secret, is_in in ((KEY, True), (OTHER, False)):
        body, rest, out, is_refused = Unlabelled(Needles([secret])), packed, b"", False
        try:
            for size in [*sizes, len(packed)]:
                out += feed(body, rest[:size])
                rest = rest[size:]
            out += b"".join(body.finish())
        except BadAnswerError:
            is_refused = True
        assert is_refused is is_in
        assert KEY not in opened(out) if is_in else out == packed


@given(st.text(st.characters(min_codepoint=0x20, blacklist_categories=("Cs", "Cc")), max_size=12), st.integers(1, 9))
@example("data: 1", 1)
@example("x", 1)
@example('{"a":1}', 2)
@example("h\u00fc", 9)
def test_a_short_first_event_of_an_event_stream_is_passed_on_at_once(text: str, size: int) -> None:
    """The format of the body may be still unknown. Each piece comes out when it is fed."""
    event, body = text.encode() + b"\n\n", Unlabelled(Needles([KEY]))
    assume(event[0] & 0x8F != 8 or int.from_bytes(event[:2], "big") % 31)  # `x^`: this is how zlib begins
    for at in range(0, len(event), size):
        assert feed(body, event[at : at + size]) == event[at : at + size]


@pytest.mark.abuse_case("E43")
def test_a_compressed_body_of_very_many_tiny_members_is_refused() -> None:
    """A tiny member costs as much as hundreds of other bytes. Real members, and a thousand tiny ones, pass and are searched."""
    tiny, small = gzip.compress(b"a"), gzip.compress(FILLER[: 2 * MEMBER_BYTES])
    assert len(small) > MEMBER_BYTES > len(tiny)
    with pytest.raises(BadAnswerError, match="too many small members"):
        feed(Unlabelled(Needles([KEY])), tiny * (MAX_MEMBERS * 2))
    for many in (tiny * MAX_MEMBERS, small * MAX_MEMBERS * 2):
        body = Unlabelled(Needles([KEY]))
        assert b"".join([*body.feed(many), *body.finish()]) == many
        body = Unlabelled(Needles([KEY]))
        feed(body, many + gzip.compress(KEY)[:-8])
        with pytest.raises(BadAnswerError, match="contains a secret"):
            list(body.finish())


def test_no_part_of_a_body_is_held_back_or_refused_while_no_secret_is_bound() -> None:
    """Archives, bombs and odd beginnings pass byte for byte at once."""
    for whole in (
        gzip.compress(FILLER),
        gzip.compress(b"a") * 9000,
        gzip.compress(bytes(9 << 20)),
        b"\x1f",
        b"\xd3\xaa",
    ):
        body = Unlabelled(Needles())
        for at in range(0, len(whole), 5000):
            assert feed(body, whole[at : at + 5000]) == whole[at : at + 5000]
        assert list(body.finish()) == []


@pytest.mark.abuse_case("E42")
@pytest.mark.parametrize("how", ["gzip", "zlib"])
async def test_a_secret_bound_during_a_compressed_response_is_searched_for_in_its_rest(world: World, how: str) -> None:
    """The response began while no secret was bound. If another secret is bound at that moment, the same response arrives."""
    packed = PACKED[how](FILLER[:3000] + b"\nk=" + KEY + b"\n")

    async def ask(secret: bytes) -> bytes:
        changed = threading.Event()
        with Upstream(in_two(packed[:900], packed[900:], changed)) as upstream:
            world.vault.bound = {}
            grant, request = world.plain_grant(upstream), world.request(plain_url(upstream))
            async with world.egress.open(request, grant, Meter(grant.budget), world.journal, 1e12) as response:
                body = await anext(aiter(response))
                world.vault.bound = {HostPort(HOST, upstream.port): Needles([secret])}
                changed.set()
                return body + b"".join([piece async for piece in response])

    with pytest.raises(AileronError, match="contains a secret"):
        await ask(KEY)
    assert await ask(OTHER) == packed


@pytest.mark.abuse_case("E42")
def test_a_compressed_body_that_can_no_longer_be_searched_is_refused_once_a_secret_is_bound() -> None:
    """The body is longer than what is decompressed while no secret is bound. Uncompressed formats pass."""
    for whole, is_refused in ((gzip.compress(FILLER * 20), True), (b"\x89PNG" + FILLER * 20, False)):
        body = Unlabelled(Needles())
        assert feed(body, whole[:-100]) == whole[:-100]
        body.look_for(Needles([KEY]))
        if is_refused:
            with pytest.raises(BadAnswerError, match="try again"):
                feed(body, whole[-100:])
        else:
            assert feed(body, whole[-100:]) == whole[-100:]


async def test_a_response_with_a_secret_in_its_compressed_body_makes_the_request_fail(
    world: World, bound: Callable[[Upstream], Grant]
) -> None:
    """This goes through the engine; an archive without a secret arrives."""
    with Upstream(lambda seen: answer(gzip.compress(KEY if seen.target == "/x" else b"an archive"))) as upstream:
        grant = bound(upstream)
        error = await world.refusal(upstream, url=plain_url(upstream, "/x"), grant=grant)
        archive = await world.ask(upstream, url=plain_url(upstream), grant=grant)

    assert "contains a secret" in error.failure.message
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert gzip.decompress(archive.body) == b"an archive"


@pytest.mark.abuse_case("E39")
def test_a_compressed_body_that_decodes_to_nothing_is_not_held_back_for_ever() -> None:
    """Empty compressed blocks follow the first bytes of what could be a secret; a bomb is refused here too."""
    packer = zlib.compressobj()
    begin = packer.compress(b"\x80" + KEY[:20]) + packer.flush(zlib.Z_SYNC_FLUSH)
    body = Unlabelled(Needles([KEY]))
    assert feed(body, begin) == b""
    block = b"\0\0\0\xff\xff" * 13_000
    for held in range(0, MAX_HELD_BYTES - 2 * len(block), len(block)):
        assert feed(body, block) == b"", held
    with pytest.raises(BadAnswerError, match="decode to nothing"):
        feed(body, block * 3)
    with pytest.raises(BadAnswerError, match="expands more than 200 times"):
        feed(Unlabelled(Needles([KEY])), gzip.compress(bytes(4 << 20)))
