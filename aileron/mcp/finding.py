"""Search for actions by words. It returns the matching actions, best first. Pure; runs in the daemon, in a worker thread.

Words are compared with the text of an action's file: its name, intent, tags, summary, inputs and description. A word that
occurs in fewer actions counts more, and so does a word in a name (BM25F: Robertson and Zaragoza, 2009). The same words and
the same actions always give the same answer.

Rules
- Endings of English words are ignored (`meetings`, `creating`), and a word also matches longer words that begin with it
  (`repo`).
- Words with the same meaning match one another, with a lower weight (ALIKE): agents say `delete` where an API says `cancel`.
  A word of the request and its alternatives count as one word: only the best match counts, and its rarity is that of all
  alternatives together (Pirkola, 1998). Otherwise a rare word for a common thing would count more than the usual word.
- A request has at most MAX_WORDS_CHARACTERS, of which MAX_TERMS words are used.
- The words of an action are counted once for each version of its text, and stored for later requests: `Finder` remembers
  MAX_KEPT texts.

>>> Finder().find("file a bug", [])
[]

Source: docs/adr/0053-many-tools.md. Not here: the description of an action to agents (results.py), deciding which actions a
session may see.
"""

from __future__ import annotations

import functools
import heapq
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from aileron.model.manifest import ActionFile

__all__ = ["ALIKE", "MAX_FOUND", "MAX_TERMS", "MAX_WORDS_CHARACTERS", "USUAL_FOUND", "Finder"]

USUAL_FOUND: Final = 5
"""Default number of actions in an answer, chosen by measuring 60 requests (tests/mcp/test_finding.py)."""
MAX_FOUND: Final = 20
MAX_WORDS_CHARACTERS: Final = 400
"""Maximum number of characters of a request, as in a long sentence. Requests of agents have under 100."""
MAX_TERMS: Final = 24
MAX_KEPT: Final = 2000
"""Maximum number of actions whose words are cached: twice the maximum number of actions. The words of one action take at
most 10 KiB.
"""
_MAX_BODY_CHARACTERS: Final = 4000
"""Maximum number of characters of a description that are searched. The first lines say what an action does."""

_WEIGHTS: Final = {"name": 4.0, "intent": 3.0, "tags": 2.0, "summary": 2.0, "inputs": 0.7, "body": 1.0}
"""Weight of a word by the field in which it occurs. Names and intents are chosen with care; bodies contain any text of the
author.
"""
_SATURATION: Final = 1.2
"""BM25's k1, which determines how fast further repetitions of a word stop counting."""
_LENGTH: Final = 0.6
"""BM25's b, which determines how much less a word counts in a longer field."""
_ALIKE_WEIGHT: Final = 0.7
"""Weight of a word that ALIKE lists as a synonym of a word of the request. Values from 0.5 to 0.8 change the result of
two requests in sixty.
"""
_PREFIX_WEIGHT: Final = 0.6
_MIN_PREFIX: Final = 3
"""Minimum number of letters of a word that also matches longer words: `doc` finds documents, `do` would find too much."""
_MAX_PREFIXED: Final = 50
"""Maximum number of longer words that one word of a request matches; the commonest are used. In real actions, thirty
words begin with `con`.
"""

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EMPTY: Final = frozenset(
    "a an and any are as at be been by can could did do does for from has have how i if in into is it its "
    "me my of on or our please so some somebody someone something than that the their them then there these they this to "
    "us want was we were what when where which will with would you your".split()
)
"""Words that are ignored, because they do not help to find an action."""

ALIKE: Final = (
    "create add new make insert open file start",
    "delete remove drop erase discard trash destroy cancel",
    "list show get view see read find search fetch retrieve query lookup display",
    "update change edit modify patch alter rename set adjust move",
    "send post write publish share submit notify",
    "reply answer respond comment",
    "cancel stop abort terminate end",
    "approve accept confirm",
    "deny decline reject",
    "complete done finish close resolve solve",
    "retry rerun repeat",
    "run start trigger launch execute play",
    "restore undo recover revert rollback",
    "download export save",
    "silence mute snooze",
    "assign give",
    "event meeting appointment invitation",
    "mail email inbox",
    "message dm chat post",
    "file document attachment doc",
    "channel conversation",
    "user person people member colleague employee",
    "customer client buyer shopper",
    "contact person lead",
    "issue bug ticket",
    "pull pr",
    "merge pr",
    "repository repo project",
    "build pipeline ci job",
    "log output trace",
    "vacation holiday leave absence pto off away",
    "sick ill sickness",
    "task todo",
    "deal opportunity sale",
    "refund money back",
    "money balance payment funds",
    "invoice bill receipt",
    "price cost amount",
    "folder directory",
    "share permission access",
    "version revision",
    "storage space quota drive",
    "calendar schedule",
    "room place",
    "temperature heating thermostat climate",
    "alert alarm notification",
    "diff compare difference",
    "secret key variable credential",
    "label tag",
)
"""Words with the same meaning, one line for each meaning: people use one of them, and APIs another."""


