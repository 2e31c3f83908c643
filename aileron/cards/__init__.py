"""The card that a person sees before they decide, which is the same on every surface, and the parts that it is made of.

headline.py the sentence that says what would happen · weight.py how prominently to ask · alarms.py warnings · several.py,
touched.py the number of addresses or items in a value · plan.py a run · subject.py a consent · question.py facts about the
question · changes.py differences · letters.py look-alike letters · amounts.py numbers · card.py the complete card · listed.py,
row.py a row of a list · signed_view.py showing exactly what is signed · decision_flow.py the steps of one decision · record.py
a recorded run · together.py several requests on one card, apart.py why not · compared.py an earlier approved call · granted.py
the limits of a grant · lookalike.py look-alike hosts · recipients.py the recipients in a call

Pure. Used by the command line, the console and the page, which only lay out the card and never decide what it contains. The
daemon makes the rows of lists with listed.py.
"""
