"""The command line: translates what a person types into requests and shows the answers. It decides nothing.

run.py        the most used command · arguments.py KEY=VALUE and --args, converted to the action's types · duration.py `5m`
app.py        every other command, listed in table.py · commands/ a module for each noun, with declarations (declared.py)
parsing.py, help_page.py, typer_app.py   plain words, help pages, and other words with completion; all by the declarations
supervisor.py what commands ask of the daemon · problem.py what, why, fix and exit code, for people and programs alike
output.py     tables, facts, JSON · prompts.py what a person types, and whether they can be asked

Runs in short-lived processes of the user. The daemon is trusted; text of agents, upstreams, connectors and files is not, even
when the daemon passes it on. Data goes to standard output, everything else to standard error; nothing prompts without a terminal.

This module imports nothing: `aileron run` would pay for every import.
"""
