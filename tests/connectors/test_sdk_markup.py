"""HTML as text: visible text, and hidden text apart from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector.markup import text_from, texts_from

HIDDEN = [
    'a<span style="display:none">X</span>b',
    "a<i style=display:none>X</i>b",
    "a<span hidden>X</span>b",
    "<style>.x{display:none}</style>a<b class='y x'>X</b>b",
    "<style>#x,.q{color:#fff}</style>a<i id=x>X</i>b",
    "<style>p.n > span{font-size:1px}</style><p class=n>a<span>X</span>b",
    "<style>@media screen{.x{display:none}}</style>a<i class=x>X</i>b",
    "<style>/* { */ td .x{mso-hide:all}</style>a<i class=x>X</i>b",
    'a<i style="font-size:0">X</i>b',
    'a<i style="font:0/0 a">X</i>b',
    'a<i style="opacity:0.01">X</i>b',
    "a<font color=white>X</font>b",
    'a<i style="color:#fefefe">X</i>b',
    'a<i style="color:transparent">X</i>b',
    'a<i style="color:rgba(0,0,0,0)">X</i>b',
    'a<i style="color:rgb(255 255 255 / 90%)">X</i>b',
    'a<i style="background:foo;color:#fff">X</i>b',
    '<table bgcolor=#000000><tr><td style="color:#fff">a<i style="color:black">X</i>b',
    'a<i style="visibility:hidden">X<u style="visibility:visible">b</u></i>',
    'a<i style="position:absolute;left:-9999px">X</i>b',
    'a<i style="text-indent:-9999px">X</i>b',
    'a<i style="margin:0 0 0 -9999px">X</i>b',
    'a<i style="transform:translate(-9999px, 0)">X</i>b',
    'a<i style="transform:scale(0)">X</i>b',
    'a<i style="clip-path:inset(100%)">X</i>b',
    'a<div style="max-height:0;overflow:hidden">X</div>b',
    r'a<i style="d\69splay: none !important">X</i>b',
    'a<i style="&#100;isplay:none">X</i>b',
    f'a<i data-x="{"y" * 9000}" style="display:none">X</i>b',
    'a<div style="display:none"/>X</div>b',
    '<p style="display:none">X<p>ab',
    "a<dialog>X</dialog>b",
    'a<i style="display:none"><a href="https://x.example">X</a></i>b',
    "a" + "<i>" * 2000 + "X",
]


@pytest.mark.abuse_case("T9")
@pytest.mark.parametrize("page", HIDDEN)
def test_hidden_text_is_separate_from_visible_text(page: str) -> None:
    """Mails hide text in many ways, to address programs and not people; each known way is tried."""
    texts = texts_from(f"<body><p>{page}")
    assert "X" not in texts.seen
    assert "X" in texts.hidden
    assert texts.seen.startswith("a")
    assert text_from(f"<body><p>{page}") == texts.seen


SEEN = [
    "<p>abX",
    '<body bgcolor="#112233"><p style="color:#fff">abX',
    '<td style="background:midnightblue;color:white">abX',
    '<a style="color:#fff;background:url(x.png)">abX</a>',
    '<td style="font-size:0"><span style="font-size:14px">abX</span>',
    "<style>@media (max-width:600px){.d{display:none}}</style><p class=d>abX",
    "<style>.x{display:none}</style><p class=x style='display:block'>abX",
    "<style>a:hover{display:none}</style><a>abX</a>",
    '<p style="visibility:visible;opacity:.9;margin-left:-10px;font:bold 12px/1 Arial">abX',
    "<!-- n --><i style='display:none'></i>abX",
]


@pytest.mark.parametrize("page", SEEN)
def test_visible_text_of_newsletters_is_not_treated_as_hidden(page: str) -> None:
    """The cases are from newsletters, whose styles resemble those that hide text."""
    assert texts_from(page) == ("abX", "")


@pytest.mark.parametrize(
    "page",
    [
        '<p style="transform:' + "translate(" * 50_000,
        "<style>.a" + "[b" * 100_000 + "{color:#fff}</style>",
        "<style>" + ".a{color:#fff}" * 2000 + "</style>" + "<i class=a>" * 40_000,
        '<p style="background:' + "rgb( " * 100_000,
        "<b style='color:red'>x</b>" * 20_000,
    ],
    ids=["transform", "selector", "rules", "colors", "styles"],
)
def test_html_styles_that_are_slow_to_parse_are_read_within_the_time_limit(page: str) -> None:
    """A quadratic reader takes minutes, and fails by the test's time limit."""
    assert isinstance(text_from(page), str)


@given(st.text(alphabet="<>/='\";:{}()%-.#@abdefhilnopsty 01", max_size=200))
def test_any_html_is_read_as_visible_and_hidden_text_without_an_exception(page: str) -> None:
    """The reader raises no exception."""
    seen, hidden = texts_from(f"<style>{page}</style><p style='{page}'>{page}")
    assert (isinstance(seen, str), isinstance(hidden, str)) == (True, True)
