"""Embeddings and their gradients between ranks in fewer bytes: fp16, or 8 bits, each with one scale for a vector.

DHEN (Zhang et al. 2022) and TorchRec quantise both directions. Here a vector is divided by a scale of its own before it is rounded, so that
gradients, which are many powers of ten smaller than embeddings, keep as many digits. Vectors are rounded to the nearest, once in each
direction, and travel as bytes, which every backend with an all-to-all of bytes can send.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tuneyard.api import BadInput
from tuneyard.api.rank import ExchangeName
from tuneyard.planning import vector_bytes

Wire = ExchangeName
_BACKENDS = ("gloo", "nccl")
_LARGEST_INT8 = 127.0
_FP16_EXPONENT, _LEAST_EXPONENT = 15, -100
"""A vector in fp16 has its largest element just below 2^15. Scales of vectors below 2^-100 would leave fp32: theirs stays at that."""


def refuse_unsupported(wire: Wire, group: Any) -> None:
    """Raises BadInput for a backend whose all-to-all sends no bytes."""
    if wire == "fp32" or not dist.is_initialized():
        return
    backend = str(dist.get_backend(group))
    if backend not in _BACKENDS:
        raise BadInput(
            f"tables.exchange {wire} sends bytes, which was tried with {' and '.join(_BACKENDS)} alone, and these ranks use {backend}",
            "leave tables.exchange out",
        )


def encoded(vectors: torch.Tensor, wire: Wire) -> torch.Tensor:
    """fp32 vectors [rows, width] as they are sent: unchanged, or bytes [rows, vector_bytes(width, wire)], the scale last.

    The error of an element is at most 2^-11 of itself in fp16, unless it is below 2^-29 of the largest element of its vector, and 1/254 of
    that largest element in 8 bits. A vector that is not finite arrives as NaN.
    """
    if wire == "fp32":
        return vectors
    peak = vectors.abs().amax(dim=1, keepdim=True)
    if wire == "fp16":
        exponent = torch.frexp(peak)[1].clamp_(min=_LEAST_EXPONENT) - _FP16_EXPONENT
        scale = torch.ldexp(torch.ones_like(peak), exponent)
        codes = (vectors / scale).half()
    else:
        scale = peak / _LARGEST_INT8
        codes = (vectors / scale.masked_fill(scale == 0, 1.0)).round_().nan_to_num_(0.0).to(torch.int8)
    scale = scale.masked_fill(~torch.isfinite(peak), torch.nan)
    return torch.cat([codes.view(torch.uint8), scale.view(torch.uint8)], dim=1)


def decoded(sent: torch.Tensor, wire: Wire, width: int) -> torch.Tensor:
    """The vectors [rows, width] in fp32."""
    if wire == "fp32":
        return sent
    size = vector_bytes(width, wire)
    # Numbers are read from whole addresses, where a part of a row does not lie: even of one row it is copied.
    codes, scale = (part.clone(memory_format=torch.contiguous_format) for part in sent.split([size - 4, 4], dim=1))
    return codes.view(torch.float16 if wire == "fp16" else torch.int8).float().mul_(scale.view(torch.float32))
