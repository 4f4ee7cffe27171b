"""Facts: GPUs with their peaks and links, shapes of models, and the FLOPs and parameters that follow from both. Loads nothing heavy."""

from tuneyard.catalog.adapters import adapted_projections, trainable_parameters
from tuneyard.catalog.flops import Flops, forward_flops, train_flops
from tuneyard.catalog.gpus import Gpu, gpu, known_skus
from tuneyard.catalog.local import LocalDevice, local_devices, local_sku
from tuneyard.catalog.shapes import ModelShape, Projection

__all__ = [
    "Flops",
    "Gpu",
    "LocalDevice",
    "ModelShape",
    "Projection",
    "adapted_projections",
    "forward_flops",
    "gpu",
    "known_skus",
    "local_devices",
    "local_sku",
    "train_flops",
    "trainable_parameters",
]
