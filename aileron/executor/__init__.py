"""The executor: it runs an approved plan to its outcome, with a jail of its own for each try of a step.

execute.py  the plan: steps, deadlines, retries          conversation.py  one step: frames with one jailed connector
jails.py    the template and its children, for an event loop   channel.py  frames over a child's two pipes
broker.py   each request of a connector, through egress   endings.py  how a child ended, as a failure (pure)
retry.py    the schedule of retries (pure)            spares.py    jails in which a connector waits for its next run
programs.py a connector's verified bytes              interpolation.py  results of steps in later arguments

The executor accepts only an ApprovedPlan, holds no secret, and records each try before the jail is told anything.
"""
