"""The picture of engine starts: one bar for each, one colour for each phase, a scale in seconds below.

In: runs with their phases. Out: SVG that needs nothing else. Refuses to know: pages, reports, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from warmops.phases import PHASE_NAMES, UNATTRIBUTED
from warmops.report import Run

# Grey: before vLLM's process; yellow, brown: Python; blue: weights; green: graphs, memory; violet: server.
COLOURS = {
    "old engine stops": "#9aa5b1",
    "container starts": "#7b8794",
    "entry point": "#52606d",
    "wait for weight cache": "#64748b",
    "wait for nursery": "#e0b84d",
    "move process ids": "#a8a29e",
    "begin process": "#78716c",
    "imports": "#c99a2e",
    "configuration": "#a0651c",
    "engine process": "#b8860b",
    "device": "#5f4b32",
    "make model": "#94c5ff",
    "weights": "#2563eb",
    "finish model": "#6ba3e8",
    "compile: trace": "#14532d",
    "compile: load": "#166534",
    "compile: build": "#15803d",
    "compile: rest": "#22c55e",
    "KV cache": "#86efac",
    "graph capture": "#0d9488",
    "warm up": "#5eead4",
    "server": "#7c5cc4",
    "listen": "#a78bfa",
    "first token": "#d6456b",
    UNATTRIBUTED: "#d0d0d0",
}
_ROW, _BAR = 26, 18
_SCALE_HEIGHT = 30
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9)
_MOST_TICKS = 12
# A phase that is too short to be seen needs no entry in a legend.
_LEGEND_SHARE = 0.01
_KEYS_IN_A_ROW = 6


def render_svg(runs: Sequence[Run], *, left: int = 190, width: int = 720) -> str:
    """For a page that draws text in its own colour and has a legend. `left`: room for names, in units."""
    height = len(runs) * _ROW + _SCALE_HEIGHT
    names = [name_of(run) for run in runs]
    return _svg(left + width + 70, height, _bars(runs, names, left, width))


def render_picture(
    runs: Sequence[Run], titles: Mapping[str, str], *, left: int = 330, width: int = 560
) -> str:
    """A picture that stands alone: one start of each kind under its title, with a legend, on white."""
    names = [escape(titles[run.kind]) for run in runs]
    bottom = len(runs) * _ROW + _SCALE_HEIGHT
    keys = _keys(runs)
    rows = -(-len(keys) // _KEYS_IN_A_ROW)
    total, height = left + width + 70, bottom + rows * 20 + 8
    style = "<style>text{font:12px system-ui,sans-serif;fill:#222}</style>"
    ground = f'<rect width="{total}" height="{height}" fill="#fff"/>'
    legend = []
    for at, name in enumerate(keys):
        x, y = 12 + at % _KEYS_IN_A_ROW * (total // _KEYS_IN_A_ROW), bottom + 14 + at // _KEYS_IN_A_ROW * 20
        legend.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{COLOURS[name]}"/>')
        legend.append(f'<text x="{x + 16}" y="{y}">{escape(name)}</text>')
    return _svg(total, height, [style, ground, *_bars(runs, names, left, width), *legend])


def name_of(run: Run) -> str:
    return escape(f"{run.kind} #{run.repetition}")


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _bars(runs: Sequence[Run], names: Sequence[str], left: int, width: int) -> list[str]:
    longest = max((p.begin + p.seconds for run in runs for p in run.phases), default=0.0) or 1.0
    scale = width / longest
    height = len(runs) * _ROW + _SCALE_HEIGHT
    step = next(s for s in _STEPS if longest / s <= _MOST_TICKS)
    ticks = [
        f'<line x1="{left + at * scale:.1f}" x2="{left + at * scale:.1f}" y1="0" y2="{height - 24}" '
        f'stroke="currentColor" stroke-opacity=".15"/>'
        f'<text x="{left + at * scale:.1f}" y="{height - 8}" text-anchor="middle">{at} s</text>'
        for at in range(0, int(longest) + 1, step)
    ]
    return ticks + [
        _bar(run, name, row, left, scale) for row, (run, name) in enumerate(zip(runs, names, strict=True))
    ]


def _bar(run: Run, name: str, row: int, left: int, scale: float) -> str:
    top = row * _ROW + 4
    parts = [f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{name}</text>']
    for phase in run.phases:
        x, width = left + phase.begin * scale, max(phase.seconds * scale, 0.5)
        title = escape(f"{phase.name}: {phase.seconds:.3f} s")
        parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{COLOURS[phase.name]}">'
            f"<title>{title}</title></rect>"
        )
    end = max((p.begin + p.seconds for p in run.phases), default=0.0)
    words = f"{end:.1f} s" if run.phases else "no moments known"
    parts.append(f'<text x="{left + end * scale + 6:.1f}" y="{top + 13}">{words}</text>')
    return "".join(parts)


def _keys(runs: Sequence[Run]) -> list[str]:
    longest = max((p.begin + p.seconds for run in runs for p in run.phases), default=0.0)
    seen = {p.name for run in runs for p in run.phases if p.seconds >= _LEGEND_SHARE * longest}
    return [name for name in (*PHASE_NAMES, UNATTRIBUTED) if name in seen]
