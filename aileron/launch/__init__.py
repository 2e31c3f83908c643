"""Starting a coding agent with its actions registered: one module for each agent, and nothing of the agent's left changed.

agent.py      what a launch is asked and what an agent's module answers: values, and the shape that all of them fill
claude.py codex.py opencode.py goose.py pi.py   one agent each, pure · pi_extension.js what pi loads to register a server
agents.py     which there are · programs.py where they are, and where our own server is
start.py      runs one · check.py asks our server as an agent would

Runs in commands. An agent is not trusted with more than any process of this user: what it is given is a session's token, in its
environment and never among its arguments, which every user of the machine can read. No file of the user's is written:
docs/adr/0021-launching-agents.md.
"""
