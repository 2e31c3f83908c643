"""Registry: connectors as manifests, archives and pinned bytes. Local only; nothing here reaches a network.

manifest.py one manifest into values · connector_build.py a source directory into an artifact · release.py sources into signed
archives, each under its tag · tarball.py pack and unpack one · content.py the store, by hash · install.py an artifact
into the store

Runs in the daemon, and connector_build.py and release.py in commands. Trusts no artifact and no stored file: what is opened to
run was hashed on the very bytes that will run, and is hashed again once its files were touched. No code of an artifact runs here.
"""
