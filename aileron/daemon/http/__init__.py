"""The callers of the daemon, and the responses that they get.

ports.py listening sockets over TCP · listeners.py the applications behind them · ingress.py exchanges that the process facing
TCP passes on · peer.py the process at the other end · sessions.py agents at work · api/ the routes · status.py, record.py the
daemon's state and the record · responses.py values as JSON responses · agents.py and mcp.py the services for agents, over the
Model Context Protocol, mcp_process.py its process · run_door.py where every run begins · pages.py and page.py the page for
browsers · gateway_keys.py keys for models' APIs · injected_tools.py actions for the gateway · cells.py and tunnels.py the sockets
of cells · families.py what a session started · build_apps.py builds all
"""
