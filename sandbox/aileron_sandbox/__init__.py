"""A jail for one untrusted program: namespaces, an empty root, seccomp, Landlock, limits.

jail.py       the host side and only door: start a template, ask it for a child, own its pidfd, wait, kill, reap
begun.py      the template's process, before it knows its task
policy.py     what one jail may use, as a frozen value, checked when built
ending.py     the ways in which a child ends, as values
unavailable.py  the error of a machine that gives no jail, with the fix
support.py    what this kernel offers, tried as a whole, and how to fix what is missing
filters.py    the seccomp allow lists, compiled ahead of time
kernel.py     the only ctypes: numbers and structs with their man pages
runtime.py    which files a Python program needs to see
template/     the warm process a child is forked from
cell/         the jail of a whole development session: a project, an agent, its tools
frames/       the protocol between a jailed program and its host, as bytes

The package does not depend on its users. This module imports nothing: a jailed program imports the frames, and must not load
the jail.
"""
