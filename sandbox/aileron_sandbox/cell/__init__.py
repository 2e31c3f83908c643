"""A cell: the jail of a whole development session. It shares the mechanisms of a connector's jail, but not the lists.

policy.py   what one cell sees, may write and may use, as an immutable value, checked when built
door.py     the host side, and the only way to use a cell · stub.py the process that becomes one, before its policy is known
prepare.py  leaves the host's namespaces · init.py the first process inside · mounts.py, landlock.py one mechanism each
closed.py   files that other users cannot read · memory.py, held.py, shared.py the memory limit where no control group has it
cell_messages.py  the messages between host and cell · support.py whether this machine can run a cell

A connector's jail is empty and lasts for one step; a cell has a project, an agent and its tools, and lasts for hours. Nothing
here gives a connector more. The package does not depend on its users.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what an agent needs to see (aileron/launch), the programs that answer a
cell (aileron/cell).
"""
