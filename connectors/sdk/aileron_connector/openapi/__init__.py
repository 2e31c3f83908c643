"""Operations that an OpenAPI document describes: a connector of one line, and a document beside it.

document.py the packed document as types
"""
