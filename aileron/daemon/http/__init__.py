"""Who asks, and what they are told.

ports.py sockets over TCP that listen · listeners.py what is answered there · ingress.py exchanges that the process facing TCP
passes on · peer.py who holds the other end · sessions.py agents at work · api/ the routes · status.py, record.py what runs and
what ran · responses.py values of ours as JSON · agents.py and mcp.py the same for agents, over the Model Context Protocol ·
pages.py and page.py what a browser gets · gateway_keys.py those of models' APIs · build.py all of it, once
"""
