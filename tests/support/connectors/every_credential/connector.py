"""A connector for one request or WebSocket with the manifest's credential; it then waits with the response in memory."""

import kept_frames

from aileron_connector import hosts, http, op, run, websocket


@op
def ask(kind: str, method: str, path: str, word: str, type: str = "", body: str = ""):
    """Send the word as a header field, which the service reflects."""
    headers = [("X-Word", word)] + ([("Content-Type", type)] if type else [])
    with http.request(method, hosts()[0].url + path, headers, body.encode() or None, credential=kind) as answer:
        said = answer.read().decode()
        kept_frames.wait(word)
    return {"status": answer.status, "said": said, **kept_frames.passed()}


@op
def talk(kind: str, path: str, word: str):
    """Send the word, which the service echoes after a first message of its own."""
    with websocket.connect(f"wss://{hosts()[0].host}:{hosts()[0].port}{path}", credential=kind) as socket:
        said = [socket.recv()]
        socket.send(word)
        said.append(socket.recv())
        kept_frames.wait(word)
    return {"status": 101, "said": " ".join(said), **kept_frames.passed()}


if __name__ == "__main__":
    run()
