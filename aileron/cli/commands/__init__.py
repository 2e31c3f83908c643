"""A module for each noun of the command line: it asks the daemon and shows the answer. app.py says which there are."""
