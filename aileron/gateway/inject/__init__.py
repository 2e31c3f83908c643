"""Actions as tools in the requests of agents without MCP: `aileron launch AGENT --inject` (docs/adr/0064-injected-tools.md).

document.py   a request's JSON with the place of each value, and splices of it: what is not ours stays byte for byte
events.py     server-sent events, cut out of a stream as they were
wire.py       what the three APIs have in common: values, names, and the interface of each module below
messages.py chat.py responses.py   one API each, pure: the request, its next rounds, and the response that an agent sees
memory.py     rounds that an agent does not know of, for its next requests
exchange.py   one request of an agent with all of its rounds: the only module that waits for anything

Runs in the daemon, on the bodies of sessions that began so and of no others. Trusts neither the agent nor the model: what a model
calls goes through the door of the session that asked (the Protocol `Tools`, passed by daemon), and nothing is decided here.
"""
