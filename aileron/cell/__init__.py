"""The person's side of a cell: the terminal, the doors and the list of changes for an agent that runs in a cell (`--jail`).

Runs in the command that starts the agent, which stays outside and does nothing else meanwhile. All data from a cell
is hostile: output to the terminal, requests at the doors, and the names of the files that it leaves.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: the cell itself (aileron_sandbox.cell), what an agent needs to
see (aileron/launch), the servers behind the doors (the daemon).
"""
