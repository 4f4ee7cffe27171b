"""An inspection as one self-contained SVG: a histogram of lengths with cuts of maxLength, and shares. It follows light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import escape

from tuneyard.data.inspection import CHARACTERS_PER_TOKEN, Inspection
from tuneyard.data.row_statistics import Bin
from tuneyard.tracking.charts import nice_ticks, tick_label

_WIDTH, _HEIGHT = 760, 430
_LEFT, _RIGHT, _TOP, _PLOT_HEIGHT = 64, 24, 78, 200
_SHARES_TOP, _SHARE_STEP, _SHARE_LEFT, _SHARE_WIDTH = 336, 22, 190, 340
_CUT_NAME = 130
"""Width of a cut's label."""
_STYLE = """\
svg { color-scheme: light dark; background: #fff; font: 12px system-ui, "DejaVu Sans", sans-serif; }
text { fill: #3c4450; } .title { font-size: 16px; font-weight: 600; fill: #14181f; } .value { fill: #14181f; }
.grid { stroke: #d9dde3; } .axis { stroke: #8b93a0; } .cut { stroke: #c2500a; stroke-dasharray: 4 3; } .cutname { fill: #c2500a; }
.bar { fill: #1f6fc9; } .rest { fill: #e6e9ee; } .share { fill: #00916a; } .fault { fill: #c2500a; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181f; } text { fill: #aeb6c2; } .title, .value { fill: #f1f3f6; } .grid { stroke: #303743; }
  .cut { stroke: #ff9f5a; } .cutname { fill: #ff9f5a; } .bar { fill: #6aabf7; } .rest { fill: #303743; } .share { fill: #2fb58c; }
  .fault { fill: #ff9f5a; }
}"""


def picture(found: Inspection) -> str:
    """An SVG document."""
    in_tokens = bool(found.token_bins)
    bins = found.token_bins or found.character_bins
    cuts = found.longer_than if in_tokens else found.longer_than_assumed
    scale = 1 if in_tokens else CHARACTERS_PER_TOKEN
    parts = [f'<text class="title" x="{_LEFT}" y="30">{escape(_shortened(found.uri))}</text>']
    parts += [f'<text x="{_LEFT}" y="50">{escape(_what(found))}</text>']
    parts += _histogram(bins, cuts, scale, "tokens" if in_tokens else f"characters (cuts at {CHARACTERS_PER_TOKEN} characters a token)")
    parts += _shares(found)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(_shortened(found.uri))}: lengths and shares"><style>{_STYLE}</style>{"".join(parts)}</svg>\n'
    )


def percent(share: float) -> str:
    """A share as text. A share above 0 is never shown as 0."""
    return f"{share:.1%}" if share == 0 or share >= 0.0005 else "< 0.1%"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"…{text[-79:]}"


def _what(found: Inspection) -> str:
    if found.sampled:
        return f"{found.format} · a sample of {found.samples:,} rows of about {found.sampled.rows:,} · {found.files:,} x {found.file_type}"
    return f"{found.format} · {found.samples:,} rows{'' if found.complete else ' (the first)'} · {found.files:,} x {found.file_type}"


# --- lengths


def _histogram(bins: Sequence[Bin], cuts: Mapping[int, float], scale: int, unit: str) -> list[str]:
    """One bar per bin, all of equal width. A cut is drawn at its place between the edges of its bin."""
    if not bins:
        return [f'<text x="{_LEFT}" y="{_TOP + 40}">no lengths: the format is unknown, or no row can be used</text>']
    bottom = _TOP + _PLOT_HEIGHT
    ticks = nice_ticks(0, max(each.count for each in bins), most=4)
    step = (_WIDTH - _LEFT - _RIGHT) / len(bins)
    parts = []
    for tick in ticks:
        y = bottom - _PLOT_HEIGHT * tick / ticks[-1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_label(tick, ticks[1] - ticks[0])}</text>')
    every = math.ceil(len(bins) / 8)
    for number, each in enumerate(bins):
        x, height = _LEFT + number * step, _PLOT_HEIGHT * each.count / ticks[-1]
        parts.append(
            f'<rect class="bar" x="{x + 1:.1f}" y="{bottom - height:.1f}" width="{max(1.0, step - 2):.1f}" height="{height:.1f}">'
            f"<title>{each.low:,} to {each.high - 1:,}: {each.count:,} samples</title></rect>"
        )
        if number % every == 0:
            parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{each.low:,}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{bottom + 34}" text-anchor="end">length in {escape(unit)}</text>')
    for row, (limit, share) in enumerate(cuts.items()):
        place = _place(bins, limit * scale)
        if place is None:
            continue
        x, y = _LEFT + place * step, _TOP - 4 + 14 * (row % 3)
        parts.append(f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>')
        side = f'x="{x - 4:.1f}" text-anchor="end"' if x > _WIDTH - _CUT_NAME else f'x="{x + 4:.1f}"'
        parts.append(f'<text class="cutname" {side} y="{y}">{limit}: {escape(percent(share))} longer</text>')
    return parts


def _place(bins: Sequence[Bin], length: int) -> float | None:
    """The place of a length, in bins from the left; None where no sample is longer."""
    for number, each in enumerate(bins):
        if length < each.high:
            return number + max(0.0, (length - each.low) / max(1, each.high - each.low))
    return None


# --- shares


def _shares(found: Inspection) -> list[str]:
    rows = found.samples + found.bad
    loss, of_what = (found.loss_token_fraction, "tokens") if found.tokens else (found.loss_character_fraction, "characters")
    shares: list[tuple[str, float | None, str, str]] = [
        (f"{of_what} with loss", loss, "share", ""),
        ("duplicates", found.duplicate_fraction, "fault", f"at most {percent(found.most_duplicates)} of all" if found.sampled else ""),
        ("bad rows", found.bad / rows if rows else None, "fault", f"{found.bad:,}"),
        ("of these, empty", found.empty / rows if rows else None, "fault", f"{found.empty:,}"),
    ]
    parts = []
    for number, (name, share, style, note) in enumerate(each for each in shares if each[1] is not None):
        assert share is not None
        y = _SHARES_TOP + number * _SHARE_STEP
        width = max(_SHARE_WIDTH * share, 1.0 if share else 0.0)
        parts.append(f'<text x="{_SHARE_LEFT - 10}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="rest" x="{_SHARE_LEFT}" y="{y}" width="{_SHARE_WIDTH}" height="14" rx="2"/>')
        parts.append(f'<rect class="{style}" x="{_SHARE_LEFT}" y="{y}" width="{width:.1f}" height="14" rx="2"/>')
        value = percent(share) + (f" ({note})" if note else "")
        parts.append(f'<text class="value" x="{_SHARE_LEFT + _SHARE_WIDTH + 8}" y="{y + 11}">{escape(value)}</text>')
    return parts
