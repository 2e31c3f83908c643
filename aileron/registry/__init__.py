"""Registry: connectors as manifests, archives and pinned bytes. Nothing here opens a connection: forges/ requests what it needs
through an interface that the daemon passes in.

manifest.py one manifest into values · connector_build.py a source directory into an artifact · release.py sources into signed
archives, each under its tag · tarball.py pack and unpack one · content.py the store, by hash · install.py an artifact
into the store · artifact.py checks a fetched archive · signatures.py, sigstore.py, keyring.py who vouches for one · staging.py
archives that wait for a person · consent.py what is asked before an install · hub*.py a Hub · suite.py

Runs in the daemon; manifest.py, connector_build.py, release.py, hub.py and what these use also in commands for authors.
Trusts no artifact and no stored file: what is opened to run was hashed on the very bytes that will run, and is hashed again once
its files were touched. No code of an artifact runs here.
"""
