"""The agents' view of actions: tools of the Model Context Protocol.

`relay.py` is the process that an agent starts (`aileron-mcp`): bytes in, bytes out. `server.py` is the protocol itself, by the
official SDK, in a process of its own (`process.py`). Its requests to the daemon go over a channel for each agent, from
`asking.py` to `answering.py`, and there to the call itself (`calls.py`); `agent_port.py` is all that it can ask of the daemon's
rooms. Every call goes through the one door.
"""
