"""One-line connectors for a remote MCP server. Their operations are the server's tools, as described when the connector
was made.

service.py `run`, and calls of the tools · document.py the packed tools as types · comparing.py changes to a server's tools ·
client.py the MCP client, for both variants of the protocol · rpc_messages.py its messages · sse.py streamed
answers · headers.py contents of a request that are repeated in its headers · results.py the output of a call

    from aileron_connector import mcp

    if __name__ == "__main__":
        mcp.run("service")          # the folder with `__init__.py` and `tools.json`

`declare` registers the operations without serving, for tests with `aileron_connector.testing.call`. Reference:
docs/reference/packed-mcp-tools.md. Runs in the jail. It costs nothing in a connector that does not import it.
"""

from aileron_connector.mcp.service import declare, run

__all__ = ["declare", "run"]
