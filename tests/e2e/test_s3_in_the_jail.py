"""The S3 connector, and boto3 unmodified, end to end: actions, a person, the jail, and signatures that moto recomputes.

Requests of boto3 go to S3, and to SNS, which has another protocol.

The tests run under root's daemon and an ordinary user's: the secret access key is in no memory of a jail, no record and no
file.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.approver import Approver, Office
from tests.support.canary import find, scan
from tests.support.jailed_office import USERS, look_while
from tests.support.jailed_office import office as jailed_office
from tests.support.libraries import pack_boto3
from tests.support.moto import REGION, Moto
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-s3"
OTHER = "github://aileron-tests/s3-with-another-key"
OTHER_SECRET = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # of AWS's documentation
BOTO3 = "github://aileron-tests/boto3-{service}"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "s3"
MANIFEST = """
[connector]
name = "github://aileron-tests/boto3-s3"
version = "1.0.0"

[capabilities.network]
hosts = ["bound-at-build"]

[capabilities.credential]
kind = "aws_sigv4"
scope = "Whatever it likes"

[capabilities.credential.aws]
region = "eu-central-1"
service = "s3"

[capabilities.runtime]
imports = ["http"]
"""
_numbers = itertools.count()
PROGRAM = """
import io
import os
import urllib.request

os.environ["HOME"] = "/tmp"

import boto3
from botocore.config import Config

from aileron_connector import hosts, op, run, transports


@op
def publish(word: str) -> dict:
    client = boto3.client(
        "sns",
        region_name="eu-central-1",
        endpoint_url=hosts()[0].url,
        aws_access_key_id=transports.placeholder("aws_sigv4"),
        aws_secret_access_key="not needed",
        config=Config(retries={"total_max_attempts": 1}),
    )
    topic = client.create_topic(Name=word)["TopicArn"]
    message = client.publish(TopicArn=topic, Subject="a b/ü+1", Message=word)["MessageId"]
    return {"topics": [found["TopicArn"] for found in client.list_topics()["Topics"]], "message": message}


@op
def round_trip(bucket: str, word: str) -> dict:
    client = boto3.client(
        "s3",
        region_name="eu-central-1",
        endpoint_url=hosts()[0].url,
        aws_access_key_id=transports.placeholder("aws_sigv4"),
        aws_secret_access_key="not needed",
        config=Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries={"total_max_attempts": 1}),
    )
    client.put_object(Bucket=bucket, Key="a b/inline", Body=word.encode(), Metadata={"by": "Mira  K."})
    client.put_object(Bucket=bucket, Key="a b/streamed", Body=io.BytesIO(word.encode() * 200_000))
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1})
    names = [found["Key"] for page in pages for found in page["Contents"]]
    streamed = client.get_object(Bucket=bucket, Key="a b/streamed")["Body"].read()
    url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b/inline"}, ExpiresIn=60)
    with urllib.request.urlopen(url) as answered:
        presigned = answered.read().decode()
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a b/inline"}]})
    return {"names": names, "streamed": len(streamed), "presigned": presigned}


run()
"""


@dataclasses.dataclass(frozen=True)
class Account(Office):
    """An account at S3, and a home that reaches it; a person decides what is gated."""

    moto: Moto

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, check that nothing of it was done, and return its question's id."""
        before = len(self.moto.asked)
        question = super().ask(action, **args)
        assert len(self.moto.asked) == before
        return question


@pytest.fixture(scope="module")
def moto(authority: Authority) -> Iterator[Moto]:
    """Start a server with one account for all tests."""
    with Moto(authority) as server:
        yield server


@pytest.fixture(scope="module", params=USERS)
def office(
    request: pytest.FixtureRequest, moto: Moto, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Account]:
    """Provide the connector as a user builds it, all its actions, and boto3; at the end no file has a key."""
    sources, place = tmp_path_factory.mktemp("sources"), f"localhost:{moto.port}"
    with jailed_office(request, authority, place) as home:
        home.unlock(moto.secret.encode())
        home.store("other", OTHER_SECRET)
        for source, connector, secret in (
            (_of_this_region(sources / "s3"), CONNECTOR, "pw"),
            (_of_this_region(sources / "other", OTHER, "1.0.0"), OTHER, "other"),
            (_with_boto3(sources / "boto3-s3", "s3"), BOTO3.format(service="s3"), "pw"),
            (_with_boto3(sources / "boto3-sns", "sns"), BOTO3.format(service="sns"), "pw"),
        ):
            home.install(source, place)
            home.bind(connector, f"aws_sigv4/{source.name}/me", secret, username=moto.key_id)
        home.add_actions(*(SOURCE / "actions").glob("*/action.md"))
        home.add_probe_action("list_objects", "bucket:string", connector=OTHER)
        home.add_probe_action("round_trip", "bucket:string", "word:string", connector=BOTO3.format(service="s3"))
        home.add_probe_action("publish", "word:string", connector=BOTO3.format(service="sns"))
        yield Account(home, Approver.of(home), moto)
        home.stop()
        assert scan([home.folder], b"list the files in my S3 bucket"), "the scan finds nothing that is there"
        assert scan([home.folder], moto.secret.encode()) == {}


