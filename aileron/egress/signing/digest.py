"""HTTP Digest: read a service's challenge, and answer it without sending the password.

Pure: the challenge, the client nonce and the count are arguments. Runs in the daemon, on header fields of a service that is not
trusted, and on a connector's request. The answer goes to the wire and nowhere else.

Rules
- If there are several challenges, the one with the strongest hash function is answered: SHA-512/256, SHA-256, then MD5;
  with or without `-sess`. The first one wins a tie.
- Only `qop=auth` is answered: without `qop` (RFC 2069) the same nonce gives the same answer, and `auth-int` is hardly
  used.
- A field that is malformed or too long is ignored; so is a challenge with too many parameters, with a parameter twice,
  or with a realm that is not ASCII, because its encoding is unknown.
- A service's own proof that it knows the password (`rspauth`) is not relayed, because a connector could test guesses
  against it.
- Names and passwords are hashed in UTF-8, the only charset that RFC 7616 knows.

>>> asked = 'Digest realm="a", nonce="n", qop="auth"'
>>> read_challenges([f"{asked}, {asked}, algorithm=SHA-256", 'Basic realm="a"']).best.algorithm
'SHA-256'

Source: RFC 7616; RFC 9110 sections 5.6.4 and 11.6.1. Not here: when a challenge is answered, and how often (challenged.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self
from urllib.parse import quote

import msgspec

from aileron.egress.headers import TOKEN
from aileron.egress.outgoing import Outgoing

__all__ = ["Answer", "Challenge", "Offered", "Round", "answer", "read_challenges", "without_proof"]

MAX_FIELD_CHARACTERS: Final = 8 << 10
"""Maximum number of characters of all `WWW-Authenticate` fields of a response together: 8 KiB. A usual field has some
200 characters; a Kerberos ticket is not needed here.
"""
MAX_CHALLENGES: Final = 16
MAX_PARAMETERS: Final = 32
"""Maximum number of parameters of one challenge. RFC 7616 defines nine."""
MAX_VALUE_CHARACTERS: Final = 1024
"""Maximum number of characters of a realm, nonce or opaque. These are sent back with each request."""
_CNONCE_BYTES: Final = 16

_TOKEN: Final = TOKEN.pattern
_SCHEME: Final = re.compile(rf"({_TOKEN})(?=[ \t,]|\Z)")
_PARAMETER: Final = re.compile(
    rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"|({_TOKEN}))(?=[ \t]*(?:,|\Z))'
)
_TOKEN68: Final = re.compile(r"[ \t]*[0-9A-Za-z\-._~+/]+=*(?=[ \t]*(?:,|\Z))")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_ESCAPE: Final = re.compile(r"\\(.)")
_ASCII: Final = re.compile(r"[\x20-\x7e]+")


class _Hash(NamedTuple):
    name: str
    strength: int


_HASHES: Final = {"md5": _Hash("md5", 0), "sha-256": _Hash("sha256", 1), "sha-512-256": _Hash("sha512_256", 2)}
"""Hash functions of RFC 7616, section 6.1. The keys are the names of the functions in the RFC, in lower case."""
_SESSION: Final = "-sess"
_PROOFS: Final = frozenset({b"authentication-info", b"proxy-authentication-info"})
"""Fields of RFC 7615 that carry the service's proof (RFC 7616 section 3.5)."""


class Challenge(msgspec.Struct, frozen=True):
    """A service's challenge. `algorithm` has the service's spelling; None if the service stated none, which means MD5."""

    realm: str
    nonce: str
    opaque: str | None = None
    algorithm: str | None = None
    is_userhash: bool = False
    """True if the service asks for a hash of the user name in place of the name."""
    is_stale: bool = False
    """True if the service says that the previous answer was right, but its nonce was too old."""

    @property
    def is_session(self) -> bool:
        """True if the algorithm is a session variant (`-sess`), in which the key is made from the first nonces."""
        return (self.algorithm or "").lower().endswith(_SESSION)

    @property
    def function(self) -> _Hash | None:
        """The hash function of the challenge's algorithm; None if Aileron does not support it."""
        return _HASHES.get((self.algorithm or "md5").lower().removesuffix(_SESSION))

    def digest(self, *parts: bytes) -> bytes:
        """Return the hash of the parts joined by colons, in hexadecimal: H of RFC 7616, section 3.3."""
        assert self.function is not None
        return hashlib.new(self.function.name, b":".join(parts), usedforsecurity=False).hexdigest().encode("ascii")


class Offered(msgspec.Struct, frozen=True):
    """The challenges of a 401 response: the challenge to answer, if any can be answered, and the names of all offered
    schemes, in lower case.
    """

    best: Challenge | None
    schemes: frozenset[str]

    @property
    def is_stale(self) -> bool:
        """True if the service says that the previous answer was right, but its nonce was too old."""
        return self.best is not None and self.best.is_stale


class Round(msgspec.Struct, frozen=True):
    """The data for one answer to an HTTP Digest challenge: the challenge, the client nonce, and the number of this
    answer, counted from 1, among all with the same two nonces.
    """

    challenge: Challenge
    cnonce: str
    count: int = 1

    @classmethod
    def first(cls, challenge: Challenge) -> Self:
        """Return the first round of a new challenge. The client nonce is stored with it, because the key of `-sess` is
        made from the first client nonce.
        """
        return cls(challenge, secrets.token_hex(_CNONCE_BYTES))

    def next(self) -> Round:
        """Return the data for the next answer to the same challenge, whose number is one higher."""
        return msgspec.structs.replace(self, count=self.count + 1)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """An answer to a challenge: the value of the field `Authorization`, and the part of that value that proves
    knowledge of the password (`response`).
    """

    field: str
    response: str


