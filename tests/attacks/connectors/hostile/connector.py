"""Connector without the SDK that does what its argument `source` says: arbitrary code, as any connector is.

In scope: `invoke` (the header that came), `framed(header, body)`, `send(bytes)`, `receive()`, `request(id, url)`, `stream(id)`,
`websocket(id, path)`, `said(id, data)`, `result(output)`, `stay()`.
"""

import os
import struct
import time

import msgspec


def read_exactly(count):
    """Read exactly `count` bytes of the frames to the jail."""
    data = b""
    while len(data) < count:
        piece = os.read(3, count - len(data))
        if not piece:
            os._exit(9)
        data += piece
    return data


def receive():
    """Return the next frame from the host: header and body."""
    header_bytes, body_bytes = struct.unpack(">II", read_exactly(8))
    return msgspec.msgpack.decode(read_exactly(header_bytes)), read_exactly(body_bytes)


def framed(header, body=b"", header_bytes=None, body_bytes=None):
    """Return a frame with any header; its lengths are true unless they are given."""
    data = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    lengths = len(data) if header_bytes is None else header_bytes, len(body) if body_bytes is None else body_bytes
    return struct.pack(">II", *lengths) + data + body


def send(data):
    """Write all of the data to the host."""
    view = memoryview(data)
    while view:
        view = view[os.write(4, view) :]


def result(output=None):
    """Send the result, the last frame of an honest connector."""
    send(framed({"type": "result", "output": output}))


def request(number, url=None, body="none"):
    """Return a request frame, to the first granted host unless a URL is given."""
    if url is None:
        there = invoke["hosts"][0]
        url = f"{'http' if there['plain'] else 'https'}://{there['host']}:{there['port']}/"
    return framed({"type": "http", "id": number, "method": "GET", "url": url, "headers": [], "body": body})


def stream(number):
    """Return a frame that asks for a stream of bytes to the first granted host."""
    there = invoke["hosts"][0]
    return framed({"type": "tcp_open", "id": number, "host": there["host"], "port": there["port"], "tls": False})


def websocket(number, path="", **fields):
    """Return a frame that asks for a WebSocket at the first granted host, with these fields added."""
    there = invoke["hosts"][0]
    url = f"ws://{there['host']}:{there['port']}{path}"
    return framed({"type": "websocket_open", "id": number, "url": url, "headers": [], **fields})


def said(number, data, text=True, more=False):
    """Return a message on a WebSocket, or a part of one."""
    return framed({"type": "websocket_message", "id": number, "text": text, "more": more}, data)


def stay():
    """Stay for 60 s: the daemon must end the connector before that."""
    time.sleep(60)


if __name__ == "__main__":
    invoke, _ = receive()
    exec(invoke["args"]["source"])
