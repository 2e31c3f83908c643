"""What a person is shown before they decide: the same facts, in the same order, on every surface.

plan.py a run · subject.py a consent · question.py what is said around either · changes.py what is other than before ·
preview_mismatch.py a preview against the arguments · sheet.py all of it for a screen · signed_view.py what is shown is what is
signed · decision_flow.py one decision, step by step · record.py a run on record

Pure. Used by the command line, the console and the page, which lay it out and never decide what matters.
"""
