"""The agents' view of actions, as tools of the Model Context Protocol.

`relay.py` is the process that an agent starts (`aileron-mcp`); it forwards lines in both directions. `server.py` is the
protocol's server, based on the official SDK, in a process of its own (`process.py`). The server's requests to the daemon go
over a channel for each agent, from `asking.py` to `answering.py`, and there to the call itself (`calls.py`). `agent_port.py`
defines all requests that a call can make of the daemon's rooms. Every call of an action goes through `AgentPort.run`, also one
that the gateway makes for a model (daemon/http/injected_tools.py).
"""
