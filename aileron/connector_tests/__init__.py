"""An author's trials. They run operations in the real jail, against answers from a file or from a server on this machine.

cases.py the file of cases, as values (pure) · talk.py the lines of a stream or WebSocket in it (pure) · stub.py the answers, in
place of egress · fake_credentials.py · bench.py the jail, one run, the verdict

Runs in `aileron connector test`, on the author's own sources: no daemon, no vault, no ledger, and of the home only the settings,
for the `egress.ca_file` of an `--upstream` with TLS. No other data of the user can be reached from here: with cases no request
leaves the machine, and `--upstream` is a server on loopback that gets a made-up credential. So this is no second path around the
spine (runs/spine.py); see docs/adr/0027-author-tools.md. Importing bench.py loads the HTTP client.
"""
