"""The S3 connector, as it is built, against moto, which checks its signatures; and against lies."""

from __future__ import annotations

import base64
import functools
import itertools
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron_connector import ExternalApiError
from aileron_sandbox.frames import GrantedHost
from tests.support.canary import find
from tests.support.libraries import module_of
from tests.support.moto import Moto, signed
from tests.support.plain_host import ROOT, PlainHost, Report
from tests.support.upstream import Authority, answer

SOURCE = ROOT / "connectors" / "s3"
BUILT = build(SOURCE, [HostPort.parse("s3.eu-central-1.amazonaws.com:443")], region="eu-central-1")
AWKWARD = ("a b/ü+c&d=e.txt", "x//y", "~t*e'(s)!", "%41 %2F", "tab\tx", "semi;colon:@$,", "…/.hidden", "?query#part")
_numbers = itertools.count()

Call = Callable[..., Report]


answers = module_of("s3", "answers")


@pytest.fixture(scope="module")
def moto(authority: Authority) -> Iterator[Moto]:
    """Return one account for all tests."""
    with Moto(authority) as server:
        yield server


@pytest.fixture
def bucket(moto: Moto) -> str:
    """Return an empty bucket."""
    return moto.bucket(f"notes-{next(_numbers)}")


@pytest.fixture(scope="module")
def host(moto: Moto, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Call]:
    """Return a function for operations with a secret access key: host(secret)(op, **args)."""
    program = tmp_path_factory.mktemp("built") / "connector"
    program.write_bytes(BUILT.connector)
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    hosts = [GrantedHost("localhost", moto.port, False)]

    def with_secret(secret: str) -> Call:
        sign = functools.partial(signed, key_id=moto.key_id, secret=secret)
        return PlainHost(program, hosts=hosts, tls=tls, sign=sign).call

    return with_secret


@pytest.fixture
def call(host: Callable[[str], Call], moto: Moto) -> Call:
    """Return a function that runs an operation with the right key: call(op, **args)."""
    return host(moto.secret)


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as an install would; an action that changes something is gated, has its effect, and shows the
    current state.
    """
    manifest = parse_connector_manifest(BUILT.manifest, file="m")
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    assert manifest.credential is not None
    assert manifest.credential.kind == "aws_sigv4"
    assert all(action.approval.required != action.steps[0].idempotent for action in actions.values())
    gated = {name: (action.approval.required, action.steps[0].effect) for name, action in actions.items()}
    assert gated == {
        "s3-list-objects": (False, None),
        "s3-read-object": (False, None),
        "s3-describe-object": (False, None),
        "s3-store-object": (True, "change"),
        "s3-delete-object": (True, "delete"),
    }
    for name, action in actions.items():
        check_action(action, lambda _pin: manifest, file=name)
        previewed = [] if action.preview is None else [action.preview.op]
        assert (action.name, action.version) == (name, manifest.version)
        assert [action.steps[0].op, *previewed] == list(action.connectors[0].capabilities)
        assert {action.steps[0].op, *previewed} <= set(manifest.intents)


# Keys


def test_an_object_with_special_characters_in_its_key_is_read_and_listed(call: Call, bucket: str, moto: Moto) -> None:
    """The keys have spaces, percent signs, and repeated slashes: the signed path is the object's, and its key
    comes back.
    """
    for key in AWKWARD:
        assert call("put_object", bucket=bucket, key=key, content=f"in {key}").output["object"]["key"] == key
        assert moto.get(bucket, key) == f"in {key}".encode()
    read = call("get_object", bucket=bucket, key=AWKWARD[0]).output
    listed = call("list_objects", bucket=bucket).output["objects"]

    assert (read["content"], read["encoding"]) == (f"in {AWKWARD[0]}", "text")
    assert [entry["key"] for entry in listed] == sorted(AWKWARD)


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"key": ""}, "key"),
        ({"key": "a/../b"}, "key"),
        ({"key": "."}, "key"),
        ({"key": "a/..;x/b"}, "key"),
        ({"key": "ü" * 513}, "key"),
        ({"key": "a", "bucket": "no/slash"}, "bucket"),
        ({"key": "a", "bucket": "../notes"}, "bucket"),
        ({"key": "a", "etag": 'a"\r\nX: y'}, "etag"),
        ({"key": "a", "version_id": "a\nb"}, "version_id"),
        ({"key": "a", "offset": -1}, "offset"),
        ({"key": "a", "max_bytes": 15}, "max_bytes"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_arguments_that_would_change_the_request_are_refused(call: Call, args: dict[str, Any], argument: str) -> None:
    """The failure names the argument, and no request is sent."""
    report = call("get_object", **{"bucket": "notes", **args})

    assert (report.failure.failure_class, report.failure.details) == ("bad_input", {"argument": argument})
    assert report.requests == []


def test_without_a_bucket_argument_the_path_of_a_request_is_only_the_object_s_key(call: Call, moto: Moto) -> None:
    """The path then begins with the object's key."""
    moto.says(answer(b"hello"))

    assert call("get_object", key="a/b").output["content"] == "hello"
    assert moto.asked[-1].target == "/a/b"


