"""The protocols, each in a separate module: how the supervisor logs in, and how a client library's own login is answered."""
