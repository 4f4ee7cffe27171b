"""Types of the weights in a GGUF file. Loads no torch."""

from __future__ import annotations

from enum import StrEnum


class Quantize(StrEnum):
    """Norms and biases are always F32."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