def _of_this_region(source: Path, name: str = CONNECTOR, version: str = "0.1.0") -> Path:
    """Copy the connector's source, with moto's region in its manifest."""
    shutil.copytree(SOURCE, source)
    manifest, text = source / "manifest.toml", (SOURCE / "manifest.toml").read_text()
    for key, ours, theirs in (
        ("name", CONNECTOR, name),
        ("version", "0.1.0", version),
        ("region", "bound-at-build", REGION),
    ):
        assert f'{key} = "{ours}"' in text
        text = text.replace(f'{key} = "{ours}"', f'{key} = "{theirs}"')
    manifest.write_text(text)
    return source


def _with_boto3(source: Path, service: str) -> Path:
    """Pack boto3 with one service, and the operations that use it."""
    source.mkdir()
    pack_boto3(source, service)
    (source / "connector.py").write_text(PROGRAM)
    manifest = MANIFEST.replace("boto3-s3", source.name).replace('service = "s3"', f'service = "{service}"')
    (source / "manifest.toml").write_text(manifest)
    return source


@pytest.fixture
def bucket(office: Account) -> str:
    """Create an empty bucket, and return its name."""
    return office.moto.bucket(f"notes-{next(_numbers)}")


# What works


def test_objects_are_listed_and_read_with_signatures_by_the_real_key(office: Account, bucket: str) -> None:
    """The server moto recomputes each signature; no response or record has the secret."""
    office.moto.put(bucket, "a b/ü+1.txt", b"hello")
    listed = office.home.run("s3-list-objects", {"bucket": bucket, "prefix": "a b/"})
    read = office.home.done("s3-read-object", bucket=bucket, key="a b/ü+1.txt")
    about = office.home.done("s3-describe-object", bucket=bucket, key="a b/ü+1.txt")

    assert [entry["key"] for entry in listed.body["result"]["objects"]] == ["a b/ü+1.txt"]
    assert (read["content"], about["object"]["size"]) == ("hello", 5)
    for asked in office.moto.asked[-3:]:
        [value] = asked.values("authorization")
        assert value.startswith(f"AWS4-HMAC-SHA256 Credential={office.moto.key_id}/")
        assert f"/{REGION}/s3/aws4_request" in value
    said = str(listed.body) + str(office.home.events(listed.body["audit_id"]))
    assert "a b/" in said
    assert find(said.encode(), office.moto.secret.encode()) == []


def test_a_compressed_object_is_read_decompressed(office: Account, bucket: str) -> None:
    """The supervisor decompresses it to search it for secrets. The stored size would be misleading, so it is null."""
    office.moto.put(bucket, "a", gzip.compress(b"hello " * 1000), ContentEncoding="gzip")
    read = office.home.done("s3-read-object", bucket=bucket, key="a", max_bytes=100)

    assert (read["content"], read["next_offset"], read["object"]["size"]) == (("hello " * 17)[:100], 100, None)


def test_an_object_is_stored_once_after_approval(office: Account, bucket: str) -> None:
    """The preview only reads; a denied question changes nothing."""
    office.moto.put(bucket, "a", b"before", ContentType="text/csv")
    question = office.ask("s3-store-object", bucket=bucket, key="a", content="after")
    refused = office.ask("s3-store-object", bucket=bucket, key="b", content="never")
    shown = office.preview(question)
    assert office.moto.get(bucket, "a") == b"before"
    settled = office.decide(question)
    denied = office.decide(refused, "deny")

    assert (shown["Its size"], shown["Its type"]) == ("6", "text/csv")
    assert (settled["status"], denied["status"]) == ("completed", "denied"), settled
    assert (office.moto.get(bucket, "a"), office.moto.get(bucket, "b")) == (b"after", None)
    assert [asked.method for asked in office.moto.asked if asked.target == f"/{bucket}/a"] == ["HEAD", "PUT"]


def test_too_large_content_is_refused_before_a_person_is_asked(office: Account, bucket: str) -> None:
    """Content of exactly the size that the connector's page allows leads to a question."""
    largest = (("x" * (45 << 10), "text"), (base64.b64encode(bytes(35 << 10)).decode(), "base64"))
    for content, encoding in largest:
        question = office.ask("s3-store-object", bucket=bucket, key="a", content=content, encoding=encoding)
        assert office.person.decide(office.home, question, "deny").status == 200
        more = {"bucket": bucket, "key": "a", "content": content + "xxxx" * 1024, "encoding": encoding}
        error = office.home.run("s3-store-object", more).body["error"]
        assert (error["class"], "at most 49152" in str(error)) == ("bad_input", True), error


