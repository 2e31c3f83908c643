"""The form of a key in the header `Authorization`, as far as a document describes the form in prose.

Pure. A security scheme of the type `apiKey` specifies a name and a place but no form; services want `Bearer KEY`, `Bot KEY`,
`Token token=KEY` or only the key. Descriptions and examples often show the form.

>>> form_of(["The key with format `Token token=<API_KEY>`"])
'Token token={key}'
>>> form_of(["Put the key here."]) is None
True

Not here: which texts are searched (security.py), which forms are allowed (registry/manifest_credential.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["form_in_text", "form_of", "form_of_value", "is_form"]

_MAX_READ: Final = 20_000
"""Maximum number of characters of one text that are searched; the form is at the beginning of a section on authentication."""
_SCHEMES: Final = (
    "ApiKey|Apikey|APIKEY|Api-Key|ApiToken|Basic|Bearer|bearer|Bot|GenieKey|JWT|Key|OAuth|OAuth2|SSWS|Token"
)
"""Authorization schemes, in exactly this spelling, that are recognised before a key even if neither a quote nor the
header's name precedes them.
"""
_KEY: Final = (
    r"(?:<(?!(?:a|b|br|code|em|i|li|p|strong|ul)>)[A-Za-z][A-Za-z0-9 _-]{0,40}>|\$?\{{1,2}[^{}\n]{1,40}\}{1,2}"
    r"|\[[^\[\]\n]{1,40}\]|\$[A-Z_]{2,40}|[A-Z]{2,}(?:[_-][A-Z0-9]+)+"
    r"|(?:your|my|paste)[_-][A-Za-z_-]{2,40}|[xX]{3,}|[A-Za-z0-9._-]*\d[A-Za-z0-9._=-]{5,}|\.{3}|…)"
)
"""Pattern of a key's placeholder: a name in brackets or capitals, or a text that looks like a key."""
_BEFORE: Final = r"[a-z_]{2,12}=[\"']?"
_VALUE: Final = re.compile(
    rf"(?:(?P<word>[A-Za-z][A-Za-z0-9_-]{{1,20}}) +)?(?P<before>{_BEFORE})?(?P<key>{_KEY})(?P<after>[\"']?)"
)
_HEADER: Final = re.compile(r"(?i)authorization[\"'`*]*\s*[:=]\s*[\"'`*]*")
_QUOTED: Final = re.compile(r"[\"'`“‘]{1,3}(?=[A-Za-z<{\[$])")
_KNOWN: Final = re.compile(rf"(?<![A-Za-z<{{\[/.-])(?<!\b[Aa][Pp][Ii] )(?=(?:{_SCHEMES}) +\S)")
_BRACKETED: Final = re.compile(
    r"(?<![A-Za-z])(?!(?:An?|Api|API|Enter|Header|My|Paste|Put|The|Use|Value|With|Your) )"
    r"(?=[A-Z][A-Za-z-]{2,20} +[<{][^<>{}\n]{0,30}(?i:token|key)[^<>{}\n]{0,30}[>}])"
)
_PREFIX: Final = re.compile(
    r"(?i)(?:prefix(?:ed)?|prepend(?:ed)?|(?:begins?|starts?) with|followed by|word|string|enter|type)\b[^\"'`“‘.\n]{0,30}"
    r"[\"'`“‘](?P<word>[A-Za-z][A-Za-z0-9_-]{1,20})(?P<space> ?)[\"'`”’]"
)
_ALONE: Final = re.compile(r"(?i)\b(?:without|no|not)\b[^.\n]{0,30}\b(?:prefix|bearer|scheme)\b")
_BEARER: Final = re.compile(r"(?i)\bbearer\b")


def form_of(texts: Sequence[str]) -> str | None:
    """Return a form, which is a header value with `{key}` in place of the key, from the first text that shows one; None
    if no text does.
    """
    for text in texts:
        found = next(_forms(text[:_MAX_READ]), None)
        if found is not None:
            return found
    return None


def form_in_text(text: str) -> str | None:
    """Return the form (`form_of`) that a text about any subject shows right after the name of the Authorization header;
    None if there is none.
    """
    return next(_after_name(text[:_MAX_READ]), None)


def form_of_value(value: str) -> str | None:
    """Return the form (`form_of`) of an example of the complete header value; None if the value is neither a key nor a
    word and a key.
    """
    match = _VALUE.fullmatch(value.strip())
    return None if match is None else _form(match)


def is_form(text: str) -> bool:
    """Return whether a text can be a form: visible ASCII that contains `{key}` exactly once."""
    return re.fullmatch(r"[\x20-\x7e]*\{key\}[\x20-\x7e]*", text) is not None and text.count("{") == 1


def _after_name(text: str) -> Iterator[str]:
    for begin in _HEADER.finditer(text):
        if (match := _VALUE.match(text, begin.end())) is not None:
            yield _form(match)


def _forms(text: str) -> Iterator[str]:
    yield from _after_name(text)
    for begin in _QUOTED.finditer(text):
        if (match := _VALUE.match(text, begin.end())) is not None and match["word"]:
            yield _form(match)
    for begin in (*_KNOWN.finditer(text), *_BRACKETED.finditer(text)):
        if (match := _VALUE.match(text, begin.end())) is not None:
            yield _form(match)
    if (prefix := _PREFIX.search(text)) is not None:
        yield f"{prefix['word']} {{key}}"
    if _ALONE.search(text):
        yield "{key}"
    elif _BEARER.search(text):
        yield "Bearer {key}"


def _form(match: re.Match[str]) -> str:
    quote = (match["before"] or "")[-1:]
    after = match["after"] if match["after"] and match["after"] == quote else ""
    word = f"{match['word']} " if match["word"] else ""
    return f"{word}{match['before'] or ''}{{key}}{after}"
