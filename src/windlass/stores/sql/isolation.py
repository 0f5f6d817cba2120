"""The isolation level of a caller's transaction, checked before operations that are not exact at a stricter level.

In REPEATABLE READ and SERIALIZABLE a transaction only sees the state from its beginning. Operations that have to see
later commits (whether an id has run already, which jobs wait for a job that ends) would miss them.
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
