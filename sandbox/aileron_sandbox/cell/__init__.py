"""A cell: the jail of a whole development session. It shares the mechanisms of a connector's jail, but not the lists.

policy.py   what one cell sees, may write and may use, as an immutable value, checked when built

A connector's jail is empty and lasts for one step; a cell has a project, an agent and its tools, and lasts for hours. Nothing
here gives a connector more. The package does not depend on its users.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what an agent needs to see (aileron/launch), the programs that answer a
cell (aileron/cell).
"""
