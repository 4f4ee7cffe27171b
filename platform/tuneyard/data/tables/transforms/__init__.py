"""Transformations of features, declared as data: operations of DPP (Zhao et al. 2022, table 11) as vectorised kernels on Arrow."""

from tuneyard.data.tables.transforms.fitting import Statistic, fitted, statistics, with_statistics
from tuneyard.data.tables.transforms.pipeline import OPERATIONS, Pipeline, Sampling

__all__ = ["OPERATIONS", "Pipeline", "Sampling", "Statistic", "fitted", "statistics", "with_statistics"]
