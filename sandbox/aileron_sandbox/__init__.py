"""A jail for one untrusted program: namespaces, an empty root, seccomp, Landlock, limits.

jail.py       the host side and only door: start a template, ask it for a child, own its pidfd, wait, kill, reap
begun.py      the template's process, before it knows what for
policy.py     what one jail may use, as a frozen value, checked when built
ending.py     how a child ended, as a value
unavailable.py  that this machine gives none, with the fix
support.py    what this kernel offers, tried as a whole, and how to mend what is missing
filters.py    the seccomp allow lists, compiled ahead of time
kernel.py     the only ctypes: numbers and structs with their man pages
runtime.py    which files a Python program needs to see
template/     the warm process a child is forked from
cell/         the jail of a whole development session: a project, an agent, its tools
frames/       how a jailed program and its host talk, as bytes

Knows nothing of who uses it. This module imports nothing: a jailed program imports the frames, and must not load the jail.
"""