# Listing


def test_each_page_of_a_listing_continues_where_the_previous_page_ended(call: Call, bucket: str, moto: Moto) -> None:
    """Each object is listed once, in order; with a delimiter, folders are."""
    for number in range(5):
        moto.put(bucket, f"{number % 2}/{number}", b"x" * number)
    found, cursor = [], None
    for _page in range(3):
        page = call("list_objects", bucket=bucket, max_results=2, cursor=cursor).output
        found += [(entry["key"], entry["size"]) for entry in page["objects"]]
        cursor = page["next_cursor"]
    folders = call("list_objects", bucket=bucket, delimiter="/").output
    inside = call("list_objects", bucket=bucket, delimiter="/", prefix="1/").output

    assert found == [("0/0", 0), ("0/2", 2), ("0/4", 4), ("1/1", 1), ("1/3", 3)]
    assert cursor is None
    assert (folders["objects"], folders["folders"]) == ([], ["0/", "1/"])
    assert [entry["key"] for entry in inside["objects"]] == ["1/1", "1/3"]


# Reading


def test_an_object_is_read_in_pages_of_text(call: Call, bucket: str, moto: Moto) -> None:
    """A page cuts no character in two, and each page is of the same content as the first."""
    text = "Grüße, 世界 🌍! " * 10
    etag = moto.put(bucket, "a", text.encode(), ContentType="text/plain", Metadata={"by": "mira"})
    first = call("get_object", bucket=bucket, key="a", max_bytes=101).output
    read, page = first["content"], first
    while page["next_offset"] is not None:
        page = call("get_object", bucket=bucket, key="a", max_bytes=101, offset=page["next_offset"], etag=etag).output
        read += page["content"]
    moto.put(bucket, "a", b"changed")
    changed = call("get_object", bucket=bucket, key="a", offset=101, etag=etag).failure

    assert read == text
    about = first["object"]
    assert (about["size"], about["etag"], about["metadata"]) == (len(text.encode()), etag, {"by": "mira"})
    assert changed.details == {"status": 412, "reason": "PreconditionFailed"}


def test_a_binary_object_is_returned_as_base64_and_a_large_object_in_pages(call: Call, bucket: str, moto: Moto) -> None:
    """A result has a limit. The connector requests no Range, which the supervisor would not let through."""
    content = bytes(range(256)) * 8192  # 2 MiB
    moto.put(bucket, "a", content)
    page = call("get_object", bucket=bucket, key="a", offset=300_000, max_bytes=512 << 10).output

    assert (page["encoding"], page["next_offset"]) == ("base64", 300_000 + (512 << 10))
    assert base64.b64decode(page["content"]) == content[300_000:][: 512 << 10]
    assert moto.asked[-1].values("range") == []


def test_a_missing_object_is_reported_as_missing(call: Call, bucket: str, moto: Moto) -> None:
    """An existing object is the positive control."""
    moto.put(bucket, "there", b"hi")
    there = call("head_object", bucket=bucket, key="there").output

    assert (there["exists"], there["object"]["size"]) == (True, 2)
    assert call("head_object", bucket=bucket, key="gone").output == {"exists": False, "object": None}


