"""A module for each noun of the command line.

Each sends requests to the daemon and shows the responses. app.py lists the modules.
"""
