"""A cell: the jail of a whole development session. It has the mechanisms of a connector's jail, but allows more files
and system calls.

policy.py   what one cell sees, may write and may use, as an immutable value, checked when built
door.py     the host side, and the only way to use a cell · stub.py the process that becomes one, before its policy is known
prepare.py  leaves the host's namespaces · init.py the first process inside · mounts.py, landlock.py one mechanism each
closed.py   files that other users cannot read · memory.py, held.py, shared.py the memory limit where there are no control groups
cell_messages.py  the messages between host and cell · support.py whether this machine can run a cell

A connector's jail is empty and lasts for one step; a cell has a project, an agent and its tools, and lasts for hours.
Nothing here gives a connector more rights. The package imports nothing from the packages that use it.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what an agent needs to see (aileron/launch), the programs
outside that serve a cell (aileron/cell).
"""
