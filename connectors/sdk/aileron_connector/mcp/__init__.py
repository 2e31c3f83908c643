"""Tools of a remote MCP server: a connector of one line, and the tools as they were when it was made.

service.py the tools at work, `run` · document.py the packed tools as types · comparing.py what a server has changed since ·
client.py the conversation with a server, in both of the protocol's ways · messages.py what goes over it · sse.py answers that
come as a stream · headers.py what a request says outside its body · results.py the output of a call

    from aileron_connector import mcp

    if __name__ == "__main__":
        mcp.run("service")          # the folder with `__init__.py` and `tools.json`

`declare` makes the operations known without serving, for tests with `aileron_connector.testing.call`. Reference:
docs/reference/packed-mcp-tools.md. Runs in the jail. A connector that does not import this does not pay for it.
"""

from aileron_connector.mcp.service import declare, run

__all__ = ["declare", "run"]
