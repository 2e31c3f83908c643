"""A cell: the jail of a whole development session, beside the connector's, of which it shares the mechanisms and not the lists.

policy.py   what one cell sees, may write and may use, as a frozen value, checked when built

A connector's jail is empty and lasts for one step; a cell has a project, an agent and its tools, and lasts for hours. Nothing
here widens what a connector gets. Knows nothing of who uses it.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what an agent needs to see (aileron/launch), who answers (aileron/cell).
"""
