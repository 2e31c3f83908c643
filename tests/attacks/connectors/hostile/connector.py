"""A connector without the SDK that does what its argument `source` says: arbitrary code, as any connector is.

In scope: `invoke` (the header that came), `framed(header, body)`, `send(bytes)`, `receive()`, `request(id, url)`, `stream(id)`,
`websocket(id, path)`, `said(id, data)`, `result(output)`, `stay()`.
"""

import os
import struct
import time

import msgspec


def read_exactly(count):
    """So many bytes of the frames to the jail."""
    data = b""
    while len(data) < count:
        piece = os.read(3, count - len(data))
        if not piece:
            os._exit(9)
        data += piece
    return data


def receive():
    """The next frame from the host: header and body."""
    header_bytes, body_bytes = struct.unpack(">II", read_exactly(8))
    return msgspec.msgpack.decode(read_exactly(header_bytes)), read_exactly(body_bytes)


def framed(header, body=b"", header_bytes=None, body_bytes=None):
    """A frame of any header, with lengths that are true unless said otherwise."""
    data = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    lengths = len(data) if header_bytes is None else header_bytes, len(body) if body_bytes is None else body_bytes
    return struct.pack(">II", *lengths) + data + body


def send(data):
    """Write all of it to the host."""
    view = memoryview(data)
    while view:
        view = view[os.write(4, view) :]


def result(output=None):
    """The last word of an honest connector."""
    send(framed({"type": "result", "output": output}))


def request(number, url=None, body="none"):
    """A request frame, to the first granted host unless said otherwise."""
    if url is None:
        there = invoke["hosts"][0]
        url = f"{'http' if there['plain'] else 'https'}://{there['host']}:{there['port']}/"
    return framed({"type": "http", "id": number, "method": "GET", "url": url, "headers": [], "body": body})


def stream(number):
    """A frame that asks for a stream of bytes to the first granted host."""
    there = invoke["hosts"][0]
    return framed({"type": "tcp_open", "id": number, "host": there["host"], "port": there["port"], "tls": False})


def websocket(number, path="", **fields):
    """A frame that asks for a WebSocket at the first granted host, with these fields of its own."""
    there = invoke["hosts"][0]
    url = f"ws://{there['host']}:{there['port']}{path}"
    return framed({"type": "websocket_open", "id": number, "url": url, "headers": [], **fields})


def said(number, data, text=True, more=False):
    """A message on a WebSocket, or a part of one."""
    return framed({"type": "websocket_message", "id": number, "text": text, "more": more}, data)


def stay():
    """Do not leave: whoever wants this to end must end it."""
    time.sleep(60)


if __name__ == "__main__":
    invoke, _ = receive()
    exec(invoke["args"]["source"])
