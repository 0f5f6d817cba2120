"""Stores of other packages: entry points of the group `windlass.stores`, each named by the scheme of its URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import InvalidInput, MissingExtra
from .stores.opening import SCHEMES, open_store
from .stores.store import Store
from .stores.urls import without_password

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "windlass.stores"
BUILT_IN = frozenset({"sqlite", "postgres", "postgresql", "mongodb", "mongodb+srv"})  # no package can replace these


def find_store(url: Any, *, schema: str, prefix: str, pool_size: int) -> Store:
    """The store of a URL. A factory of another package is called with the same arguments as this function."""
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not separator or scheme in BUILT_IN:
        return open_store(url, schema=schema, prefix=prefix, pool_size=pool_size)
    factory = _load(_entry_point(scheme, without_password(url)))
    return check_store(factory(url, schema=schema, prefix=prefix, pool_size=pool_size))


def check_store(store: Any) -> Store:
    """Refuse an object that lacks a part of the contract, with the names of the missing parts."""
    names = {name for name in {*vars(Store), *Store.__annotations__} if not name.startswith("_")}
    missing = sorted(name for name in names if not hasattr(store, name))
    if missing:
        raise InvalidInput(
            f"{store!r} is not a store: it has no {', '.join(missing)}; the contract is windlass.stores.store.Store"
        )
    checked: Store = store
    return checked


def _entry_point(scheme: str, shown_url: str) -> EntryPoint:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    found = entry_points(group=GROUP, name=scheme)
    if len(found) == 1:
        return next(iter(found))
    if found:
        packages = " and ".join(sorted(_package(one) for one in found))
        raise InvalidInput(f"{shown_url}: {packages} both add a store for {scheme}://: uninstall one of them")
    known = ", ".join([SCHEMES, *sorted(f"{one.name}://…" for one in entry_points(group=GROUP))])
    if scheme.partition("+")[0] in BUILT_IN:
        raise InvalidInput(f"{shown_url}: leave the driver's name out, as in {scheme.partition('+')[0]}://…")
    raise InvalidInput(
        f"{shown_url}: no such kind of store; a URL is one of {known}. A package adds others by entry points of the "
        f"group {GROUP}"
    )


def _load(entry_point: EntryPoint) -> Any:
    try:
        return entry_point.load()
    except (ImportError, AttributeError) as error:
        package = _package(entry_point)
        raise MissingExtra(
            f"{package} adds a store for {entry_point.name}://, but {entry_point.value} cannot be imported: {error}"
        ) from error


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else entry_point.value
