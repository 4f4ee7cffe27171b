"""Peak memory of a task's ranks beside the plan, in comparable parts.

On `cpu` both are the resident memory of a process, and its libraries are a part of both. On GPUs libraries are in the host's memory, and
the measured peak is what torch has allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.tracking.charts import Bar, Chart, Part, bar_chart
from tuneyard.tracking.formats import gigabytes

MOST_RANKS = 16
_TERMS = ("weights", "gradients", "optimizer", "optimizer_step", "activations", "libraries", "other")
_STYLES = {term: f"p{index + 1}" for index, term in enumerate(_TERMS)}


@dataclass(frozen=True)
class Peak:
    """Measured peak of one rank in GB, and the part of it that its libraries take; None if that is not known."""

    total: float
    libraries: float | None = None

    @property
    def own(self) -> float:
        return self.total - (self.libraries or 0.0)


@dataclass(frozen=True)
class MemoryFigure:
    """The highest peak, and the plan in the same terms."""

    shown: str
    note: str


def memory_of(task: Mapping[str, Any]) -> MemoryFigure | None:
    """None without a measurement."""
    peaks = _peaks(task)
    if not peaks:
        return None
    highest = max(peaks, key=lambda peak: peak.total)
    terms = _planned_terms(task)
    planned = sum(terms.values()) or task.get("planned_memory_gb") or 0.0
    note = f"of one rank; planned {gigabytes(planned)}" if planned else "of one rank"
    if highest.libraries and terms.get("libraries"):
        ours = gigabytes(planned - terms["libraries"])
        note += (
            f"; libraries take {gigabytes(highest.libraries)} (planned {gigabytes(terms['libraries'])}),"
            f" the task {gigabytes(highest.own)} (planned {ours})"
        )
    return MemoryFigure(gigabytes(highest.total), note)


def memory_chart(task: Mapping[str, Any]) -> Chart:
    peaks = _peaks(task)
    terms = _planned_terms(task)
    parts = [Part(term.replace("_", " "), value, _STYLES[term]) for term, value in terms.items()]
    bars = [Bar("planned", parts)] if parts else []
    legend = [(part.name, part.style, gigabytes(part.value)) for part in parts]
    if not parts and task.get("planned_memory_gb"):
        bars.append(Bar("planned", [Part("planned", task["planned_memory_gb"], _STYLES["other"])]))
    bars += [Bar(f"rank {rank}", _measured(peak)) for rank, peak in enumerate(peaks[:MOST_RANKS])]
    if len(peaks) > MOST_RANKS:
        bars.append(Bar(f"{len(peaks)} ranks", _measured(max(peaks, key=lambda peak: peak.total))))
    if parts and peaks:
        legend.append(("measured", "c1", ""))
    return Chart("Memory per rank, planned and measured", bar_chart(bars, title="Memory per rank", value_label=gigabytes), legend)


def _measured(peak: Peak) -> list[Part]:
    libraries = [Part("libraries", peak.libraries, _STYLES["libraries"])] if peak.libraries else []
    return [*libraries, Part("peak of the task" if libraries else "peak", peak.own, "c1")]


def _peaks(task: Mapping[str, Any]) -> list[Peak]:
    """The peak of each rank at its end; while the task runs, the highest that rank 0 has seen."""
    found = task.get("peak_memory_gb")
    if isinstance(found, int | float):
        return [Peak(float(found))]
    if found:
        libraries = task.get("libraries_gb") if _on_cpu(task) else None
        known = libraries if isinstance(libraries, list) and len(libraries) == len(found) else [None] * len(found)
        return [Peak(peak, part) for peak, part in zip(found, known, strict=True) if peak is not None]
    seen = [value for value in (task.get("series") or {}).get("memory_gb", []) if value is not None]
    return [Peak(max(seen))] if seen else []


def _on_cpu(task: Mapping[str, Any]) -> bool:
    """On GPUs, libraries are in the host's memory, and the peak is not."""
    return (task.get("plan") or {}).get("sku") == "cpu"


def _planned_terms(task: Mapping[str, Any]) -> dict[str, float]:
    """The terms of the plan that are not 0."""
    memory = (task.get("plan") or {}).get("memory") or {}
    return {term: memory[f"{term}_gb"] for term in _TERMS if memory.get(f"{term}_gb")}
