"""Host memory of one rank for what DeepSpeed offloads, as 0.19 allocates it (`stage_1_and_2.py`, `stage3.py`).

torch's CachingHostAllocator rounds pinned blocks up to powers of two. What is pinned depends on the stage:

- ZeRO 1 and 2: the fp32 masters, their gradients and a 16-bit copy, each as one block; one gradient on its way; and accumulated gradients,
  weight by weight.
- ZeRO 3: gradients twice, in fp32 by sub-group and in 16 bits as one block.
"""

from __future__ import annotations

from tuneyard.catalog import ModelShape
from tuneyard.planning.setup import BYTES, Setup

SWAPPED_ELEMENTS = 100_000_000
"""Parameters whose optimizer states are swapped from and to NVMe at a time."""
_SUB_GROUP_ELEMENTS = 1_000_000_000
"""DeepSpeed's default size of a sub-group."""
_OPTIMIZER_BUFFERS, _PARAMETER_BUFFERS = 4, 5
"""DeepSpeed's buffers in host memory: fp32 numbers of a sub-group, and the largest weight's shard (0.19: `offload_config.py`)."""
_FP32 = 4


def offloaded_bytes(setup: Setup, *, trained: float, moments: float, weights: float) -> float:
    """Bytes in host memory. `trained`: parameters that the rank trains, before ZeRO; `moments`: bytes of optimizer states for each;
    `weights`: bytes of the weights on this rank. Nothing is pinned on `cpu`.
    """
    layout, width = setup.layout, BYTES[setup.layout.precision]
    owned = trained / setup.shards
    host = 0.0
    if layout.offload_optimizer == "cpu":
        host += owned * moments
        if setup.gpu.is_cpu:
            host += 2 * _FP32 * owned
        elif layout.zero == 3:
            host += _FP32 * owned + _in_blocks(_FP32 * owned, _FP32 * _SUB_GROUP_ELEMENTS)
        else:
            host += 2 * _pinned(_FP32 * owned) + _pinned(width * owned) + _pinned(width * min(trained, largest_weight(setup.shape)))
            host += width * owned * _rounding(setup.shape, width, 1) if layout.grad_accum > 1 and layout.zero == 2 else 0.0
    elif layout.offload_optimizer == "nvme":
        host += _OPTIMIZER_BUFFERS * _FP32 * min(SWAPPED_ELEMENTS, owned)
    if layout.zero == 3 and layout.offload_optimizer != "none" and not setup.gpu.is_cpu:
        host += _pinned(width * owned)
    if layout.offload_parameters == "cpu":
        host += weights
        if not setup.gpu.is_cpu:
            # Each weight is pinned by itself as it is loaded. The trained ones move to one block; torch keeps what they leave behind.
            host += weights * (_rounding(setup.shape, width, setup.shards) - 1) + _pinned(width * owned)
    elif layout.offload_parameters == "nvme":
        host += _PARAMETER_BUFFERS * largest_weight(setup.shape) * width / setup.shards
    return host


def largest_weight(shape: ModelShape) -> int:
    """Elements of the largest weight: the embedding, or the experts of a layer where one tensor holds them."""
    return max(shape.embedding_parameters, *(p.weights * (p.copies if p.stacked else 1) for p in shape.projections))


def _pinned(size: float) -> float:
    """Bytes that a pinned block of `size` bytes takes."""
    return float(1 << (int(size) - 1).bit_length()) if size >= 1 else 0.0


def _in_blocks(size: float, block: float) -> float:
    whole, rest = divmod(size, block)
    return whole * _pinned(block) + _pinned(rest)


def _rounding(shape: ModelShape, width: int, shards: int) -> float:
    """Pinned bytes over bytes, where each weight (or its shard) is a block of its own."""
    blocks = [(p.layers * (1 if p.stacked else p.copies), p.weights * (p.copies if p.stacked else 1)) for p in shape.projections]
    blocks.append((1, shape.embedding_parameters))
    sizes = [(count, elements * width / shards) for count, elements in blocks]
    return sum(count * _pinned(size) for count, size in sizes) / sum(count * size for count, size in sizes)
