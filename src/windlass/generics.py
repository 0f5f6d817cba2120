"""The type variables of `Job`, `Call`, `Task` and `Continue`. A bare `Job` means `Job[Any]`.

Type checkers know `typing_extensions` by themselves; it is not needed to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)  # what the handler returns
    C_co = TypeVar(
        "C_co", covariant=True, default=Any
    )  # what a plain call of the function returns: perhaps a coroutine
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)
    C_co = TypeVar("C_co", covariant=True)

X = TypeVar("X")
