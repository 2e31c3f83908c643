"""Tests of a connector by its author: its operations run in a real jail, and get their responses from a file or from a server
on this machine.

cases.py the parser of a file of cases (pure) · talk.py a case's script for a stream or WebSocket (pure) · stub.py the responses
of a case, in place of egress · fake_credentials.py · bench.py the jail, and the verdict on each run

Runs in `aileron connector test`, on the author's own sources, without a daemon, a vault or a ledger. Of the home, only the
settings are read, for the `egress.ca_file` of an `--upstream` with TLS. No other data of the user is within reach: with cases,
no request leaves the machine; `--upstream` is a server on loopback and gets a made-up credential. So this is no way around the
spine (runs/spine.py); see docs/adr/0027-author-tools.md. Importing bench.py loads the HTTP client.
"""
