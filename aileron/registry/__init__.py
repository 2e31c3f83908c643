"""The registry: it parses, builds, checks and stores connectors. Nothing here opens a connection: forges/ sends its requests
through an HTTP client that the daemon passes in.

manifest.py one manifest into values · connector_build.py a source directory into an artifact · release.py sources into signed
archives, each under its tag · tarball.py pack and unpack one · content.py the store, by hash · install.py an artifact into the
store · artifact.py checks a fetched archive · signatures.py, sigstore.py, keyring.py who signed an artifact · staging.py
archives that wait for a person · consent.py the question before an install · hub*.py a Hub · suite.py

Runs in the daemon; manifest.py, connector_build.py, release.py, hub.py and the modules that they import also run in commands
for authors. Trusts no artifact and no stored file: a program is hashed on the same bytes that will run, and again after its
files were touched. No code of an artifact runs here.
"""