def read_challenges(values: Iterable[str]) -> Offered:
    """Read the challenges in the values of `WWW-Authenticate`, each decoded as Latin-1. Never raises."""
    values = tuple(values)
    if sum(map(len, values)) > MAX_FIELD_CHARACTERS:
        return Offered(None, frozenset())
    found = [challenge for value in values for challenge in _split(value)]
    if len(found) > MAX_CHALLENGES:
        return Offered(None, frozenset())
    best: Challenge | None = None
    for scheme, parameters in found:
        challenge = _digest_of(parameters) if scheme == "digest" else None
        if challenge is not None and (best is None or _strength(challenge) > _strength(best)):
            best = challenge
    return Offered(best, frozenset(scheme for scheme, _parameters in found))


def without_proof(fields: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the fields of a response, except those that carry the service's own proof."""
    return tuple((name, value) for name, value in fields if name.lower() not in _PROOFS)


def _strength(challenge: Challenge) -> int:
    return -1 if challenge.function is None else challenge.function.strength


def _split(value: str) -> list[tuple[str, dict[str, str] | None]]:
    """Return the challenges of one field: each scheme in lower case, and its parameters. The parameters are None if
    they are too many, or one occurs twice.

    A malformed field gives an empty list.
    """
    found: list[tuple[str, dict[str, str] | None]] = []
    at = _skip(value, 0)
    while at < len(value):
        if found and (parameter := _PARAMETER.match(value, at)) is not None:
            scheme, known = found[-1]
            name = parameter[1].lower()
            if known is None or name in known or len(known) == MAX_PARAMETERS:
                found[-1] = scheme, None
            else:
                known[name] = _unquoted(parameter)
            at = parameter.end()
        elif (scheme_name := _SCHEME.match(value, at)) is not None:
            found.append((scheme_name[1].lower(), {}))
            at = scheme_name.end()
            if (token := _TOKEN68.match(value, at)) is not None and value[at] != "," and not _begins(value, at):
                at = token.end()
        else:
            return []
        at = _skip(value, at)
    return found


def _begins(value: str, at: int) -> bool:
    """Return whether a parameter (a name and `=`) begins at index `at` of a challenge field, possibly after blanks."""
    return _PARAMETER.match(value, _skip(value, at)) is not None


def _skip(value: str, at: int) -> int:
    between = _BETWEEN.match(value, at)
    assert between is not None
    return between.end()


def _unquoted(parameter: re.Match[str]) -> str:
    return parameter[3] if parameter[2] is None else _ESCAPE.sub(r"\1", parameter[2])


def _digest_of(parameters: dict[str, str] | None) -> Challenge | None:
    """Return the challenge with these parameters; None if the challenge cannot be answered."""
    if parameters is None or not {"realm", "nonce"} <= parameters.keys():
        return None
    qop = {option.strip().lower() for option in parameters.get("qop", "").split(",")}
    challenge = Challenge(
        realm=parameters["realm"],
        nonce=parameters["nonce"],
        opaque=parameters.get("opaque"),
        algorithm=parameters.get("algorithm"),
        is_userhash=parameters.get("userhash", "").lower() == "true",
        is_stale=parameters.get("stale", "").lower() == "true",
    )
    texts = (challenge.realm, challenge.nonce, challenge.opaque or "x")
    if "auth" not in qop or challenge.function is None or not all(map(_is_text, texts)):
        return None
    return challenge


def _is_text(text: str) -> bool:
    return len(text) <= MAX_VALUE_CHARACTERS and _ASCII.fullmatch(text) is not None


def answer(turn: Round, username: str, password: bytes, request: Outgoing) -> Answer:
    """Return the answer to send with `request`. The caller has checked the user name (model/username.py)."""
    asked, target = turn.challenge, request.url.target
    user, count, cnonce = username.encode(), b"%08x" % turn.count, turn.cnonce.encode("ascii")
    realm, nonce = asked.realm.encode("ascii"), asked.nonce.encode("ascii")
    key = asked.digest(user, realm, password)
    if asked.is_session:
        key = asked.digest(key, nonce, cnonce)
    effect = asked.digest(request.method.encode("ascii"), target.encode("ascii"))
    response = asked.digest(key, nonce, count, cnonce, b"auth", effect).decode("ascii")
    said = [_user_field(asked, user, realm), f"realm={_quoted(asked.realm)}", f"uri={_quoted(target)}"]
    said += [] if asked.algorithm is None else [f"algorithm={asked.algorithm}"]
    said += [f"nonce={_quoted(asked.nonce)}", f"nc={count.decode('ascii')}", f'cnonce="{turn.cnonce}"', "qop=auth"]
    said += [f'response="{response}"', *_optional(asked)]
    return Answer("Digest " + ", ".join(said), response)


def _user_field(asked: Challenge, user: bytes, realm: bytes) -> str:
    if asked.is_userhash:
        return f'username="{asked.digest(user, realm).decode("ascii")}"'
    if user.isascii():
        return f"username={_quoted(user.decode('ascii'))}"
    return f"username*=UTF-8''{quote(user, safe='!#$&+-.^_`|~')}"  # RFC 8187, section 3.2.1


def _optional(asked: Challenge) -> Iterator[str]:
    if asked.opaque is not None:
        yield f"opaque={_quoted(asked.opaque)}"
    if asked.is_userhash:
        yield "userhash=true"


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
