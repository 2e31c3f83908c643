"""The person's side of a cell: the terminal, the doors and the list of changes of an agent that runs in one (`--jail`).

Runs in the command that starts the agent, which stays outside and does nothing else meanwhile. Everything that comes out of a
cell is hostile: what it writes to the terminal, what it asks for at its doors, the names of the files that it leaves.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: the cell itself (aileron_sandbox.cell), what an agent needs to see
(aileron/launch), who answers at the doors (the daemon).
"""
