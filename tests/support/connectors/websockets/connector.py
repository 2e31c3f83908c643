"""WebSockets: by the SDK, by the library `websockets`, unmodified, and by frames that the connector writes itself."""

import time

from aileron_connector import hosts, loop, op, run, transports, websocket
from aileron_sandbox.frames import WebSocketMessage


def url_of(path: str) -> str:
    """Return the URL of a path of the only host."""
    host = hosts()[0]
    return f"{'ws' if host.plain else 'wss'}://{host.host}:{host.port}{path}"


def shown(message):
    """Return the message in a form that JSON can hold."""
    return message if isinstance(message, str) else {"binary": len(message)}


@op
def talk(path: str, messages: int = 1, credential: str = ""):
    """Send messages that the service echoes, by the SDK."""
    with websocket.connect(url_of(path), credential=credential or None, timeout_s=10) as socket:
        heard = []
        for number in range(messages):
            socket.send(f"message {number}")
            heard.append(shown(socket.recv()))
        socket.send(b"\xff" * 10)
        heard.append(shown(socket.recv()))
        return {"heard": heard, "subprotocol": socket.subprotocol}


@op
def listen(path: str, credential: str = ""):
    """Return everything that arrives until the service closes."""
    try:
        with websocket.connect(url_of(path), credential=credential or None) as socket:
            return {"heard": [shown(message) for message in socket], "code": socket.closed.code}
    except websocket.HandshakeRefused as error:
        return {"status": error.status, "body": error.body.decode()}
    except websocket.Closed as error:
        return {"code": error.code, "reason": error.reason}


@op
def first(path: str):
    """Return the service's response when the key goes in the first message, which the daemon sends."""
    with websocket.connect(url_of(path), credential="api_key") as socket:
        return {"heard": socket.recv()}


@op
def large(path: str):
    """Receive and send messages too large for a frame of the jail."""
    with websocket.connect(url_of(path)) as socket:
        binary, text = socket.recv(), socket.recv()
        socket.send(text)
        return {"binary": len(binary), "text": len(text), "same": socket.recv() == text}


@op
def wait(path: str, seconds: int):
    """Wait for a message that does not arrive, then send one."""
    with websocket.connect(url_of(path)) as socket:
        try:
            socket.recv(timeout_s=seconds)
        except TimeoutError:
            socket.send("still there")
            return {"heard": socket.recv()}


@op
def compute(path: str):
    """Read nothing for half a second, then 2,000 messages. Return the last one."""
    with websocket.connect(url_of(path)) as socket:
        time.sleep(0.5)
        return {"last": [socket.recv() for _ in range(2000)][-1]}


@op
def leave(path: str):
    """Send a message, and return without closing the socket."""
    socket = websocket.connect(url_of(path))
    socket.send("good bye")
    return "gone"


@op
def library(path: str, key: str = "header", subprotocol: str = ""):
    """Talk by `websockets`, which believes that it has the key."""
    from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
    from websockets.sync.client import connect

    key_there = transports.placeholder("api_key")
    headers = {"Authorization": key_there} if key == "header" else {}
    query = f"?key={key_there}" if key == "query" else ""
    offered = [subprotocol] if subprotocol else None
    try:
        with connect(url_of(path) + query, additional_headers=headers, subprotocols=offered, max_size=None) as client:
            client.send("hello")
            client.send(b"\x00\x01")
            heard = [shown(client.recv(timeout=10)), shown(client.recv())]
            client.send(["in ", "parts"])
            heard += [client.recv(decode=True)]
            client.ping().wait(1)
            status = client.response.status_code
        return {"heard": heard, "status": status, "subprotocol": client.subprotocol, "code": client.close_code}
    except InvalidStatus as error:
        return {"status": error.response.status_code, "body": error.response.body.decode()}
    except ConnectionClosedOK as error:
        return {"ok": error.rcvd.code}
    except ConnectionClosedError as error:
        return {"error": error.rcvd.code, "reason": error.rcvd.reason}


@op
def library_iterates(path: str):
    """Iterate over the connection, which ends when the service closes."""
    from websockets.sync.client import connect

    with connect(url_of(path)) as client:
        return {"heard": [shown(message) for message in client], "code": client.close_code}


@op
def library_async(path: str, messages: int = 1, subprotocol: str = ""):
    """Talk by the library's asynchronous client, on several connections at once."""
    import asyncio

    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    headers = {"Authorization": transports.placeholder("api_key")}
    offered = [subprotocol] if subprotocol else None

    async def one(number: int):
        url = url_of(f"{path}{number}")
        async with connect(url, additional_headers=headers, subprotocols=offered, max_size=None) as client:
            heard = []
            for said in (f"from {number}", b"\x00" * number, "x" * (3 << 20)):
                await client.send(said)
                answered = await client.recv()
                heard.append(answered == said)
            await client.send(part for part in ("in ", "parts"))
            heard.append(await client.recv())
            await (await client.ping())
            await client.close(4000, f"enough of {number}")
        return [*heard, client.close_code, client.subprotocol]

    async def all_of_them():
        return await asyncio.gather(*(one(number) for number in range(messages)))

    try:
        return {"heard": asyncio.run(all_of_them())}
    except InvalidStatus as error:
        return {"status": error.response.status_code, "body": error.response.body.decode()}
    except ConnectionClosed as error:
        return {"code": error.rcvd.code, "reason": error.rcvd.reason}


@op
def library_async_breaks(path: str):
    """Write bytes that are no frame below the library's asynchronous client, and wait for a message."""
    import asyncio

    from websockets.asyncio.client import connect

    async def one():
        async with connect(url_of(path)) as client:
            client.transport.write(b"\xff" * 6)
            await client.recv()

    asyncio.run(one())


@op
def out_of_turn(path: str):
    """Send a message before the socket is open."""
    conversation = loop.current()
    request_id = conversation.open_websocket(url_of(path), [], [], None)
    conversation.send(WebSocketMessage(id=request_id), b"x")


@op
def elsewhere(url: str):
    """Open a WebSocket to any URL."""
    websocket.connect(url)


if __name__ == "__main__":
    run()
