"""Medians, targets and the Markdown table."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .systems import System, version_of

Figures = Mapping[str, float]

# The columns of CPU time, µs a job. SQLite runs inside the worker, so its tables have the first column only.
CPU = {
    "worker": "cpu_microseconds",
    "claiming backend": "claiming_microseconds",
    "settling backend": "settling_microseconds",
    "server": "server_microseconds",
    "total": "total_microseconds",
}
KINDS = {
    "embedded": "embedded (from a wheel, with 256 MB of buffers and 4 GB of WAL)",
    "stock": "stock (an installed server, its default settings)",
    "own": "a server that ran already",
}


@dataclass
class Outcome:
    """The result of one system: its rounds, or the problem that prevented them."""

    system: System
    rounds: list[Figures] = field(default_factory=list)
    problem: str | None = None

    @property
    def medians(self) -> dict[str, float]:
        """Of the figures that all rounds have: a short drain may end before its backends are known."""
        names = (
            [name for name in self.rounds[0] if all(name in figures for figures in self.rounds)] if self.rounds else []
        )
        return {name: statistics.median(figures[name] for figures in self.rounds) for name in names}

    def to_json(self) -> dict[str, Any]:
        system = self.system
        return {
            "name": system.name,
            "title": system.title,
            "store": system.store,
            "version": version_of(system),
            "requirements": list(system.install.requirements),
            "options": system.options,
            "keeps_history": system.keeps_history,
            "slow": system.slow,
            "problem": _plain(self.problem) or None,
            "medians": rounded(self.medians),
            "rounds": [rounded(figures) for figures in self.rounds],
        }


@dataclass(frozen=True)
class Wish:
    """One comparison with its target."""

    what: str
    value: float
    wanted: float
    unit: str = " ×"
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"value": float(f"{self.value:.4g}"), "holds": self.holds}


def rounded(figures: Figures) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def wishes(outcomes: Iterable[Outcome]) -> list[Wish]:
    """Compare Windlass with the systems that were measured."""
    medians = {outcome.system.name: outcome.medians for outcome in outcomes if outcome.rounds}
    titles = {outcome.system.name: outcome.system.title for outcome in outcomes}
    ours, bare = medians.get("windlass"), medians.get("windlass-keep-0")
    peers = ("graphile-worker", "pg-boss", "pgqueuer", "oban", "procrastinate")
    found: list[Wish] = []

    def against(
        what: str, mine: Figures | None, name: str, figure: str, wanted: float, *, at_most: bool = False
    ) -> None:
        other = medians.get(name)
        if mine and other:
            ratio = mine[figure] / other[figure]
            found.append(Wish(f"{what}, against {titles[name]}", ratio, wanted, at_most=at_most))

    def best(figure: str, choose: Any) -> str:
        measured = [name for name in peers if name in medians]
        return str(choose(measured, key=lambda name: medians[name][figure])) if measured else ""

    against("drain, history kept", ours, "graphile-worker", "drain_per_second", 1.25)
    against("drain, keep=0", bare, "graphile-worker", "drain_per_second", 1.35)
    for what, mine, wanted in (("history kept", ours, 36.0), ("keep=0", bare, 29.0)):
        if mine and "total_microseconds" in mine:
            found.append(Wish(f"total CPU, {what}", mine["total_microseconds"], wanted, unit=" µs", at_most=True))
    against("bulk enqueue", ours, best("bulk_per_second", max), "bulk_per_second", 1.5)
    against("single enqueue", ours, best("single_per_second", max), "single_per_second", 1.0)
    against("pick-up p50", ours, best("pickup_p50_ms", min), "pickup_p50_ms", 1.0, at_most=True)
    against("pick-up p99", ours, best("pickup_p99_ms", min), "pickup_p99_ms", 1.0, at_most=True)
    rollback, wal = medians.get("sqlite-windlass"), medians.get("sqlite-windlass-wal")
    if rollback:
        found.append(Wish("SQLite drain, rollback journal", rollback["drain_per_second"], 25_000, unit="/s"))
    # Compare systems with the same journal mode only.
    for mine, names in ((rollback, ("huey-rollback", "litequeue-rollback")), (wal, ("huey", "litequeue"))):
        for name in names:
            against(f"SQLite drain, {'WAL' if mine is wal else 'rollback journal'}", mine, name, "drain_per_second", 10)
    return found


def markdown(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> str:
    lines = [
        "# Windlass and its peers, side by side",
        "",
        f"{about['jobs']:,} no-op jobs ({about['slow_jobs']:,} for those marked \\*, which take minutes), medians of "
        f"{about['rounds']}, order shuffled, each figure in a fresh database. "
        f"{about['cpus']} cores; PostgreSQL {_server(about)}, with fsync and synchronous_commit on; "
        f"SQLite {about['sqlite']}; load average {about['load_before']} before, {about['load_after']} after. "
        "Absolute figures move with the machine; compare within a table. Written by `make bench-peers`.",
        "",
        "- **drain**: one worker process, from the start of the first job until the database shows all jobs done",
        "- **CPU**: µs of CPU time for one job of the drain, user and system; other work on the machine affects it "
        "less than the rate. **worker**: the worker process. **server**: all processes of PostgreSQL, without the "
        "connection of this benchmark. **claiming** and **settling** are parts of it: the backends where Windlass "
        "claims and settles jobs. **total**: worker and server",
        "- **bulk**: the system's own bulk call; **single**: one after another, each its own commit, one connection",
        "- **pick-up**: an idle worker, jobs sent 5 ms apart by another process; from just before the call to enqueue "
        "until the handler starts",
        "- **RSS**: the highest RSS of the worker during the drain",
    ]
    for store, heading in (("postgres", "PostgreSQL"), ("sqlite", "SQLite")):
        chosen = [outcome for outcome in outcomes if outcome.system.store == store]
        if chosen:
            cpu = CPU if store == "postgres" else {"worker": CPU["worker"]}
            lines += ["", f"## {heading}", "", *_table(chosen, cpu)]
    found = wishes(outcomes)
    if found:
        lines += ["", "## Targets", "", "| comparison | measured | target | |", "|---|---:|---:|---|"]
        for wish in found:
            sign, mark = "≤" if wish.at_most else "≥", "yes" if wish.holds else "**no**"
            lines.append(
                f"| {wish.what} | {_shown(wish.value, wish.unit)} | {sign} {_shown(wish.wanted, wish.unit)} | {mark} |"
            )
    return "\n".join(lines) + "\n"


def _server(about: Mapping[str, Any]) -> str:
    return f"{about['postgres']}, {KINDS[about['postgres_kind']]}" if about["postgres"] else "–"


def _table(outcomes: Sequence[Outcome], cpu: Mapping[str, str]) -> list[str]:
    numbers = ["drain/s", *(f"CPU, {name}" for name in cpu), "bulk/s", "single/s", "pick-up p50 / p99, ms", "RSS, MB"]
    lines = [
        f"| system | {' | '.join(numbers)} | history | options |",
        f"|---|{'---:|' * len(numbers)}---|---|",
    ]
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.medians.get("drain_per_second", 0)):
        system, figures = outcome.system, outcome.medians
        name = f"{system.title} ({version_of(system)})" + (r" \*" if system.slow else "")
        if not figures:
            empty = "| " * len(numbers)
            lines.append(f"| {name} | not measured: {_plain(outcome.problem)} {empty}| {system.options} |")
            continue
        pickup = (
            f"{figures['pickup_p50_ms']:.1f} / {figures['pickup_p99_ms']:.1f}" if system.has_worker else "no worker"
        )
        cells = [
            f"**{name}**" if "windlass" in system.name else name,
            f"{figures['drain_per_second']:,.0f}",
            *(f"{figures[key]:,.1f}" if key in figures else "–" for key in cpu.values()),
            f"{figures['bulk_per_second']:,.0f}",
            f"{figures['single_per_second']:,.0f}",
            pickup,
            f"{figures['resident_megabytes']:.0f}",
            "yes" if system.keeps_history else "no",
            system.options + (f"; a round failed: {_plain(outcome.problem)}" if outcome.problem else ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _plain(text: str | None) -> str:
    """The text for a cell of a table: without bars, and without addresses and paths of this machine."""
    return re.sub(r"\w+://\S+|(?<!\w)/\S+/\S+", "…", text or "").replace("|", "/")


def _shown(value: float, unit: str) -> str:
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:.2f}{unit}"
