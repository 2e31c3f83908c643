"""The servers of a mail address: where its mail and its calendars are, by what its domain says of itself.

address.py the address · records.py DNS · https.py HTTPS · autoconfig.py a file of mail servers · offers.py a server that was
found · mail.py, calendars.py who is asked, in which order

Runs in a command. Trusts no name server, no web server and nothing that either says: a found server is an offer, and the person
decides about each. Sends no credential.

Source: RFC 6186, RFC 6764, RFC 8314, docs/adr/0080-servers-by-address.md. Not here: asking the person (cli/add_servers.py),
connecting to a found server (the daemon's egress, by its own rules).
"""
