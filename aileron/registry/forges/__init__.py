"""Clients of forges, the services from which archives are fetched. Each module serves one scheme, such as `github://`, and
builds its URLs.

forge.py the common interface, requests and responses · github.py · gitlab.py · hub.py

Source: docs/reference/forges.md.
"""
