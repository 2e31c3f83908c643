"""The start of a coding agent with its actions registered: one module for each agent, and no change to the agent's files.

agent.py      the request for a launch and the answer of an agent's module, as values; the type that all agents fill
claude.py codex.py opencode.py goose.py pi.py   one agent each, pure · pi_extension.js the extension that registers our server
agents.py     the list of agents · programs.py the paths of their programs, and of our own server
start.py      runs an agent · check.py queries our server as an agent would

Runs in commands. An agent is not trusted with more than any process of this user: it gets a session's token, in its environment
and never among its arguments, which every user of the machine can read. No file of the user's is written:
docs/adr/0021-launching-agents.md.
"""
