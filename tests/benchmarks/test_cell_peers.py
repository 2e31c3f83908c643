"""The page that compares a cell with other sandboxes: it matches the results, and every answer has a reviewed word.

Not here: the check that the attempts are the same in each sandbox (test_cell_peers_tried.py).
"""

from __future__ import annotations

import pytest

from benchmarks import cell_peers
from benchmarks.measure import RESULTS


def test_the_page_matches_the_results() -> None:
    """The generated part of the page equals the one made again from the committed answers and samples."""
    _, _, rest = cell_peers.PAGE.read_text(encoding="utf-8").partition(cell_peers.BEGIN)
    shown, _, _ = rest.partition(cell_peers.END)

    assert shown.strip() == cell_peers.block(RESULTS).strip(), "run `python -m benchmarks.cell_peers --page`"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("ok", "possible"), ("EROFS", "refused"), ("ENOENT", "no object"), ("absent", "no object")],
)
def test_an_answer_has_one_word_on_the_page(answer: str, shown: str) -> None:
    """The page tells apart attempts that worked, that were refused, and that had no object."""
    assert cell_peers.verdict(answer) == shown


def test_an_unknown_answer_is_an_error() -> None:
    """Such an answer counts neither as refused nor as possible: a person has to classify it first."""
    with pytest.raises(ValueError, match="EWOULDBLOCK"):
        cell_peers.verdict("EWOULDBLOCK")
