"""Adapter for botocore (boto3). Its descriptions of services are data files, which this module reads from the connector's
archive.

    client = boto3.client("s3", region_name="eu-central-1", aws_access_key_id=transports.placeholder("aws_sigv4"),
                          aws_secret_access_key="not needed")

botocore opens data files by path, but files inside an archive have no path. The rest of botocore is unchanged: it signs
with a placeholder for a key, credentials.py removes that signature, and its connections are those of urllib3
(http_client.py).

Runs inside the jail. Outside an archive botocore is not changed. Source: botocore.loaders, "Loader" and its public methods. Not
here: the signature that is sent (the host makes it).
"""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from types import ModuleType
from typing import Any, Final

from aileron_connector.transports.authorities import maybe_archive

__all__ = ["change_loaders"]

_FORMS: Final = (".json", ".json.gz")


class _Packed:
    """botocore's data folder in an archive. File names are relative to the folder and have no suffix:
    `s3/2006-03-01/service-2`.
    """

    def __init__(self, archive: str, folder: str, read: Any) -> None:
        prefix = f"{os.path.relpath(folder, archive)}/"
        with zipfile.ZipFile(archive) as opened:
            names = [name.removeprefix(prefix) for name in opened.namelist() if name.startswith(prefix)]
        self._folder: Final = folder
        self._read: Final = read
        self._files: Final = {name.removesuffix(form): name for form in _FORMS for name in names if name.endswith(form)}

    def found(self, type_name: str) -> list[tuple[str, str]]:
        """Return the services and versions that have a file of this type, such as `service-2`."""
        parts = [name.split("/") for name in self._files]
        return [(part[0], part[1]) for part in parts if len(part) == 3 and part[2] == type_name]

    def load(self, name: str) -> Any:
        """Return the JSON in a file, or None if the file does not exist."""
        file = self._files.get(name)
        if file is None:
            return None
        data: bytes = self._read(f"{self._folder}/{file}")
        return json.loads(gzip.decompress(data) if file.endswith(".gz") else data)


def change_loaders(module: ModuleType) -> None:
    """Change botocore.loaders.Loader to search the archive too."""
    kind = module.Loader
    folder = kind.BUILTIN_DATA_PATH
    archive = maybe_archive(folder)
    if archive is None:
        return
    loader: Any = module.__loader__
    packed = _Packed(archive, folder, loader.get_data)
    services, versions, load = kind.list_available_services, kind.list_api_versions, kind.load_data_with_path

    def services_with_packed(self: Any, type_name: str) -> list[str]:
        return sorted({*services(self, type_name), *(service for service, _ in packed.found(type_name))})

    def versions_with_packed(self: Any, service_name: str, type_name: str) -> list[str]:
        found = [version for service, version in packed.found(type_name) if service == service_name]
        return sorted(found) if found else versions(self, service_name, type_name)

    def load_or_packed(self: Any, name: str) -> tuple[Any, str]:
        found = packed.load(name)
        return (found, f"{folder}/{name}") if found is not None else load(self, name)

    kind.list_available_services = module.instance_cache(services_with_packed)
    kind.list_api_versions = module.instance_cache(versions_with_packed)
    kind.load_data_with_path = module.instance_cache(load_or_packed)
