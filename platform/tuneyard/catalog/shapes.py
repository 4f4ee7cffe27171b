"""The shape of a language model: its weight matrices, and the sum of their parameters.

Nothing is loaded: a shape comes only from a Hugging Face `config.json`, so that planning runs without torch and transformers. `families`
builds the shape of each architecture; parameters, FLOPs and memory are sums over `projections`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["input", "latent", "output", "up", "router", "down", "head"]
"""Position of a matrix in a layer: input (q, k, v) -> latent (their second half, in MLA) -> attention -> output -> up | router -> down."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A weight matrix that tokens are multiplied with, in every layer that has it."""

    name: str
    """Leaf name of the module, or of the parameter if experts share one tensor."""
    inputs: int
    outputs: int
    stage: Stage
    layers: int
    """Number of layers with it; 1 for the head."""
    copies: int = 1
    """Experts in a layer; 1 for other matrices."""
    active: int = 1
    """Copies that each token passes through."""
    bias: bool = False
    targets: tuple[str, ...] = ()
    """LoRA targets that adapt it, all of them needed; empty: PEFT cannot adapt it."""
    rank_factor: int = 1
    """Factor of the LoRA rank: PEFT gives a tensor that fuses two matrices the rank of both."""
    stacked: bool = False
    """Experts in one tensor: PEFT folds their adapters into the weights in each forward pass, instead of adding two small matmuls."""
    in_first_layer: bool = True

    @property
    def weights(self) -> int:
        """Elements of one copy, without its bias."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """All elements in the model, with biases."""
        return self.layers * self.copies * (self.weights + (self.outputs if self.bias else 0))

    @property
    def active_weights(self) -> int:
        """Elements that each token is multiplied with, over the whole model."""
        return self.layers * self.active * self.weights

    def adapter_weights(self, rank: int) -> int:
        """Elements of A and B of one copy at LoRA rank `rank`."""
        return rank * self.rank_factor * (self.inputs + self.outputs)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A decoder-only language model by its dimensions. `projections` has every matmul except those of attention itself."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    """Width of a query and key head."""
    value_dim: int
    """Width of a value head: equal to head_dim except in latent attention (MLA)."""
    ffn: int
    """Inner width of a dense feed-forward layer, or of one expert if all layers have experts."""
    vocab: int
    max_positions: int
    gated: bool
    tied: bool
    """The head is the token embedding."""
    projections: tuple[Projection, ...]
    other_parameters: int
    """Norms, learned positions and all other parameters outside of matmuls."""
    embedding_name: str
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    """Sum of the inner widths of the shared experts."""
    sliding_window: int | None = None
    sliding_layers: int = 0
    """Layers whose attention looks back no further than `sliding_window` tokens."""
    parallel_residual: bool = False
    """Attention and feed-forward both read the layer's input (GPT-NeoX, Phi)."""
    keeps_last_output: bool = False
    """Whether an operation after a layer's last matmul needs its result in backward (a norm, dropout, expert weights), so that
    recomputation repeats this matmul.
    """
    exact: bool = True
    """False: an architecture that is not known here: read off the built model, or assumed to be built like Llama."""
    assumed: str = ""
    """Why it is assumed to be built like Llama, and not read off the built model. Empty: it is not."""

    @property
    def kernel_head_size(self) -> int | None:
        """Head size that an attention kernel has to support; None for other kinds of kernels (MLA), and where it would be a guess."""
        return self.head_dim if self.value_dim == self.head_dim and not self.assumed else None

    @property
    def embedding_parameters(self) -> int:
        """Elements of the token embedding."""
        return self.vocab * self.head.inputs

    @property
    def head(self) -> Projection:
        return self.projections[-1]

    @property
    def parameters(self) -> int:
        """All parameters, each counted once, as in `model.parameters()`."""
        shared = self.head.weights if self.tied else 0
        return self.embedding_parameters + self.other_parameters + sum(p.parameters for p in self.projections) - shared

    @property
    def active_parameters(self) -> int:
        """Parameters that are used for one token: all except the experts that it is not routed to."""
        idle = sum(p.parameters // p.copies * (p.copies - p.active) for p in self.projections)
        return self.parameters - idle

    @property
    def linear_parameters(self) -> int:
        """Matmul weights that one token passes through: the N of 6N, with the head, without the embedding lookup."""
        return sum(p.active_weights for p in self.projections)
