"""Values of a document as TOML on one line, for the files that an import generates.

Pure. tomlkit is not needed, because there are no comments and no layout to keep.

>>> toml_of({"a b": [1, True, "x"]})
'{ "a b" = [1, true, "x"] }'

Source: TOML 1.0; RFC 8259. Not here: tables, which the modules for each file write themselves.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["toml_of"]


def toml_of(value: Any) -> str:
    """Return visible text, a number, a boolean, a list or a table as TOML. Keys are quoted, because a document can
    contain any name.
    """
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {toml_of(member)}" for key, member in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_of, value))}]"
    return json.dumps(value, ensure_ascii=False)  # visible text and finite numbers are spelled alike in both
