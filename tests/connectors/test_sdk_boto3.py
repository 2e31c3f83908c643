"""boto3, unmodified: the placeholder for its key names the credential, and its signature made with it goes no further."""

from __future__ import annotations

import http.client
import io
import select
import urllib.request
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from aileron.registry.connector_build import build
from aileron_connector import op, transports
from aileron_connector.testing import Reply, Request, call
from aileron_sandbox.frames import GrantedHost
from tests.support.libraries import pack_boto3
from tests.support.plain_host import PlainHost
from tests.support.upstream import Upstream, answer

pytestmark = pytest.mark.usefixtures("own_operations")

ORIGIN = "https://s3.example.com"
KIND = "aws_sigv4"
PACKED = """
import os

os.environ["HOME"] = "/tmp"

import boto3
from botocore.config import Config

from aileron_connector import hosts, op, run, transports


@op
def store(body: str) -> dict:
    client = boto3.client(
        "s3",
        region_name="eu-central-1",
        endpoint_url=hosts()[0].url,
        aws_access_key_id=transports.placeholder("aws_sigv4"),
        aws_secret_access_key="not needed",
        config=Config(s3={"addressing_style": "path"}),
    )
    return {"etag": client.put_object(Bucket="notes", Key="a", Body=body.encode())["ETag"]}


run()
"""
MANIFEST = """
[connector]
name = "github://aileron-tests/boto3"
version = "1.0.0"

[capabilities.network]
hosts = ["127.0.0.1:1"]

[capabilities.credential]
kind = "aws_sigv4"
scope = "Write notes"

[capabilities.credential.aws]
region = "eu-central-1"
service = "s3"

[capabilities.runtime]
imports = ["http"]
"""


def client(**config: Any) -> Any:
    """Return a client as the how-to makes it."""
    return boto3.client(
        "s3",
        region_name="eu-central-1",
        endpoint_url=ORIGIN,
        aws_access_key_id=transports.placeholder(KIND),
        aws_secret_access_key="not needed",
        aws_session_token="nor this",
        config=Config(s3={"addressing_style": "path"}, **config),
    )


def fields_of(request: Request) -> dict[str, str]:
    """Return a request's header fields, by name in lower case."""
    return {name.lower(): value for name, value in request.headers}


def test_a_request_names_the_credential_and_has_no_placeholder_signature() -> None:
    """boto3's path is unchanged; the payload's hash stays for the host, which signs the request."""

    @op
    def x() -> str:
        body: bytes = client().get_object(Bucket="notes", Key="a b/ü+c.txt")["Body"].read()
        return body.decode()

    done = call("x", answer=lambda _: Reply(200, b"hello", (("Content-Length", "5"),)), hosts=(ORIGIN,))
    [request] = done.requests
    assert (done.output, request.credential) == ("hello", KIND)
    assert request.url == f"{ORIGIN}/notes/a%20b/%C3%BC%2Bc.txt"
    assert "authorization" not in fields_of(request)
    assert len(fields_of(request)["x-amz-content-sha256"]) == 64
    assert "goes-here" not in str(request)


