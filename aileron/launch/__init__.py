"""The start of a coding agent with its actions registered: one module for each agent. A launch changes none of the
agent's files.

agent.py      the values of a launch: the request, the setup that an agent's module returns, and the type `Agent`
claude.py codex.py opencode.py goose.py pi.py   one agent each, pure · pi_extension.js registers Aileron's server in pi
agents.py     the list of agents · programs.py the paths of their programs, and of Aileron's server
start.py      runs an agent · check.py queries Aileron's server like an agent
in_cell.py    runs an agent in a cell · cell_spec.py what that cell shows, with the modules that it imports

Runs in commands. An agent is trusted no more than any process of this user. It gets a session's token in its
environment, and never in its arguments, which every user of the machine can read. In a cell it gets no token. No file
of the user is written.
docs/adr/0021-launching-agents.md.
"""
