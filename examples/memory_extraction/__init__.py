"""Extract memories from conversations: the API answers at once, and a job extracts the memories later.

`extraction.py` is the system, `web.py` its HTTP API. You can replace the other parts: the extractor, the embedder, the
database.
"""
