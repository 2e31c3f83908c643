"""The services that come with Aileron: their connectors and actions, and how a person connects each.

service.py what a service says of itself · preparing.py a service for one account, ready to be installed

An installation has the files of the services in its package. A checkout has them in `connectors/`. They are ours, and as trusted
as this code. The connectors made from them are not: they run in a jail like any other.

Source: docs/how-to/add-a-service.md, docs/adr/0079-services-come-with-aileron.md. Not here: installing (daemon/packages), the
dialogue (cli/commands/add.py).
"""
