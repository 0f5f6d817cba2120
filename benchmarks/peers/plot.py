"""A small bar chart in SVG: four panels, one bar for each system."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .report import Outcome

WIDTH, LABEL, BAR, GAP, HEAD, ROOM_FOR_NUMBER = 760, 170, 14, 6, 34, 70
OURS, THEIRS, INK, FAINT = "#2f6f4f", "#9aa5b1", "#57606a", "#c5ced6"

PANELS = (
    ("drain, jobs/s (more is better)", "drain_per_second", None),
    ("bulk enqueue, jobs/s (more is better)", "bulk_per_second", None),
    ("single enqueue, jobs/s (more is better)", "single_per_second", None),
    ("pick-up, ms: p50, and p99 as a line (less is better)", "pickup_p50_ms", "pickup_p99_ms"),
)


def svg(outcomes: Sequence[Outcome]) -> str:
    measured = [outcome for outcome in outcomes if outcome.system.store == "postgres" and outcome.rounds]
    parts: list[str] = []
    top = 8
    for title, figure, whisker in PANELS:
        panel, height = _panel(measured, title, figure, whisker, top)
        parts += panel
        top += height
    style = "font-family:system-ui,sans-serif;font-size:12px"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
        f'style="{style}" role="img" aria-label="Windlass and its peers">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(
    outcomes: Sequence[Outcome], title: str, figure: str, whisker: str | None, top: int
) -> tuple[list[str], int]:
    rows = [(outcome.system, outcome.medians) for outcome in outcomes]
    rows.sort(key=lambda row: row[1][figure], reverse=whisker is None)
    longest = max((figures[whisker or figure] for _, figures in rows), default=1.0)
    scale = (WIDTH - LABEL - ROOM_FOR_NUMBER) / longest
    parts = [f'<text x="0" y="{top + 16}" fill="{INK}" font-weight="600">{escape(title)}</text>']
    for index, (system, figures) in enumerate(rows):
        y = top + HEAD + index * (BAR + GAP)
        value = figures[figure]
        width = max(1.0, value * scale)
        ours = "windlass" in system.name
        parts.append(f'<text x="{LABEL - 8}" y="{y + 11}" text-anchor="end" fill="{INK}">{escape(system.title)}</text>')
        parts.append(
            f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{OURS if ours else THEIRS}"/>'
        )
        end, label = width, f"{value:,.0f}"
        if whisker is not None:
            end, label = figures[whisker] * scale, f"{value:.1f} / {figures[whisker]:.1f}"
            middle = y + BAR / 2
            parts.append(
                f'<line x1="{LABEL + width:.1f}" x2="{LABEL + end:.1f}" y1="{middle}" y2="{middle}" '
                f'stroke="{FAINT}" stroke-width="2"/>'
            )
        parts.append(f'<text x="{LABEL + end + 6:.1f}" y="{y + 11}" fill="{INK}">{label}</text>')
    return parts, HEAD + len(rows) * (BAR + GAP) + 14
