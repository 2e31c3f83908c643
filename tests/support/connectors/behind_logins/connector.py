"""A connector that works behind logins: redis-py, dulwich and a few bytes of SFTP. For tests; the manifest is the test's."""

import os

from aileron_connector import hosts, op, run, tcp


def marker():
    """Return the text that a test searches for in memory: it exists only after this call, behind the login."""
    return "-".join(["searched", "for", "in", "jails"])


@op
def cache(protocol: int, placeholder: bool, waits: bool = False):
    """Send some commands by redis-py, with placeholder credentials or none. Return the results and the user of the session."""
    import redis

    host = hosts()[0]
    anyone = {"username": "anyone", "password": "any password"} if placeholder else {}
    with redis.Redis(host=host.host, port=host.port, protocol=protocol, **anyone) as client:
        client.set("blob", os.urandom(1000) * 1000)
        with client.pipeline() as pipe:
            together = pipe.incr("count").incr("count").get("count").execute()
        found = {
            "user": client.acl_whoami(),
            "size": client.strlen("blob"),
            "together": [int(reply) for reply in together],
        }
        said = client.echo(marker())
        if waits:
            client.blpop("go", 30)
        return {key: value.decode() if isinstance(value, bytes) else value for key, value in found.items()} | {
            "said": said.decode()
        }


@op
def ask(words: str):
    """Send one command, given as the bytes of the wire. Return the response."""
    host = hosts()[0]
    with tcp.connect(host.host, host.port, timeout_s=10) as stream:
        stream.sendall(words.encode())
        return stream.recv(65536).decode(errors="replace")


@op
def git(path: str):
    """Clone, commit, push and fetch by dulwich. Return the commit, the fetched head and the files."""
    import io

    os.environ |= {"HOME": "/tmp", "USER": "connector", "EMAIL": "connector@example.com"}
    from dulwich import porcelain

    host = hosts()[0]
    url = f"ssh://nobody:no-password@{host.host}:{host.port}{path}"
    mine = porcelain.clone(url, "/tmp/mine", errstream=io.BytesIO())
    mine.hooks.clear()  # there is nothing that could be executed
    with open("/tmp/mine/added", "wb") as file:
        file.write(b"from a jail\n" * 100_000)
    porcelain.add(mine, ["/tmp/mine/added"])
    who = b"a <a@example.com>"
    made = porcelain.commit(mine, message=marker().encode(), author=who, committer=who)
    porcelain.push(mine, url, b"HEAD:refs/heads/main", errstream=io.BytesIO())
    fetched = porcelain.fetch(mine, url, errstream=io.BytesIO())
    return {
        "made": made.decode(),
        "fetched": fetched.refs[b"refs/heads/main"].decode(),
        "files": sorted(os.listdir("/tmp/mine")),
    }


@op
def sftp():
    """Negotiate SFTP's version. Return the server's response."""
    host = hosts()[0]
    with tcp.connect(host.host, host.port, command="subsystem sftp", timeout_s=10) as stream:
        stream.sendall(b"\x00\x00\x00\x05\x01\x00\x00\x00\x03")
        return stream.recv(9)[4:].hex()


@op
def execute(command: str):
    """Execute a command and return all its output."""
    host = hosts()[0]
    with tcp.connect(host.host, host.port, command=command, timeout_s=10) as stream:
        said = marker()  # the command may have more to say later
        return stream.makefile("rb").read().decode().replace(said, "")


if __name__ == "__main__":
    run()