class Finder:
    """A search for actions, with a cache of their words. It must not be used by two threads at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Document] = OrderedDict()

    def find(self, words: str, actions: Iterable[ActionFile], limit: int = USUAL_FOUND) -> list[ActionFile]:
        """Return at most `limit` of the actions that match the words, the likeliest first. Equal matches are sorted by name."""
        asked = _terms(words[:MAX_WORDS_CHARACTERS])[:MAX_TERMS]
        known = [(action, self._document(action)) for action in actions]
        if not asked or not known:
            return []
        corpus = _Corpus.of([document for _, document in known])
        alternatives = [corpus.alternatives(term) for term in dict.fromkeys(asked)]
        scored = [(corpus.score(document, alternatives), action) for action, document in known]
        found = sorted(
            ((-score, action.name, action) for score, action in scored if score > 0), key=lambda match: match[:2]
        )
        return [action for _, _, action in found[:limit]]

    def _document(self, action: ActionFile) -> _Document:
        kept = self._kept.get(action.digest)
        if kept is None:
            kept = self._kept[action.digest] = _document_of(action)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(action.digest)
        return kept


class _Document(NamedTuple):
    """The words of an action in the search: their counts by field, and the length of each field."""

    counts: dict[str, Counter[str]]
    lengths: dict[str, int]
    terms: frozenset[str]


class _Corpus(NamedTuple):
    """The frequency of each word in the documents of all actions that are searched together."""

    size: int
    have: Counter[str]
    """Number of documents that have a term."""
    lengths: dict[str, float]
    """Mean length of each field."""

    @classmethod
    def of(cls, documents: Sequence[_Document]) -> _Corpus:
        have: Counter[str] = Counter()
        for document in documents:
            have.update(document.terms)
        size = len(documents)
        lengths = {field: sum(document.lengths[field] for document in documents) / size for field in _WEIGHTS}
        return cls(size, have, lengths)

    def alternatives(self, term: str) -> dict[str, float]:
        """Return the words of these actions that match a word of the request, each with its weight: the rarer, the greater."""
        meant = {term: 1.0} | dict.fromkeys(_alike().get(term, ()), _ALIKE_WEIGHT)
        if len(term) >= _MIN_PREFIX:
            longer = (known for known in self.have if known.startswith(term) and known != term)
            for known in heapq.nlargest(_MAX_PREFIXED, longer, key=lambda word: (self.have[word], word)):
                meant[known] = max(meant.get(known, 0.0), _PREFIX_WEIGHT)
        there = {word: weight for word, weight in meant.items() if word in self.have}
        worth = self._rarity(sum(self.have[word] * weight for word, weight in there.items()))
        return {word: weight * worth for word, weight in there.items()}

    def score(self, document: _Document, asked: Sequence[dict[str, float]]) -> float:
        """Return a score of how well an action's document matches a request. For each word of the request, only its
        best-scoring alternative is added to the score.
        """
        return sum(
            max(
                (alternatives[term] * self._weight(document, term) for term in alternatives.keys() & document.terms),
                default=0.0,
            )
            for alternatives in asked
        )

    def _weight(self, document: _Document, term: str) -> float:
        found = 0.0
        for field, weight in _WEIGHTS.items():
            if times := document.counts[field][term]:
                found += weight * times / (1 - _LENGTH + _LENGTH * document.lengths[field] / self.lengths[field])
        return found / (_SATURATION + found)

    def _rarity(self, have: float) -> float:
        """Return BM25's inverse document frequency of a word that occurs in `have` documents; `have` can be a weighted sum."""
        return math.log(1 + (self.size - min(have, self.size) + 0.5) / (min(have, self.size) + 0.5))


def _document_of(action: ActionFile) -> _Document:
    fields = {
        "name": action.name,
        "intent": action.intent,
        "tags": " ".join(action.tags),
        "summary": action.summary or "",
        "inputs": " ".join(spec.name for spec in action.inputs),
        "body": action.body[:_MAX_BODY_CHARACTERS],
    }
    counts = {field: Counter(_terms(text)) for field, text in fields.items()}
    lengths = {field: sum(count.values()) for field, count in counts.items()}
    return _Document(counts, lengths, frozenset().union(*counts.values()))


def _terms(text: str) -> list[str]:
    """Return the words of a text in order, normalized, without the words in _EMPTY."""
    words = (part.lower() for word in _WORD.findall(text) for part in _CAMEL.split(word))
    return [_stem(word) for word in words if word not in _EMPTY and (len(word) > 1 or word.isdigit())]


@functools.lru_cache(8192)
def _stem(word: str) -> str:
    """Return a word without English endings of verbs and plurals. The result need not be a word, but is the same for
    all forms of a word.
    """
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sz":
                word = word[:-1]
            break
    return word.removesuffix("e") if len(word) > 3 else word


@functools.cache
def _alike() -> dict[str, tuple[str, ...]]:
    """Return, for each word of ALIKE (as `_stem` reduces it), the other words of its lines, which have the same meaning."""
    found: dict[str, dict[str, None]] = {}
    for line in ALIKE:
        terms = [_stem(word) for word in line.split()]
        for term in terms:
            found.setdefault(term, {}).update(dict.fromkeys(other for other in terms if other != term))
    return {term: tuple(others) for term, others in found.items()}
