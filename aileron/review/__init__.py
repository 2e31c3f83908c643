"""The card that a person sees before they decide, the same on every surface, and what it is made of.

headline.py what would happen, in a sentence · weight.py how loudly it is asked · alarms.py what must be seen · several.py,
touched.py how many · plan.py a run · subject.py a consent · question.py facts around either · changes.py what differs ·
letters.py look-alike letters · amounts.py numbers · card.py the whole card · listed.py, row.py a row of a list ·
signed_view.py what is shown is what is signed · decision_flow.py one decision, step by step · record.py a run on record

Pure. Used by the command line, the console and the page, which lay it out and never decide what matters.
"""
