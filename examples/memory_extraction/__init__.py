"""What people say in passing, remembered: completions are answered at once, memories are extracted behind their back.

`extraction.py` is the system, `web.py` its face; the rest can be exchanged: who extracts, who embeds, where it is kept.
"""
