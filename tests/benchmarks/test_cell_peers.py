"""The page that compares a cell with other sandboxes: it says what the results say, in words that somebody has looked at.

Not here: that the attempts are made alike (test_cell_peers_tried.py).
"""

from __future__ import annotations

import pytest

from benchmarks import cell_peers
from benchmarks.measure import RESULTS


def test_the_page_says_what_the_results_say() -> None:
    """The generated part of the page, made again from the committed answers and samples, is what stands there."""
    _, _, rest = cell_peers.PAGE.read_text(encoding="utf-8").partition(cell_peers.BEGIN)
    shown, _, _ = rest.partition(cell_peers.END)

    assert shown.strip() == cell_peers.block(RESULTS).strip(), "run `python -m benchmarks.cell_peers --page`"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("ok", "possible"), ("EROFS", "refused"), ("ENOENT", "no object"), ("absent", "no object")],
)
def test_an_answer_has_one_word_on_the_page(answer: str, shown: str) -> None:
    """What worked, what was refused, and what had no object are told apart."""
    assert cell_peers.verdict(answer) == shown


def test_an_answer_that_nobody_has_looked_at_is_not_counted() -> None:
    """Neither as refused nor as possible: somebody has to say what it is."""
    with pytest.raises(ValueError, match="EWOULDBLOCK"):
        cell_peers.verdict("EWOULDBLOCK")
