"""A jail for one untrusted program: namespaces, an empty root, seccomp, Landlock, limits.

jail.py       the host side, and the only way in: start a template, ask it for a child, own its pidfd, wait, kill, reap
begun.py      a template process that is started before its preparation is known
policy.py     what one jail may use, as an immutable value, checked when built
ending.py     the values that say how a child ended
unavailable.py  the error for a machine that cannot run a jail, with the fix
support.py    the layers that this kernel offers, tested in one trial jail, and the fix for what is missing
filters.py    the seccomp allow lists, compiled ahead of time
kernel.py     system calls by ctypes: numbers and structs with their man pages
libseccomp.py  pyseccomp, imported without a search for its libraries; the only other module that uses ctypes
runtime.py    which files a Python program needs to see
elf.py        which files a compiled program needs to see
cgroups.py    one control group for each child · watch.py measures a child's processes where there are no control groups
template/     the warm process a child is forked from
cell/         the jail of a whole development session: a project, an agent, its tools
frames/       the protocol between a jailed program and its host, encoded as bytes

The package imports nothing from the packages that use it. This module imports nothing at all: a jailed program imports
frames/, and must not load the jail with it.
"""
