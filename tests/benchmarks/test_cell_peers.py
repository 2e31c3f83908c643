"""The page that compares a cell with other sandboxes: it matches the results, and every answer has a reviewed word.

Not here: the check that the attempts are the same in each sandbox (test_cell_peers_tried.py).
"""

from __future__ import annotations

import pytest

from benchmarks import cell_peers
from benchmarks.measure import RESULTS


def test_the_page_of_cell_comparisons_matches_the_committed_results() -> None:
    """The generated part of the page equals the one made again from the committed answers and samples."""
    _, _, rest = cell_peers.PAGE.read_text(encoding="utf-8").partition(cell_peers.BEGIN)
    shown, _, _ = rest.partition(cell_peers.END)

    assert shown.strip() == cell_peers.block(RESULTS).strip(), "run `python -m benchmarks.cell_peers --page`"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("ok", "possible"), ("EROFS", "refused"), ("ENOENT", "no object"), ("absent", "no object")],
)
def test_each_result_of_an_escape_attempt_is_summarized_in_one_word(answer: str, shown: str) -> None:
    """The words distinguish attempts that worked, were refused, or had no target."""
    assert cell_peers.verdict(answer) == shown


def test_an_unclassified_result_of_an_escape_attempt_is_an_error() -> None:
    """A person must classify it first, so that it counts neither as refused nor as possible."""
    with pytest.raises(ValueError, match="EWOULDBLOCK"):
        cell_peers.verdict("EWOULDBLOCK")
