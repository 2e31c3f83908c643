"""Every library, unmodified, on a logged-in stream, with a placeholder password. The result has every frame that passed.

It waits while its stream is open, until the test has read its memory and removes the file /tmp/open.
"""

import os

import kept_frames

from aileron_connector import hosts, op, run

PLACEHOLDER = "a-password-that-is-none"


def at(protocol):
    """Return the host and port of a protocol."""
    return next((host.host, host.port) for host in hosts() if host.login == protocol)


def wait(word):
    """Wait with the stream open."""
    print("logged in for", word, flush=True)
    kept_frames.wait(word)


def passed(said):
    """Return the result: the service's response, and the frames up to here."""
    return {"said": str(said), **kept_frames.passed()}


@op
def smtp(word: str):
    """Send a message."""
    import smtplib

    with smtplib.SMTP_SSL(*at("smtp"), timeout=10) as client:
        client.login("anyone", PLACEHOLDER)
        client.sendmail("mira@example.com", ["noor@example.com"], f"Subject: {word}\r\n\r\nhello\r\n")
        client.mail("mira@example.com")
        said = client.rcpt(f"{word}@example.com")  # whom the server does not know, and says so
        wait(word)
        client.rset()
        return passed(said)


@op
def imap(word: str):
    """Store a message and read it back."""
    import imaplib

    with imaplib.IMAP4_SSL(*at("imap"), timeout=10) as client:
        client.login("anyone", PLACEHOLDER)
        client.append("INBOX", None, None, f"Subject: {word}\r\n\r\nhello\r\n".encode())
        client.select()
        numbers = client.search(None, "SUBJECT", word)[1][0].split()
        said = client.fetch(numbers[-1].decode(), "(RFC822)")[1]
        wait(word)
        client.noop()
        return passed(said)


@op
def pop3(word: str):
    """Read the last message."""
    import poplib

    client = poplib.POP3_SSL(*at("pop3"), timeout=10)
    client.user(word)
    client.pass_(PLACEHOLDER)
    said = client.retr(client.stat()[0])
    wait(word)
    client.noop()
    client.quit()
    return passed(said)


@op
def postgres(word: str):
    """Have PostgreSQL repeat a word."""
    import pg8000.dbapi

    host, port = at("postgres")
    connection = pg8000.dbapi.connect(user="anyone", password=PLACEHOLDER, host=host, port=port, timeout=20)
    return sql(connection, word)


@op
def mysql(word: str):
    """Have the MySQL server repeat a word."""
    import pymysql

    host, port = at("mysql")
    connection = pymysql.connect(user="anyone", password=PLACEHOLDER, host=host, port=port, connect_timeout=20)
    return sql(connection, word)


def sql(connection, word):
    """Have the server repeat a word, by either driver."""
    cursor = connection.cursor()
    cursor.execute("SELECT %s", (word,))
    said = cursor.fetchall()
    wait(word)
    cursor.execute("SELECT 1")
    connection.close()
    return passed(said)


@op
def redis(word: str, aborts: bool = False):
    """Have Redis repeat a word. `aborts`: then end by SIGABRT, as after a fault in a library."""
    import redis

    host, port = at("redis")
    with redis.Redis(host=host, port=port, username="anyone", password=PLACEHOLDER) as client:
        said = client.echo(word)
        wait(word)
        if aborts:
            os.abort()
        client.ping()
        return passed(said)


@op
def ssh(path: str, word: str):
    """Push a commit, and wait while the server lists the repository's refs."""
    import io

    os.environ |= {"HOME": "/tmp", "USER": "connector", "EMAIL": "connector@example.com"}
    from dulwich import porcelain
    from dulwich.client import get_transport_and_path

    host = hosts()[0]
    url = f"ssh://anyone:{PLACEHOLDER}@{host.host}:{host.port}{path}"
    mine = porcelain.clone(url, "/tmp/mine", errstream=io.BytesIO())
    mine.hooks.clear()  # there is nothing that could be executed
    who = b"a <a@example.com>"
    porcelain.commit(mine, message=b"changed", author=who, committer=who)
    porcelain.push(mine, url, f"HEAD:refs/heads/{word}".encode(), errstream=io.BytesIO())

    def wanted(refs, depth=None):
        wait(word)
        return list(refs.values())

    client, where = get_transport_and_path(url)
    return passed(client.fetch(where, mine, determine_wants=wanted).refs)


if __name__ == "__main__":
    run()