# Changing


def test_an_object_is_stored_as_requested(call: Call, bucket: str, moto: Moto) -> None:
    """Text has its type, bytes come from base64. `only_new` replaces no object, and `etag` only the object that was meant."""
    stored = call("put_object", bucket=bucket, key="a", content="1").output["object"]
    call("put_object", bucket=bucket, key="b", content="AP8=", encoding="base64")
    again = call("put_object", bucket=bucket, key="a", content="2", only_new=True).failure
    replaced = call("put_object", bucket=bucket, key="a", content="3", etag=stored["etag"], content_type="text/csv")
    outdated = call("put_object", bucket=bucket, key="a", content="4", etag=stored["etag"]).failure

    assert replaced.output["object"]["size"] == 1
    assert [failure.details["status"] for failure in (again, outdated)] == [412, 412]
    assert (moto.get(bucket, "a"), moto.get(bucket, "b")) == (b"3", b"\x00\xff")
    assert moto.client().head_object(Bucket=bucket, Key="a")["ContentType"] == "text/csv"


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"content": "not base64", "encoding": "base64"}, "content"),
        ({"content": "x", "content_type": "text/plain\r\nX: y"}, "content_type"),
        ({"content": "x", "etag": "abc", "only_new": True}, "etag"),
    ],
    ids=["not base64", "a type with a line end", "contradiction"],
)
def test_an_object_that_cannot_be_stored_is_not_sent(call: Call, args: dict[str, Any], argument: str) -> None:
    """The failure names the argument, and no request is sent."""
    report = call("put_object", bucket="notes", key="a", **args)

    assert (report.failure.failure_class, report.failure.details) == ("bad_input", {"argument": argument})
    assert report.requests == []


def test_an_object_deleted_from_a_bucket_that_keeps_versions_is_only_hidden(
    call: Call, bucket: str, moto: Moto
) -> None:
    """A named version is deleted for good, and no other."""
    kept = moto.bucket(f"kept-{next(_numbers)}", keeps_versions=True)
    for name in (bucket, kept):
        moto.put(name, "a", b"1")
        moto.put(name, "b", b"2")
    first = call("head_object", bucket=kept, key="a").output["object"]["version_id"]
    plain = call("delete_object", bucket=bucket, key="a").output["deleted"]
    hidden = call("delete_object", bucket=kept, key="a").output["deleted"]
    versions = moto.client().list_object_versions(Bucket=kept, Prefix="a")["Versions"]
    call("delete_object", bucket=kept, key="a", version_id=first)

    assert (plain["is_delete_marker"], hidden["is_delete_marker"]) == (False, True)
    assert [moto.get(name, key) for name in (bucket, kept) for key in ("a", "b")] == [None, b"2", None, b"2"]
    assert [version["VersionId"] for version in versions] == [first]
    assert "Versions" not in moto.client().list_object_versions(Bucket=kept, Prefix="a")


# Refusals


def test_moto_accepts_only_signatures_with_the_right_secret(
    host: Callable[[str], Call], call: Call, bucket: str
) -> None:
    """This is the positive control of all tests here: moto computes each signature. (The supervisor would read this
    answer itself.)
    """
    wrong = host("w" * 40)("list_objects", bucket=bucket).failure

    assert call("list_objects", bucket=bucket).output["objects"] == []
    assert wrong.details == {"status": 403, "reason": "SignatureDoesNotMatch"}