def test_a_streamed_upload_does_not_wait_for_100_continue() -> None:
    """boto3 asks whether to continue, and would wait a second for an answer; the checksum follows the body, as boto3 has it."""

    @op
    def x() -> str:
        etag: str = client().put_object(Bucket="notes", Key="k", Body=io.BytesIO(b"12345"))["ETag"]
        return etag

    done = call("x", answer=lambda _: Reply(200, b"", (("ETag", '"e"'), ("Content-Length", "0"))), hosts=(ORIGIN,))
    [request] = done.requests
    assert (done.output, request.credential) == ('"e"', KIND)
    assert "expect" not in fields_of(request)
    assert fields_of(request)["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert request.body.startswith(b"5\r\n12345\r\n0\r\nx-amz-checksum-crc32:")


def test_expect_100_continue_is_answered_at_once() -> None:
    """The answer comes after the head, and only if the client asks; then come the body, and the service's response."""

    @op
    def x(expect: bool) -> list[Any]:
        connection = http.client.HTTPSConnection("s3.example.com")
        connection.putrequest("PUT", "/a")
        connection.putheader("Content-Length", "2")
        if expect:
            connection.putheader("Expect", "100-Continue")
        connection.endheaders()
        readable, _, _ = select.select([connection.sock], [], [], 0)
        said = b"".join(connection.sock.makefile("rb", 0)) if readable else b""
        connection.send(b"hi")
        after, _, _ = select.select([connection.sock], [], [], 0)
        return [said.decode(), bool(after), connection.getresponse().read().decode()]

    def echo(request: Request) -> Reply:
        return Reply(200, request.body)

    assert call("x", {"expect": True}, answer=echo, hosts=(ORIGIN,)).output == [
        "HTTP/1.1 100 Continue\r\n\r\n",
        False,
        "hi",
    ]
    assert call("x", {"expect": False}, answer=echo, hosts=(ORIGIN,)).output == ["", False, "hi"]


def test_a_presigned_url_names_the_credential_and_stays_presigned() -> None:
    """The key is left out; the parameters that make the URL presigned, and its lifetime, stay for the host, which
    signs it anew.
    """

    @op
    def x() -> str:
        url = client(signature_version="s3v4").generate_presigned_url(
            "get_object", Params={"Bucket": "notes", "Key": "k", "VersionId": "v1"}, ExpiresIn=60
        )
        with urllib.request.urlopen(url) as answered:
            return str(answered.read().decode())

    done = call("x", answer=[Reply(200, b"hello")], hosts=(ORIGIN,))
    [request] = done.requests
    names = [pair.partition("=")[0] for pair in request.url.partition("?")[2].split("&")]
    assert (done.output, request.credential) == ("hello", KIND)
    assert names == [
        "versionId", "X-Amz-Algorithm", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Security-Token",
        "X-Amz-Signature",
    ]  # fmt: skip


def test_a_download_in_several_ranges_is_refused() -> None:
    """The host may drop the Range, and boto3 would write the whole answer for each part. A single download works."""
    content = bytes(range(256)) * (33 << 10)  # above 8 MiB, from where boto3 divides

    def give(request: Request) -> Reply:
        fields = (
            ("ETag", '"e"'),
            ("Content-Length", str(len(content))),
            ("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT"),
        )
        return Reply(200, b"" if request.method == "HEAD" else content, fields)

    @op
    def x(is_divided: bool) -> bool:
        whole = {} if is_divided else {"multipart_threshold": 64 << 20}
        into = io.BytesIO()
        client(retries={"total_max_attempts": 1}).download_fileobj(
            "notes", "k", into, Config=TransferConfig(use_threads=False, **whole)
        )
        return into.getvalue() == content

    assert call("x", {"is_divided": False}, answer=give, hosts=(ORIGIN,)).output is True
    divided = call("x", {"is_divided": True}, answer=give, hosts=(ORIGIN,))
    assert "the host gives it whole" in divided.failure.message
    assert [request.method for request in divided.requests] == ["HEAD"]


def test_a_url_signed_with_an_older_signature_version_is_refused_with_the_fix() -> None:
    """The rest of the URL, without its key, is no signature that the host could replace."""

    @op
    def x() -> str:
        url = client(signature_version="s3").generate_presigned_url("get_object", Params={"Bucket": "n1n", "Key": "k"})
        with urllib.request.urlopen(url) as answered:
            return str(answered.read().decode())

    failure = call("x", hosts=(ORIGIN,)).failure
    assert "signature_version='s3v4'" in failure.message


def test_a_packed_boto3_finds_its_data_in_the_archive(tmp_path: Path) -> None:
    """boto3 is packed as an author would, and used in a process that has no other boto3."""
    source, program = tmp_path / "source", tmp_path / "connector"
    source.mkdir()
    pack_boto3(source, "s3")
    (source / "connector.py").write_text(PACKED)
    (source / "manifest.toml").write_text(MANIFEST)
    program.write_bytes(build(source).connector)
    with Upstream(lambda _: answer(b"", 'ETag: "e"')) as upstream:
        report = PlainHost(program, hosts=[GrantedHost("127.0.0.1", upstream.port, True)]).call("store", body="hi")

    assert report.output == {"etag": '"e"'}
    assert [request.credential for request in report.requests] == [KIND]
    assert (upstream.requests[0].target, upstream.requests[0].body) == ("/notes/a", b"hi")
