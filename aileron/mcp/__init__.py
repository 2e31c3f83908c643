"""How agents see actions: as tools of the Model Context Protocol.

`relay.py` is the process an agent starts (`aileron-mcp`): bytes in, bytes out. `server.py` is the protocol itself, by the
official SDK, in the daemon; `agent_port.py` is all it may ask of the daemon. Every call goes through the one door.
"""
