"""Places of a person's home and machine that a cell shows only if a person names them, and predicates on paths. Pure.

Each place contains credentials, keys, browsing data, or sockets of other processes. If a person names such a place
itself, it is shown, with a prominent note (cell_spec.py). If a directory around it is shown, the place is masked. The
list is fixed and cannot be complete: safety comes from a home that is empty except for the named places.

Source: the manuals of the programs that are named. Not here: Aileron's own home, which no option shows.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["SECRET_IN_HOME", "SECRET_ON_MACHINE", "is_like_credentials", "is_within", "secret_places"]

SECRET_IN_HOME: Final = (
    # keys, and what logs in
    ".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".pki", ".putty", ".config/age",
    ".config/sops", ".config/1Password", ".config/op", ".config/Bitwarden", ".config/Bitwarden CLI", ".config/keepassxc",
    # accounts of clouds and forges
    ".aws", ".azure", ".kube", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/doctl",
    ".config/rclone", ".docker", ".config/containers", ".terraform.d", ".vault-token", ".oci", ".s3cfg", ".boto",
    ".fly", ".config/heroku", ".config/netlify", ".config/stripe", ".databrickscfg", ".config/anthropic",
    # files of names and passwords
    ".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".composer/auth.json",
    ".dotnet/corefx",
    ".config/composer/auth.json", ".nuget", ".pgpass", ".my.cnf", ".mylogin.cnf", ".msmtprc", ".mbsyncrc", ".config/pip",
    # browsers, mail and messengers
    ".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi",
    ".config/opera", ".librewolf", ".thunderbird", ".var/app", "snap/firefox", "snap/chromium", "snap/thunderbird",
    ".config/Slack", ".config/discord", ".config/Signal",
    ".local/share/TelegramDesktop", ".local/share/evolution", ".config/evolution",
    # what was typed
    ".bash_history", ".zsh_history", ".local/share/fish", ".python_history", ".psql_history", ".mysql_history",
    ".node_repl_history", ".lesshst", ".viminfo",
)  # fmt: skip
SECRET_ON_MACHINE: Final = (
    # ways to other processes: of the desktop, of containers, of the system's services
    "/run", "/var/run", "/tmp/.X11-unix", "/tmp/.ICE-unix", "/proc", "/sys", "/dev", "/boot",  # noqa: S108 - to be masked
    "/var/lib", "/var/log", "/var/spool", "/var/backups",
)  # fmt: skip


_LIKE_CREDENTIALS: Final = (
    r"\.env(\..*|rc)?|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|p8|jks|keystore|kdbx?|ovpn|asc|gpg|age|pgpass)|auth\.json"
    r"|.*(secret|credential|password|passwd|passphrase|private[-_]?key|api[-_]?key|keyring|wallet|cookies|_history).*"
    r"|(.*[._-])?tokens?([._-].*)?"
)
"""Pattern of names that people give to files with credentials in any directory. It is compiled at the first use, 1 ms."""


def is_like_credentials(path: str) -> bool:
    """Return whether a path probably contains credentials: it is at or below a place where programs keep them in a
    home, or one of its names is like the names that people give to files with credentials.

    Use the result only to decide whether to recommend an option. For a harmless `secrets.py` it is wrong, and the
    person must then find the option without help.

    >>> is_like_credentials("/home/you/backup/.ssh/config"), is_like_credentials("/home/you/lib/python3")
    (True, False)
    """
    below = f"{path}/"
    if any(f"/{name}/" in below for name in SECRET_IN_HOME):
        return True
    return any(re.fullmatch(_LIKE_CREDENTIALS, name, re.IGNORECASE) for name in path.split(os.sep))


def secret_places(home: str) -> tuple[str, ...]:
    """Return the paths at which programs keep credentials, in the home directory `home` and elsewhere on the machine."""
    return (*(f"{home}/{name}" for name in SECRET_IN_HOME), *SECRET_ON_MACHINE)


def is_within(path: str, place: str) -> bool:
    """Return whether a path is `place`, or is below it. Both paths must be normalized.

    >>> is_within("/usr/bin", "/usr"), is_within("/usrx", "/usr"), is_within("/usr", "/")
    (True, False, True)
    """
    return path == place or path.startswith(f"{place.rstrip('/')}/")
