"""Speed of an engine of a score task: seconds of prefill and of a decode step by a roofline, and what follows for a batch of sequences.

A roofline (Williams et al. 2009): the matrices of a pass take the time of their FLOPs, or the time in which the device reads their weights,
whichever is longer. The prefill of long prompts is bound by FLOPs, and the decode step of a small batch by the memory. To these a pass adds
its attention, collectives of tensor parallelism, and the engine's own time.

A batch of B sequences whose prompts have p tokens, and whose outputs have n, takes

    B x prefill(p) + (n - 1) x decode(B, p + n / 2)

seconds. An engine that replaces each finished sequence at once (continuous batching) does the same work in another order, and has the same
rate; the gain of decoding tokens in the steps of prefills is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.catalog import Gpu
from tuneyard.catalog.gpu_facts import Dtype
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.engines.efficiency import IN_USE, EngineEfficiency
from tuneyard.planning.engines.work import EngineModel
from tuneyard.planning.links import GIGA, Links


@dataclass(frozen=True, kw_only=True)
class EngineTime:
    """Seconds by term. They add up to `total_s`."""

    prefill_s: float = 0.0
    """Matrices and attention of prompts, and of texts whose likelihood is measured."""
    decode_s: float = 0.0
    """Matrices and attention of the tokens after the first."""
    collectives_s: float = 0.0
    engine_s: float = 0.0
    """The engine's own time, in which the device waits."""

    @property
    def total_s(self) -> float:
        return float(sum(vars(self).values()))

    def times(self, count: float) -> EngineTime:
        return EngineTime(**{name: value * count for name, value in vars(self).items()})

    def plus(self, other: EngineTime) -> EngineTime:
        return EngineTime(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class RowLengths:
    """Tokens of a row of a data set, on average."""

    prompt: float
    output: float
    """Of one answer; 0: the row is evaluated only."""
    longest_output: float | None = None
    """The longest answer; None: all are alike."""
    samples: int = 1
    """Answers to each prompt, whose prefill they share (prefix cache)."""
    evaluated: float = 0.0
    """Tokens of a text whose likelihood is measured, in a pass of its own without an answer; 0: none is."""
    evaluations: int = 1
    """Such texts of a row."""


@dataclass(frozen=True, kw_only=True)
class EngineSpeed:
    """What an engine does with `batch` sequences in flight.

    `ttft_s`: time to the first token of a sequence that takes a free place. `tpot_s`: time per token after it, in which the engine also
    prefills other prompts. Both None without answers.
    """

    batch: int
    time: EngineTime
    """Of the whole batch."""
    output_tokens_per_s: float
    rows_per_s: float
    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine: its model on `tensor_parallel` devices of one kind. `sharing`: engines that share the machine, on `cpu`."""

    model: EngineModel
    gpu: Gpu
    dtype: Dtype
    tensor_parallel: int = 1
    sharing: int = 1
    step_tokens: int = 8192
    eager: bool = False
    calibration: Calibration = DEFAULT
    efficiency: EngineEfficiency = IN_USE
    correction: EngineTime = EngineTime(prefill_s=1.0, decode_s=1.0, collectives_s=1.0, engine_s=1.0)
    """Factors of the terms, as past runs have measured them."""

    @property
    def devices(self) -> float:
        """Devices of the engine; on `cpu` its share of the machine, which ranks have together."""
        return 1 / self.sharing if self.gpu.is_cpu else self.tensor_parallel

    def prefill(self, length: float, prompts: int = 1, *, all_logits: bool = False) -> EngineTime:
        """The prefill of one prompt, where `prompts` prompts share steps. `all_logits`: the head is applied to each token."""
        tokens = max(1.0, min(self.step_tokens, length * prompts))
        steps = length / tokens  # of one prompt; below 1 if several share a step
        matmul = self._matmul_s(tokens, tokens if all_logits else 1 / steps) * steps
        attention = self.model.prefill_attention_flops(round(length)) / (self._peak * self.calibration.of(self.gpu).attention)
        own = self._passes_s() * steps + self.efficiency.sequence_s
        return self._corrected(EngineTime(prefill_s=matmul + attention, collectives_s=self._collectives_s(tokens) * steps, engine_s=own))

    def decode(self, batch: float, context: float) -> EngineTime:
        """A step in which `batch` sequences of `context` tokens get a token each."""
        cached = batch * self.model.cached_bytes(context, self.tensor_parallel) / (self._bandwidth * self.efficiency.cache)
        own = self._passes_s() + self.efficiency.sequence_s * batch
        decoded = self._matmul_s(batch, batch) + cached
        return self._corrected(EngineTime(decode_s=decoded, collectives_s=self._collectives_s(batch), engine_s=own))

    def speed(self, batch: int, lengths: RowLengths) -> EngineSpeed:
        """The speed with `batch` sequences in flight. A sequence is one answer, or the evaluation of one row."""
        time, first_s = EngineTime(), None
        if lengths.output:
            prompt = self.prefill(lengths.prompt, batch)
            step = self.decode(batch, lengths.prompt + lengths.output / 2)
            time = prompt.times(batch / lengths.samples).plus(step.times(max(0.0, lengths.output - 1)))
            first_s = self.prefill(lengths.prompt).total_s + step.total_s
        if lengths.evaluated:
            passes = batch / lengths.samples * lengths.evaluations
            time = time.plus(self.prefill(lengths.evaluated, batch, all_logits=True).times(passes))
        return EngineSpeed(
            batch=batch,
            time=time,
            output_tokens_per_s=batch * lengths.output / time.total_s if time.total_s else 0.0,
            rows_per_s=batch / lengths.samples / time.total_s if time.total_s else 0.0,
            ttft_s=first_s,
            tpot_s=time.total_s / lengths.output if lengths.output else None,
        )

    @property
    def _peak(self) -> float:
        peaks = self.gpu.peak_flops
        return peaks.get(self.dtype, self.gpu.best_flops) * self.devices

    @property
    def _bandwidth(self) -> float:
        return self.gpu.memory_bandwidth_gb_s * GIGA * self.devices

    def _matmul_s(self, tokens: float, with_head: float) -> float:
        read = self.model.weight_bytes_read(tokens) / (self._bandwidth * self.efficiency.weights)
        return max(read, self.model.matmul_flops(tokens, with_head) / (self._peak * self.efficiency.matmul))

    def _passes_s(self) -> float:
        own, model = self.efficiency, self.model
        return own.step_s + own.layer_s * model.shape.layers + own.experts_s * model.layers_with_experts

    def _collectives_s(self, tokens: float) -> float:
        """Ring all-reduces (Thakur et al. 2005, section 4) over the links inside a machine."""
        ranks = self.tensor_parallel
        if ranks == 1:
            return 0.0
        links = Links.between(self.gpu, self.calibration.of(self.gpu), ranks, ranks)
        moved = 2 * self.model.reduced_bytes(tokens) * (ranks - 1) / ranks / GIGA / links.inside_gb_s
        return self.model.all_reduces * (moved + self.efficiency.collective_s)

    def _corrected(self, time: EngineTime) -> EngineTime:
        return EngineTime(**{name: value * getattr(self.correction, name) for name, value in vars(time).items()})
