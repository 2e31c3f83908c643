"""Recovery codes as people use them: printed, kept on paper, typed again, and mistyped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.vault.recovery import GROUPS, MistypedError, generate, read

SYMBOLS = "123456789ABCDEFGHJKMNPQRSTVWXYZ"
codes = st.builds(lambda: generate().reveal().decode())


def wrong_groups(typed: str) -> str:
    """Return the message for a code with mistakes."""
    with pytest.raises(MistypedError) as caught:
        read(typed)
    assert typed not in str(caught.value)
    return str(caught.value)


def test_a_recovery_code_is_seven_groups_of_unambiguous_symbols() -> None:
    """The code is random: 28 of its 35 symbols carry 138 bits, the others detect mistakes."""
    first, second = generate().reveal().decode(), generate().reveal().decode()
    assert first != second
    for code in (first, second):
        groups = code.split("-")
        assert [len(group) for group in groups] == [5] * GROUPS
        assert set(code) <= {*SYMBOLS, "-"}


@given(codes, st.sampled_from(["", " ", "-"]), st.booleans())
def test_a_recovery_code_can_be_typed_in_any_style(code: str, separator: str, is_lower: bool) -> None:
    """Case, hyphens, spaces, and I or L in place of 1 do not matter: one spelling comes back."""
    typed = f"  {separator.join(code.split('-'))} "
    typed = typed.lower() if is_lower else typed.replace("1", "I")
    found = read(typed)
    assert found is not None
    assert found.reveal().decode() == code
    found = read(typed.replace("1", "l"))
    assert found is not None
    assert found.reveal().decode() == code


@given(codes, st.integers(0, 34), st.sampled_from(SYMBOLS + "0OU"))
def test_a_wrong_symbol_of_a_recovery_code_is_reported_with_its_group(code: str, at: int, symbol: str) -> None:
    """The message names the group with the mistake."""
    symbols = code.replace("-", "")
    typed = symbols[:at] + symbol + symbols[at + 1 :]
    if typed == symbols:
        assert read(typed) is not None
    else:
        assert wrong_groups(typed) == f"typing mistake in group {at // 5 + 1} of the recovery code"


@given(codes, st.integers(0, 6), st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_two_swapped_symbols_of_a_recovery_code_group_are_reported(
    code: str, group: int, places: tuple[int, int]
) -> None:
    """They may be anywhere in the group; two equal symbols are no mistake."""
    groups = code.split("-")
    symbols, (first, second) = list(groups[group]), places
    symbols[first], symbols[second] = symbols[second], symbols[first]
    typed = "-".join([*groups[:group], "".join(symbols), *groups[group + 1 :]])
    if typed == code:
        assert read(typed) is not None
    else:
        assert f"group {group + 1} " in wrong_groups(typed)


@given(codes, st.permutations(range(GROUPS)))
def test_recovery_code_groups_in_the_wrong_order_are_reported(code: str, order: list[int]) -> None:
    """Each group's check symbol depends on the place of the group."""
    groups = code.split("-")
    typed = "-".join(groups[number] for number in order)
    if typed == code:
        assert read(typed) is not None
    else:
        assert "typing mistake" in wrong_groups(typed)


@given(st.text(max_size=60))
def test_text_without_the_form_of_a_recovery_code_is_not_parsed_as_one(text: str) -> None:
    """A passphrase is never reported as a mistyped code unless it has the length of seven groups of five."""
    try:
        found = read(text)
    except MistypedError:
        assert len(text.replace("-", "").replace(" ", "").strip()) == 35
        return
    assert found is None
