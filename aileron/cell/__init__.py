"""The person's side of a cell, for an agent that is started with `--jail`: its terminal, its connections to services
outside (doors), and the list of what it changed.

attend.py accompanies the cell · terminal.py, terminal_filter.py the person's terminal · relays.py, publish.py the doors ·
start.py, compare.py, changes.py what the agent changed · executes.py which of that can run code later · overlay.py, apply.py
changes that were stored apart · kept.py the records of a cell in Aileron's home

Runs in the command that starts the agent, which stays outside the cell until the agent ends, and in the commands that
show, apply or discard changes afterwards. All data from a cell is hostile: output to the terminal, requests at the
doors, and the names of the files that it leaves.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: the cell itself (aileron_sandbox.cell), what an agent needs to
see (aileron/launch), the servers behind the doors (the daemon).
"""
