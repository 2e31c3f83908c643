"""Streams: mail by smtplib and imaplib, unmodified, and plain bytes."""

import os

import msgspec

from aileron_connector import hosts, op, run, tcp


@op
def send_mail(subject: str, lines: int = 1):
    """Send a mail by smtplib, which does not know that it is in a jail."""
    import smtplib
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "agent@example.com", "mira@example.com", subject
    message.set_content("\n".join(f"line {number}" for number in range(lines)))
    host = hosts()[0]
    kind = smtplib.SMTP if host.plain else smtplib.SMTP_SSL
    with kind(host.host, host.port, timeout=10) as client:
        refused = client.send_message(message)
        return {"refused": refused, "extensions": sorted(client.esmtp_features)}


@op
def start_tls():
    """Try STARTTLS, which must fail."""
    import smtplib

    host = hosts()[0]
    with smtplib.SMTP(host.host, host.port, timeout=10) as client:
        client.starttls()


@op
def count_mail():
    """Return the number of messages, by imaplib."""
    import imaplib

    host = hosts()[0]
    with imaplib.IMAP4_SSL(host.host, host.port, timeout=10) as client:
        _, data = client.select("INBOX")
        return int(data[0])


@op
def talk(text: str = "hello", half: bool = False, tls: bool = True):
    """Send text, close the sending half if `half`, and read to the end."""
    host = hosts()[0]
    with tcp.connect(host.host, host.port, tls=tls, timeout_s=10) as stream:
        stream.sendall(text.encode())
        if half:
            stream.shutdown(1)
        return stream.makefile("rb").read().decode()


@op
def connect(host: str, port: int, tls: bool = True):
    """Connect to any host and port."""
    with tcp.connect(host, port, tls=tls) as stream:
        return repr(stream)


@op
def survive(host: str, port: int):
    """Read until the stream breaks. Return the name of Python's own error."""
    try:
        with tcp.connect(host, port, timeout_s=10) as stream:
            while stream.recv(65536):
                pass
    except ConnectionError as error:
        return type(error).__name__
    return "ended"


@op
def say_and_go(kilobytes: int):
    """Send, and return without closing the stream."""
    host = hosts()[0]
    stream = tcp.connect(host.host, host.port)
    stream.sendall(bytes(kilobytes << 10))
    return "gone"


@op
def frames_of_its_own(*, early: bool = False):
    """Request a stream past the SDK: with a credential, or with bytes before it is open."""
    host = hosts()[0]
    asked = {"type": "tcp_open", "id": 1, "host": host.host, "port": host.port, "tls": True}
    frames = (
        [(asked, b""), ({"type": "chunk", "id": 1}, b"early")] if early else [({**asked, "credential": "basic"}, b"")]
    )
    os.write(4, b"".join(map(_frame, frames)))  # at once: whether the stream is open in between is not left to chance
    while os.read(3, 4096):
        pass


def _frame(said):
    """Return one frame as bytes of the wire: two lengths, header, body."""
    message, body = said
    header = msgspec.msgpack.encode(message)
    return len(header).to_bytes(4, "big") + len(body).to_bytes(4, "big") + header + body


@op
def many(count: int):
    """Open streams side by side, each with its own words."""
    host = hosts()[0]
    streams = [tcp.connect(host.host, host.port) for _ in range(count)]
    for number, stream in enumerate(streams):
        stream.sendall(f"{number}\n".encode())
    return [stream.makefile("r").readline().strip() for stream in reversed(streams)]


@op
def pour(megabytes: int):
    """Send a lot, and read as much back."""
    host, size = hosts()[0], megabytes << 20
    with tcp.connect(host.host, host.port, timeout_s=10) as stream:
        stream.sendall(bytes(size))
        got = 0
        while got < size:
            got += len(stream.recv(1 << 20))
        return got


if __name__ == "__main__":
    run()
