"""Actions as tools in the requests of agents without MCP: `aileron launch AGENT --inject` (docs/adr/0064-injected-tools.md).

document.py   a request's JSON with the position of each value, and edits that keep all other text byte for byte
events.py     server-sent events, parsed from a stream with their original bytes
wire.py       what the three APIs have in common: values, names, and the interface of each module below
anthropic_messages.py chat.py responses.py   one API each, pure: the request, its next rounds, and the response for the agent
memory.py     rounds that are hidden from an agent, to be inserted into its next requests
exchange.py   one request of an agent with all of its rounds (requests to the provider)
rounds.py     adapts the gateway's two sides for exchange.py; only these two modules do I/O

Runs in the daemon, and only on the bodies of sessions that were started with `--inject`. Trusts neither the agent nor the
model: a model's tool calls are made as requests of the agent's session (by the Protocol `Tools`, which the daemon implements),
and no permission is decided here.
"""