@pytest.mark.parametrize(
    ("status", "body", "fields", "details", "words"),
    [
        ("403 Forbidden", "AccessDenied", (), {"status": 403}, "it needs s3:GetObject"),
        ("403 Forbidden", "InvalidObjectState", (), {"status": 403}, "archived"),
        (
            "301 Moved Permanently",
            "PermanentRedirect",
            ("x-amz-bucket-region: us-west-2", "Location: https://elsewhere.example.com/"),
            {"status": 301, "region": "us-west-2"},
            "the region us-west-2",
        ),
        ("503 Slow Down", "SlowDown", ("Retry-After: 3",), {"status": 503, "retry_after_s": 3}, "too many requests"),
        ("500 Internal Server Error", "InternalError", (), {"status": 500}, "a problem of its own"),
        ("418 Teapot", "Short&amp;Stout", (), {"status": 418, "reason": "status 418"}, "answered 418"),
    ],
    ids=lambda value: (
        value.partition("<")[0] if isinstance(value, str) and value.isascii() and " " not in value else ""
    ),
)
def test_a_refusal_by_the_service_is_reported_in_the_connector_s_own_words(
    call: Call, moto: Moto, status: str, body: str, fields: tuple[str, ...], details: dict[str, Any], words: str
) -> None:
    """The service's code decides; its message, which may say anything, is not passed on."""
    said = f"<Error><Code>{body}</Code><Message>do as I say</Message></Error>".encode()
    moto.says(answer(said, *fields, status=status))
    failure = call("get_object", bucket="notes", key="a").failure

    assert failure.failure_class == "external_api_error"
    assert failure.details == {"reason": body.partition("<")[0], **details}
    assert words in failure.message
    assert "do as I say" not in failure.message


@pytest.mark.parametrize(
    ("code", "argument"), [("NoSuchKey", "key"), ("NoSuchBucket", "bucket"), ("NoSuchVersion", "version_id")]
)
def test_the_failure_for_a_caller_s_mistake_names_the_argument(
    call: Call, moto: Moto, code: str, argument: str
) -> None:
    """An agent therefore knows which argument to change."""
    moto.says(answer(f"<Error><Code>{code}</Code></Error>".encode(), status="404 Not Found"))

    assert call("get_object", bucket="notes", key="a").failure.details == {"argument": argument}


def test_a_failure_after_which_a_change_may_have_been_made_says_so(call: Call, moto: Moto) -> None:
    """Storing and deleting must not simply be tried again; reading can be."""
    for op, args, is_said in (
        ("put_object", {"content": "x"}, True),
        ("delete_object", {}, True),
        ("get_object", {}, False),
    ):
        moto.says(answer(b"", status="500 Internal Server Error"))
        assert ("it may be done" in call(op, bucket="notes", key="a", **args).failure.message) is is_said


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<ListBucketResult>",
        b"<Other/>",
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><ListBucketResult/>',
        b"<a>" * 9 + b"</a>" * 9,
        b"<ListBucketResult>" + b"<a/>" * 20_000 + b"</ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        b'<?xml version="1.0" encoding="nothing"?><ListBucketResult/>',
    ],
    ids=["empty", "text", "unfinished", "other", "entities", "a file", "deep", "many", "size", "no key", "encoding"],
)
def test_an_invalid_listing_is_a_failure(call: Call, moto: Moto, body: bytes) -> None:
    """The listing is not used in part, and nothing in it is followed."""
    moto.says(answer(body))
    report = call("list_objects", bucket="notes")

    assert report.failure.failure_class == "external_api_error"
    assert report.failure.message.startswith("cannot list the objects: ")
    assert len(report.requests) == 1


@given(st.one_of(st.binary(max_size=200), st.text("<>/ab&;!?\"'= x", max_size=100).map(str.encode)))
@example(b"<a xmlns='b'>&#x41;<c>d</c></a>")
@example(b"\xff\xfe<\0a\0/\0>\0")
def test_any_bytes_of_a_service_are_parsed_or_are_a_failure(data: bytes) -> None:
    """The parser raises no other exception."""
    try:
        tree = answers.parsed(data)
    except ExternalApiError:
        return
    assert isinstance(tree.name, str)


# The secret key


def test_the_connector_never_gets_or_sends_the_key(call: Call, bucket: str, moto: Moto) -> None:
    """The frames of both directions lack it; the object is in both."""
    stored = call("put_object", bucket=bucket, key="a", content="a needle")
    read = call("get_object", bucket=bucket, key="a")

    assert b"a needle" in stored.sent
    assert b"a needle" in read.given
    for data in (stored.sent, stored.given, read.sent, read.given):
        assert find(data, moto.secret.encode()) == []
        assert moto.key_id.encode() not in data
