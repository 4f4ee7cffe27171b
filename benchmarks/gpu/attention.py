"""The paths that attention can take in torch, over the rows and heads of an 8B model: one sample a row, and eight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature

import torch
from benchmarks.gpu.cases import LENGTH, REHEARSAL
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

ROWS, HEADS, KEY_HEADS, WIDTH = (2, 4, 2, 16) if REHEARSAL else (2, 32, 8, 128)
SAMPLES = 8
_CAUSAL = (-1, 0)


@dataclass(frozen=True)
class Path:
    """`flops`: of forward and backward passes over the pairs of tokens that a causal mask leaves."""

    name: str
    flops: float
    forward: Callable[[], torch.Tensor]


def paths() -> list[Path]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (_heads(count, device) for count in (HEADS, KEY_HEADS, KEY_HEADS))
    wide_k, wide_v = (each.detach().repeat_interleave(HEADS // KEY_HEADS, 1).requires_grad_() for each in (k, v))
    causal = {"is_causal": True, "enable_gqa": True}
    masked = {"attn_mask": _mask(SAMPLES, device)}
    backends = (
        ("causal, flash", [SDPBackend.FLASH_ATTENTION], (q, k, v), causal, 1),
        ("causal, cuDNN", [SDPBackend.CUDNN_ATTENTION], (q, k, v), causal, 1),
        ("mask of 8 samples, memory-efficient", [SDPBackend.EFFICIENT_ATTENTION], (q, wide_k, wide_v), masked, SAMPLES),
        ("mask of 8 samples, cuDNN", [SDPBackend.CUDNN_ATTENTION], (q, wide_k, wide_v), masked, SAMPLES),
    )
    found = [Path(name, _flops(samples), partial(_through, kinds, given, options)) for name, kinds, given, options, samples in backends]
    for samples, label in ((1, "one sample a row"), (SAMPLES, "8 samples a row")):
        found.append(Path(f"variable length, {label}", _flops(samples), partial(_variable_length, q, k, v, samples)))
    return found


def _heads(count: int, device: str) -> torch.Tensor:
    return torch.randn(ROWS, count, LENGTH, WIDTH, device=device, dtype=torch.bfloat16, requires_grad=True)


def _mask(samples: int, device: str) -> torch.Tensor:
    """Each token sees those before it of its own sample."""
    sample = torch.arange(LENGTH, device=device) // (LENGTH // samples)
    return ((sample[:, None] == sample[None, :]).tril())[None, None].expand(ROWS, 1, -1, -1)


def _flops(samples: int) -> float:
    """Two matmuls forward and five backward, each over half of the square of a sample."""
    return 7.0 * ROWS * HEADS * WIDTH * LENGTH * (LENGTH / samples)


def _through(kinds: list[SDPBackend], given: tuple[torch.Tensor, ...], options: dict[str, torch.Tensor | bool]) -> torch.Tensor:
    with sdpa_kernel(kinds):
        return sdpa(*given, **options)


def _variable_length(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, samples: int) -> torch.Tensor:
    """FlashAttention inside torch, over the samples of all rows in one, as `varlen_attn` takes them."""
    from torch.nn.attention.varlen import varlen_attn

    longest = LENGTH // samples
    ends = torch.arange(0, ROWS * LENGTH + 1, longest, device=q.device, dtype=torch.int32)
    flat = [each.transpose(1, 2).reshape(ROWS * LENGTH, -1, WIDTH) for each in (q, k, v)]
    # From torch 2.13 on, fewer key heads have to be asked for.
    grouped = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
    return varlen_attn(*flat, ends, ends, longest, longest, window_size=_CAUSAL, **grouped)
