"""The modules of the command line: one for each noun, or several.

Most send requests to the daemon and show the responses. Some need no daemon, such as those for authors, `audit verify` and
`demo-server`.
table.py lists the commands with their modules.
"""
