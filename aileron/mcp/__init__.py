"""The agents' view of actions, as tools of the Model Context Protocol.

`relay.py` is the process that an agent starts (`aileron-mcp`); it forwards lines in both directions. `server.py` is the
MCP server, based on the official SDK, in a separate process (`process.py`), which we call the MCP process. For each
agent the server has a channel to the daemon, from `asking.py` to `answering.py`, where `calls.py` executes tool calls.
`agent_port.py` defines all requests that a call can make of the rest of the daemon. Every call of an action goes
through `AgentPort.run`, also one that the gateway makes for a model (daemon/http/injected_tools.py).
"""
