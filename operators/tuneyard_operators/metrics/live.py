"""Collects the samples of the leading hub when Prometheus asks.

A replica that does not lead tells nothing: an old value of a former leader would hide what the present leader sees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tuneyard_operators.metrics.families import FAMILIES, Family, Sample

log = logging.getLogger(__name__)
Source = Callable[[], Iterable[Sample]]


class LiveState(Collector):
    """`sources`: of the hub in this process while it leads; none otherwise."""

    def __init__(self) -> None:
        self.sources: tuple[Source, ...] = ()

    def describe(self) -> Iterator[Metric]:
        return (_metric(family) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        metrics = {family: _metric(family) for family in FAMILIES}
        for source in self.sources:
            try:
                for family, labels, value in source():
                    metrics[family].add_metric(labels, value)
            except Exception:  # one broken object must not take the other metrics away
                log.exception("metrics cannot be told in full")
        return iter(metrics.values())


def _metric(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    made = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    return made(family.name, family.help, labels=family.labels)
