"""The picture of a load: the time to first token of each request over time, the event's phases as bands.

In: one judged run. Out: an SVG element that stands alone and reads well on a light and on a dark page. It
refuses to judge: a mark shows what became of a request, not whether that was allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from warmops.load_judge import Judged
from warmops.load_plan import Band, LoadRun, Outcome, Request

_LEFT, _WIDTH, _RIGHT, _HEIGHT, _BELOW = 44, 880, 16, 260, 34
_LABEL_ROW, _LETTER = 15, 6.2
_BAND_COLOURS = ("#3b7dd8", "#c99a2e", "#2f9e5f", "#7c5cc4")
_STREAM, _PLAIN, _ERROR_EVENT, _BAD = "#3b7dd8", "#8a94a0", "#e8590c", "#d6336c"

LEGEND = (
    ("●", _STREAM, "stream: seconds to its first token"),
    ("○", _PLAIN, "without a stream: seconds to the whole answer"),
    ("▲", _ERROR_EVENT, "stream that ended with an error event"),
    ("◆", _BAD, "answer that was cut"),
    ("✕", _BAD, "failed request"),
)


def render_svg(judged: Judged) -> str:
    """Points over the seconds of the run; what did not answer stands where it ended."""
    run = judged.run
    chart = _Chart(run)
    parts = [*chart.bands(), *chart.grid(), *(chart.mark(request) for request in run.requests)]
    size = f'viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {chart.top + _HEIGHT + _BELOW}"'
    title = f"<title>{escape(run.event)} #{run.repetition}: seconds to first token over time</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}{"".join(parts)}</svg>'


def waited(request: Request) -> float:
    """Seconds from when it was meant to be sent to its first token, or to its end where there was none."""
    until = request.first_token_at if request.first_token_at is not None else request.ended_at
    if request.outcome is not Outcome.ANSWERED:
        until = request.ended_at
    return until - request.intended_at


class _Chart:
    """Seconds to places. `top` leaves room for the names of the phases above the chart."""

    def __init__(self, run: LoadRun) -> None:
        self._run = run
        self._labels = _labels(run)
        self.top = 6 + _LABEL_ROW * (1 + max((row for _, row, _ in self._labels), default=-1))
        self._seconds = max(run.ended_at - run.begun_at, 0.001)
        self._longest = max((waited(request) for request in run.requests), default=0.0) * 1.05 or 1.0

    def x(self, moment: float) -> float:
        return _LEFT + _place(moment, self._run)

    def y(self, seconds: float) -> float:
        return self.top + _HEIGHT * (1 - seconds / self._longest)

    def bands(self) -> Iterable[str]:
        for index, (band, row, left) in enumerate(self._labels):
            x, width = self.x(band.begin), max(self.x(band.end) - self.x(band.begin), 1.0)
            colour = _BAND_COLOURS[index % len(_BAND_COLOURS)]
            words = f"{band.name}: {band.end - band.begin:.1f} s"
            baseline = 11 + row * _LABEL_ROW
            yield (
                f'<rect x="{x:.1f}" y="{self.top}" width="{width:.1f}" height="{_HEIGHT}" fill="{colour}" '
                f'fill-opacity=".16"><title>{escape(words)}</title></rect>'
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{baseline + 3}" y2="{self.top + _HEIGHT}" '
                f'stroke="{colour}" stroke-opacity=".7"/>'
                f'<text x="{_LEFT + left:.1f}" y="{baseline}">{escape(band.name)}</text>'
            )

    def grid(self) -> Iterable[str]:
        right, bottom = _LEFT + _WIDTH, self.top + _HEIGHT
        for at in _ticks(self._longest, 5):
            yield (
                f'<line x1="{_LEFT}" x2="{right}" y1="{self.y(at):.1f}" y2="{self.y(at):.1f}" '
                f'stroke="currentColor" stroke-opacity=".15"/>'
                f'<text x="{_LEFT - 6}" y="{self.y(at) + 4:.1f}" text-anchor="end">{at:g} s</text>'
            )
        for at in _ticks(self._seconds, 10):
            x = self.x(self._run.begun_at + at)
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="currentColor" '
                f'stroke-opacity=".5"/>'
                f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{at:g} s</text>'
            )

    def mark(self, request: Request) -> str:
        x, y = self.x(request.intended_at), self.y(waited(request))
        begin = request.intended_at - self._run.begun_at
        words = f"client {request.client}, {begin:.1f} s: {request.outcome} after {waited(request):.2f} s"
        if request.message:
            words += f": {request.message}"
        return f"{_shape(request, x, y)}<title>{escape(words)}</title></{_element(request)}>"


def _element(request: Request) -> str:
    return "circle" if request.outcome is Outcome.ANSWERED else "path"


def _shape(request: Request, x: float, y: float) -> str:
    if request.outcome is Outcome.ANSWERED:
        style = f'fill="{_STREAM}"' if request.streaming else f'fill="none" stroke="{_PLAIN}"'
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" {style}>'
    if request.outcome is Outcome.ERROR_EVENT:
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{_ERROR_EVENT}">'
    if request.outcome is Outcome.CUT:
        return f'<path d="M{x:.1f} {y - 6:.1f}l5 6l-5 6l-5 -6z" fill="{_BAD}">'
    return f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{_BAD}" stroke-width="2" fill="none">'


def _labels(run: LoadRun) -> list[tuple[Band, int, float]]:
    """Each band with the row of its name and where that begins, so that no name lies over another."""
    bands = run.seen.bands if run.seen is not None else ()
    ends: list[float] = []
    placed = []
    for band in bands:
        width = len(band.name) * _LETTER
        left = min(_place(band.begin, run) + 3, _WIDTH - width)
        row = next((row for row, end in enumerate(ends) if end < left), len(ends))
        ends[row:] = [left + width + 8, *ends[row + 1 :]]
        placed.append((band, row, left))
    return placed


def _place(moment: float, run: LoadRun) -> float:
    return _WIDTH * (moment - run.begun_at) / max(run.ended_at - run.begun_at, 0.001)


def _ticks(longest: float, most: int) -> Sequence[float]:
    """Round numbers from 0 to `longest`, at most `most` steps."""
    sizes = [base * 10.0**power for power in range(-3, 7) for base in (1, 2, 5)]
    step = next((size for size in sizes if longest / size <= most), longest)
    return [step * count for count in range(int(longest / step) + 1)]
