"""moto, which responds as S3 does, with authentication on: it checks each signature, and each action against the key's policy.

    with Moto(authority) as moto:
        moto.bucket("notes")
        moto.put("notes", "a.txt", b"hello")
        …                                           # something asks https://localhost:PORT with moto.key_id and moto.secret
        assert moto.asked[-1].method == "GET"

moto runs in a process of its own. A server with the test's TLS stands before it (support/upstream.py), passes each request on
as it came, but for the framing of its body, and remembers it: `asked`. `says` replaces that server's responses, and `gate`
holds them back.

moto checks neither the key of a presigned URL, nor the age of a signature, nor its region: `_presigned` checks the first here,
with botocore, and `says` plays the others.

Source: moto's documentation, "IAM-like access control" and "Server mode"; Amazon S3's API reference. Not here: the connector.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import boto3
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from tests.support.serving import Service, program
from tests.support.upstream import Authority, Seen, answer

__all__ = ["REGION", "Moto", "signed"]

REGION: Final = "eu-central-1"
ANSWER_S: Final = 20.0
"""Seconds that moto may take for one request."""
_OPEN_ACTIONS: Final = 3
"""Number of requests without a signature check: they make the user, the policy and the key that signs everything else."""
_PROGRAM: Final = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_request(self, *args):
        pass


server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True, request_handler=Quiet)
print(server.port, flush=True)
server.serve_forever()
"""


class Moto(Service):
    """S3 with one account. `port` has TLS, for `localhost` and `names`."""

    def __init__(self, authority: Authority, *names: str) -> None:
        super().__init__(authority.server_context("localhost", *names))
        self.key_id = ""
        self.secret = ""
        self._plain_port = 0
        self._said: Final[list[bytes]] = []

    @property
    def asked(self) -> list[Seen]:
        """Requests that arrived over TLS, oldest first."""
        return self._upstream.requests

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run moto until the end of the block, with one user, whose key may do everything with S3, SQS and SNS."""
        environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_OPEN_ACTIONS)}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with program([sys.executable, "-I", "-c", _PROGRAM], says=str, env=environment, **pipes) as process:
            assert process.stdout is not None
            self._plain_port = int(process.stdout.readline())  # it ends, and so does this, if it cannot listen
            self._make_user()
            with self._upstream:
                yield

    def _make_user(self) -> None:
        iam = self._client("iam", "any", "any")
        iam.create_user(UserName="agent")
        policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": ["s3:*", "sqs:*", "sns:*"], "Resource": "*"}],
        }
        iam.put_user_policy(UserName="agent", PolicyName="all", PolicyDocument=json.dumps(policy))
        made = iam.create_access_key(UserName="agent")["AccessKey"]
        self.key_id, self.secret = made["AccessKeyId"], made["SecretAccessKey"]

    def client(self, service: str = "s3") -> Any:
        """Return a boto3 client with the real key, directly at moto: to prepare its data, and to check the result."""
        return self._client(service, self.key_id, self.secret)

    def bucket(self, name: str, *, keeps_versions: bool = False) -> str:
        """Create a bucket. Return its name."""
        client = self.client()
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        if keeps_versions:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def put(self, bucket: str, key: str, body: bytes, **options: Any) -> str:
        """Store an object. Return its etag."""
        return str(self.client().put_object(Bucket=bucket, Key=key, Body=body, **options)["ETag"])

    def get(self, bucket: str, key: str) -> bytes | None:
        """Return the content of an object; None if there is none."""
        client = self.client()
        try:
            body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        except client.exceptions.NoSuchKey:
            return None
        return body

    def says(self, *said: bytes) -> None:
        """Answer the next requests with these responses, in turn; moto does not see them."""
        self._said.extend(said)

    def _client(self, service: str, key_id: str, secret: str) -> Any:
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{self._plain_port}",
            aws_access_key_id=key_id,
            aws_secret_access_key=secret,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}),
        )

    def _answer(self, seen: Seen) -> bytes:
        self.gate.pass_through()
        if self._said:
            return self._said.pop(0)
        if "X-Amz-Signature=" in seen.target:
            return self._presigned(seen)
        return self._asked_of_moto(seen)

    def _asked_of_moto(self, seen: Seen) -> bytes:
        first, *fields = seen.head.decode("latin-1").split("\r\n")
        kept = [line for line in fields if line.partition(":")[0].lower() not in _FRAMING]
        head = "\r\n".join([first, *kept, f"Content-Length: {len(seen.body)}", "Connection: close", "", ""])
        with socket.create_connection(("127.0.0.1", self._plain_port), ANSWER_S) as sock:
            sock.sendall(head.encode("latin-1") + seen.body)
            with sock.makefile("rb") as said:
                whole = said.read()
        return _kept_open(whole, is_head=seen.method == "HEAD")

    def _presigned(self, seen: Seen) -> bytes:
        """Answer a GET that is signed in its query, if the signature is the one that botocore makes of it."""
        url = urllib.parse.urlsplit(seen.target)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        signature, expires = query.pop("X-Amz-Signature"), int(query.pop("X-Amz-Expires"))
        request = AWSRequest(seen.method, f"https://{seen.values('host')[0]}{url.path}", params={
            name: value for name, value in query.items() if not name.startswith("X-Amz-")
        })  # fmt: skip
        request.context["timestamp"] = query["X-Amz-Date"]
        auth = S3SigV4QueryAuth(Credentials(self.key_id, self.secret), "s3", REGION, expires=expires)
        auth._modify_request_before_signing(request)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        if auth.signature(text, request) != signature:
            return answer(b"<Error><Code>SignatureDoesNotMatch</Code></Error>", status="403 Forbidden")
        _, bucket, key = url.path.split("/", 2)
        return answer(self.get(bucket, urllib.parse.unquote(key)) or b"")


_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})


def _kept_open(whole: bytes, *, is_head: bool) -> bytes:
    """Reframe a response that ended with its connection, for a connection that stays open."""
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    left_out = (b"connection",) if is_head else (b"connection", b"content-length", b"transfer-encoding")
    kept = [line for line in fields if line.partition(b":")[0].lower() not in left_out]
    length = [] if is_head or first.split()[1] == b"204" else [f"Content-Length: {len(body)}".encode()]
    return b"\r\n".join([first, *kept, *length, b"", b""]) + body


def signed(
    method: str, url: str, headers: dict[str, str], body: bytes | None, *, key_id: str, secret: str
) -> dict[str, str]:
    """Return the header fields with a signature of botocore's, as egress makes one; for tests without egress."""
    request = AWSRequest(method, url, headers=headers, data=body or b"")
    S3SigV4Auth(Credentials(key_id, secret), "s3", REGION).add_auth(request)
    return dict(request.headers.items())
