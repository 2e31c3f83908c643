"""What an account of MySQL or MariaDB may do beside reading, by what SHOW GRANTS says of it.

Runs in the process of one login. The service answers, so it holds against an account that was bound by mistake, not against a
service that lies.

Rules
- A privilege that is not on the list is more than reading, whatever it is called in a newer version.
- A role is more than reading: SET ROLE would bring its privileges, which are not in the answer.
- What cannot be parsed is more than reading. An answer is never quoted: MariaDB's holds the hash of the password.

EXECUTE is not on the list, as a routine runs with the rights of whoever defined it. A view with such a function in it is not
found here.

Source: MySQL's and MariaDB's pages "SHOW GRANTS" and "GRANT". Not here: asking (mysql.py).

>>> more_than_reading("GRANT SELECT, SHOW VIEW ON `shop`.* TO `me`@`%`") is None
True
>>> more_than_reading("GRANT SELECT, INSERT (`name`), DELETE ON `shop`.`order` TO `me`@`%`")
'INSERT, DELETE ON `shop`.`order`'
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["more_than_reading"]

_READING: Final = frozenset(
    {
        "BINLOG MONITOR",
        "PROCESS",
        "REPLICA MONITOR",
        "REPLICATION CLIENT",
        "SELECT",
        "SHOW DATABASES",
        "SHOW VIEW",
        "SLAVE MONITOR",
        "USAGE",
    }
)
_NAME: Final = r"(?:`(?:[^`]|``)*`|\*)"
_GRANT: Final = re.compile(
    rf"GRANT (?P<rights>[^`'\"]+?(?: \((?:{_NAME}(?:, )?)+\)[^`'\"]*?)*) ON (?P<where>{_NAME}(?:\.{_NAME})?) TO .*"
)
_COLUMNS: Final = re.compile(rf" \((?:{_NAME}(?:, )?)+\)")


def more_than_reading(grant: str) -> str | None:
    """What a line of SHOW GRANTS allows besides, for a message; None: nothing."""
    found = _GRANT.fullmatch(grant)
    if found is None:
        return "a role or something else that SHOW GRANTS has as a line of its own"
    rights = [right.strip() for right in _COLUMNS.sub("", found["rights"]).split(",")]
    others = [right for right in rights if right not in _READING]
    if "GRANT OPTION" in grant:
        others.append("GRANT OPTION")
    return f"{', '.join(others)} ON {found['where']}" if others else None
