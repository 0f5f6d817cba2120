"""The isolation level of a caller's transaction, asked for where what we are to do would not be exact in a strict one.

In REPEATABLE READ and SERIALIZABLE a transaction goes on seeing what was there when it began. What rests on looking
again (whether an id has run already, who waits for a job that ends) would miss what has happened since.
"""

from __future__ import annotations

from ...errors import InvalidInput
from ...operation import Current, Rows, Statement
from .query import Query

LEVEL = Statement(Query("level", "SHOW transaction_isolation"))
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


def refuse_stricter(level: Rows, step: Current) -> None:
    ((name,),) = level
    if name != "read committed":
        raise InvalidInput(
            f"this transaction is {name.upper()}: {step.what}, which needs to see what others have committed since it "
            "began. Nothing of it was written. Use a READ COMMITTED transaction for this, or no connection="
        )
