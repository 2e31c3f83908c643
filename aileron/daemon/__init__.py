"""The supervisor of one user: builds everything once, serves the HTTP API on two sockets.

supervise.py  builds everything, once          api.py  the routes: translate, ask, show
rendezvous.py lock, sockets, daemon.json        __main__.py  what `client.start` executes
runner.py     runs that outlive their callers   manage.py  what the operator routes do
notify.py     that a question waits: desktop.py, webhook.py, and what they may say (notices.py)
"""
