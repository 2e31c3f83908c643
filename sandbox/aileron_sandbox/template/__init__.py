"""The warm process that children are forked from: exec'ed once, single-threaded, without a secret, already in the jail's root.

__main__.py  prepare, then fork on request          confine.py   the steps of one child, in order
child.py     the life of a child, from its fork to its end
program.py   runs a Python program                  compiled.py  executes a compiled one; program_places.py where it is stored
attempts.py  answers calls that reach for a network, in a process of its own; lookups.py reports names in Python
landlocked.py  the mode without namespaces
template_messages.py  the messages between the host and the template
namespaces.py mounts.py landlock.py limits.py privileges.py descriptors.py   one mechanism each
"""