def test_an_object_is_deleted_after_approval(office: Account, bucket: str) -> None:
    """Another object is not deleted."""
    office.moto.put(bucket, "a", b"1")
    office.moto.put(bucket, "ab", b"2")
    settled = office.decide(office.ask("s3-delete-object", bucket=bucket, key="a"))

    assert settled["status"] == "completed", settled
    assert (office.moto.get(bucket, "a"), office.moto.get(bucket, "ab")) == (None, b"2")


def test_boto3_works_unmodified_and_sends_no_placeholder(office: Account, bucket: str) -> None:
    """Requests inline, streamed with a trailing checksum, in pages and presigned all have signatures by the real key."""
    before = len(office.moto.asked)
    word = "a-word-of-the-test"
    found = office.home.done("round-trip", bucket=bucket, word=word)
    asked = office.moto.asked[before:]

    assert found == {
        "names": ["a b/inline", "a b/streamed"],
        "streamed": len(word) * 200_000,
        "presigned": word,
    }
    assert [request.method for request in asked] == ["PUT", "PUT", "GET", "GET", "GET", "GET", "POST"]
    assert asked[1].values("x-amz-content-sha256") == ["STREAMING-UNSIGNED-PAYLOAD-TRAILER"]
    assert (office.moto.get(bucket, "a b/inline"), asked[0].values("x-amz-meta-by")) == (None, ["Mira  K."])
    for request in asked:
        sent = request.head + request.body
        assert b"goes-here" not in sent
        assert office.moto.key_id.encode() in sent
        assert office.moto.secret.encode() not in sent


def test_boto3_creates_and_publishes_to_an_sns_topic_over_the_aws_query_protocol(office: Account) -> None:
    """The requests are forms, signed for another service; moto recomputes each signature."""
    before = len(office.moto.asked)
    word = f"orders-{next(_numbers)}"
    found = office.home.done("publish", word=word)
    asked = office.moto.asked[before:]

    assert any(topic.endswith(f":{word}") for topic in found["topics"])
    topics = office.moto.client("sns").list_topics()["Topics"]
    assert any(topic["TopicArn"].endswith(f":{word}") for topic in topics)
    assert [(request.method, request.body.partition(b"&")[0]) for request in asked] == [
        ("POST", b"Action=CreateTopic"),
        ("POST", b"Action=Publish"),
        ("POST", b"Action=ListTopics"),
    ]
    for request in asked:
        [value] = request.values("authorization")
        assert value.startswith(f"AWS4-HMAC-SHA256 Credential={office.moto.key_id}/")
        assert f"/{REGION}/sns/aws4_request" in value
        assert office.moto.secret.encode() not in request.head + request.body


# What does not


def test_a_wrong_secret_is_reported_with_its_fix(office: Account, bucket: str) -> None:
    """The service computes another signature; the supervisor reads its response. The right secret works beside it."""
    error = office.home.run("list-objects", {"bucket": bucket}).body["error"]

    assert error["class"] == "binding_failed"
    assert "does not belong to the access key ID" in error["message"]
    assert "aileron secret set" in error["message"]
    assert office.home.done("s3-list-objects", bucket=bucket)["objects"] == []


def test_a_wrong_region_is_reported_with_its_fix(office: Account, bucket: str) -> None:
    """The service names the right region, as S3 does; no request is sent to it."""
    said = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>"
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nContent-Length: {len(said)}\r\n\r\n"
    before = len(office.moto.asked)
    office.moto.says(head.encode() + said)
    error = office.home.run("s3-list-objects", {"bucket": bucket}).body["error"]

    assert error["class"] == "binding_failed"
    assert "eu-west-3" in error["message"]
    assert "[capabilities.credential.aws]" in error["message"]
    assert len(office.moto.asked) == before + 1


def test_a_bucket_name_cannot_lead_to_another_host(office: Account, bucket: str) -> None:
    """A bucket name that contains a host or a path is refused as bad_input; the granted host works."""
    for wrong in ("x.evil.example@localhost", "..", "a/b"):
        error = office.home.run("s3-list-objects", {"bucket": wrong}).body["error"]
        assert (error["class"], error["details"]["argument"]) == ("bad_input", "bucket")
    assert office.home.done("s3-list-objects", bucket=bucket)["objects"] == []


# Where the key is not


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
@pytest.mark.parametrize("action", ["s3-read-object", "round-trip"])
def test_no_key_is_in_a_jail_during_a_signed_request(office: Account, bucket: str, action: str) -> None:
    """The search runs while the service has the signature, in all memory below the daemon; it looks for the key ID too."""
    needle = f"a-needle-{action}"
    office.moto.put(bucket, needle, b"hello")
    args = {"bucket": bucket} | ({"key": needle} if action == "s3-read-object" else {"word": needle})
    looked = look_while(office.home, office.moto.gate.held(), lambda: office.home.run(action, args, wait=60.0))

    assert looked.answer.status == 200, looked.answer.body
    looked.check(needle.encode(), office.moto.secret.encode(), office.moto.key_id.encode())
