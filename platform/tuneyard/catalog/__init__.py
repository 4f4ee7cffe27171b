"""Facts: GPUs with their peaks and links, shapes of models, and their FLOPs and parameters. Imports nothing heavy."""

from tuneyard.catalog.adapters import adapted_projections, trainable_parameters
from tuneyard.catalog.attention import WIDEST_FLASH_HEAD, attention_kinds, has_varlen
from tuneyard.catalog.devices import gpu, rules_device
from tuneyard.catalog.encoders import GeneratesNothing, refuse_encoders
from tuneyard.catalog.families import shape_from_config, shape_from_folder
from tuneyard.catalog.flops import Flops, forward_flops, train_flops
from tuneyard.catalog.gpu_entries import entry_of, given_json, keep
from tuneyard.catalog.gpus import Gpu, canonical_sku, gpu_resource, kinds, known_devices, known_skus, needs_measuring
from tuneyard.catalog.liger import has_fused_loss, has_liger
from tuneyard.catalog.local import LocalDevice, local_devices, local_sku
from tuneyard.catalog.open_models import known_config, known_models, published_parameters
from tuneyard.catalog.shapes import ModelShape, Projection

__all__ = [
    "WIDEST_FLASH_HEAD",
    "Flops",
    "GeneratesNothing",
    "Gpu",
    "LocalDevice",
    "ModelShape",
    "Projection",
    "adapted_projections",
    "attention_kinds",
    "canonical_sku",
    "entry_of",
    "forward_flops",
    "given_json",
    "gpu",
    "gpu_resource",
    "has_fused_loss",
    "has_liger",
    "has_varlen",
    "keep",
    "kinds",
    "known_config",
    "known_devices",
    "known_models",
    "known_skus",
    "local_devices",
    "local_sku",
    "needs_measuring",
    "published_parameters",
    "refuse_encoders",
    "rules_device",
    "shape_from_config",
    "shape_from_folder",
    "train_flops",
    "trainable_parameters",
]
