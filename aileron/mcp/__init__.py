"""How agents see actions: as tools of the Model Context Protocol.

`relay.py` is the process an agent starts (`aileron-mcp`): bytes in, bytes out. `server.py` is the protocol itself, by the
official SDK, in a process of its own (`process.py`). What it asks of the daemon goes over a channel for each agent, from
`asking.py` to `answering.py`, and there to what a call does (`calls.py`); `agent_port.py` is all that may ask of the daemon's
rooms. Every call goes through the one door.
"""
