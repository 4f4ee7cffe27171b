"""Time of a training step, before anything runs: compute, communication between ranks, and traffic to and from the host.

A step is `grad_accum` micro-batches through a pipeline of stages, of which (p - 1) / (m + p - 1) is the bubble (Narayanan et al. 2021), and
then an optimizer step. Each term is the part that is not hidden under another, so that terms add up. Collectives of gradients can hide
under the last backward pass, gathers of ZeRO-3 and of offloaded weights under a micro-batch's compute, and launches under all of it.
"""

from __future__ import annotations

from tuneyard.planning.calibration import CPU_ADAM_BYTES, DEFAULT, HOST_GB_S, HOST_GB_S_OF_A_GPU, Calibration, Efficiency, Software
from tuneyard.planning.compute import Work, rows_of, work_of
from tuneyard.planning.context import EXCHANGES, passes, row_exchange_s, slice_tokens
from tuneyard.planning.exchange import averages_itself, exchange_s
from tuneyard.planning.links import GIGA, Links
from tuneyard.planning.plan import Speed, StepTime
from tuneyard.planning.setup import BYTES, Setup
from tuneyard.planning.tensor import Messages, messages, rank_parameters

_COMPILE_S = 60.0
"""A cold compilation of two forms of a decoder layer, for rows of one width and of any. Measured on 2 cores; other machines take less."""
_KERNELS_PER_COLLECTIVE = 2
"""CPU cost of a collective, in kernel launches."""
_MATRICES = 7
"""Matrices of a layer: query, key, value, output, gate, up and down."""
_STATE_TRAFFIC = {"adamw": 24.0, "adamw-8bit": 12.0, "adafactor": 16.0, "sgd": 8.0}
"""Bytes per trained parameter that an optimizer step reads and writes, beside the fp32 gradient and the 16-bit weight."""

_MEANS_SAVED = 8.0
"""Bytes saved with both means in bf16."""


def estimate_speed(setup: Setup, calibration: Calibration = DEFAULT) -> Speed:
    """The speed of a step. Raises BadInput where the device cannot compute in the precision."""
    layout = setup.layout
    step = _Step(setup, calibration)
    terms = step.terms()
    step_s = terms.total_s
    rows = rows_of(setup) * layout.grad_accum * layout.data_parallel
    tokens_per_s = rows * layout.seq_len / step_s
    peak = setup.gpu.rank_peak_flops(layout.precision, layout.workers)
    reference = 4 / 3 if setup.objective == "dpo" else 1.0
    mfu = reference * rows * step.work.model.model_flops / step_s / (peak * layout.workers)
    return Speed(
        terms=terms,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / layout.workers,
        mfu=mfu,
        compile_s=_COMPILE_S if layout.compiled else 0.0,
    )


class _Step:
    """The terms of one step on one rank. Sizes are in bytes."""

    def __init__(self, setup: Setup, calibration: Calibration) -> None:
        self.setup, self.layout, self.shape = setup, setup.layout, setup.shape
        self.calibration = calibration
        self.efficiency: Efficiency = calibration.of(setup.gpu)
        self.software: Software = calibration.software(setup.layout.engine)
        # On `cpu` the same cores send and compute.
        self.overlap = 0.0 if setup.gpu.is_cpu else self.software.overlap
        self.links = Links.of(setup, self.efficiency)
        self.width = BYTES[setup.layout.precision]
        self.work: Work = work_of(setup, self.efficiency)
        self.trained = self.work.model.trained

    def terms(self) -> StepTime:
        layout, work = self.layout, self.work
        stages, accum = layout.pipeline_parallel, layout.grad_accum
        # Terms of one micro-batch over all layers. Each stage has its share.
        compute = work.total_s
        tensor = self._tensor_parallel_s()
        context = row_exchange_s(self.setup, self.links, rows_of(self.setup))
        gathers, moved = self._exposed(self._gathers_s(), self._offloaded_weights_s(), self.overlap * compute)
        busy = compute + tensor + context + gathers + moved
        launch = max(0.0, self._launch_s() - busy)
        micro = busy + launch
        stage = max(micro / stages, work.head_s if stages > 1 else 0.0) + self._sends_s()
        pipeline = (accum + stages - 1) * stage - accum * micro / stages
        reduced = self._gradients_s(stage * work.backward_share)
        offload, on_cpu, on_device = self._update_s()
        times = accum / stages
        return StepTime(
            matmul_s=work.matmul_s * times,
            attention_s=work.attention_s * times,
            elementwise_s=work.traffic_s * times,
            tensor_parallel_s=tensor * times,
            context_parallel_s=context * times,
            data_parallel_s=reduced,
            gathers_s=gathers * times,
            pipeline_s=pipeline,
            offload_s=offload + moved * times,
            cpu_optimizer_s=on_cpu,
            optimizer_s=on_device,
            launch_s=launch * times,
        )

    def _tokens(self) -> int:
        return rows_of(self.setup) * slice_tokens(self.setup)

    def _tensor_parallel_s(self) -> float:
        """Seconds of two all-reduces of the residual stream per layer and pass (Shoeybi et al. 2019, section 3). Recomputation repeats
        forward's.

        With sequence parallelism each is a reduce-scatter and an all-gather: the same bytes. Training here exchanges the messages that the
        model's plan needs (`tensor.messages`): backward adds up a gradient per matrix.
        """
        degree = self.layout.tensor_parallel
        if degree == 1:
            return 0.0
        if self.layout.is_ours:
            forward, backward = self._messages()
            passes = [forward, backward, *([forward] if self.layout.recompute else [])]
            elements = sum(2 * each.summed + each.gathered for each in passes)  # an all-reduce is two gathers
            steps = sum(2 * each.collectives for each in passes)
            latency = self.links.ring_s(0.0, degree)
            return self.links.ring_s(self._tokens() * elements * self.width, degree) + (steps - 1) * latency
        size = self._tokens() * self.shape.hidden * self.width
        return self._synchronisations() * 2 * self.links.ring_s(size, degree)

    def _launch_s(self) -> float:
        """Time of the CPU, and of the device's queue, for the kernels of a micro-batch: a lower bound for the device's time."""
        layout = self.layout
        if self.setup.gpu.is_cpu:
            return 0.0
        rings = 2.0 * self._synchronisations() if layout.tensor_parallel > 1 else 0.0
        if layout.context_parallel > 1:
            rings += EXCHANGES * passes(self.setup) * self.shape.layers
        waits = 0.0
        if layout.pipeline_parallel > 1 and layout.workers > self.links.gpus_per_node:
            waits = rings * layout.tensor_parallel * self.efficiency.queue_s
        if layout.zero == 3:
            # Forward, backward and gradients. DeepSpeed gathers each matrix separately.
            rings += 3 * self.shape.layers * (_MATRICES if layout.engine == "deepspeed" else 1)
        kernels = self.work.kernels + _KERNELS_PER_COLLECTIVE * rings
        return self.software.launch_factor * self.efficiency.launch_s * kernels + waits

    def _messages(self) -> tuple[Messages, Messages]:
        layout = self.layout
        return messages(self.shape, layout.tensor_parallel, sequence_parallel=layout.sequence_parallel)

    def _synchronisations(self) -> int:
        """Tensor-parallel sums of the residual stream in a micro-batch: two per layer and pass, and one for the head."""
        if self.layout.is_ours:
            forward, backward = self._messages()
            return forward.collectives * (2 if self.layout.recompute else 1) + backward.collectives
        passes = 3 if self.layout.recompute else 2
        return 2 * passes * self.shape.layers + 2

    def _sends_s(self) -> float:
        """Sends of the residual stream to the next stage, and of its gradient back, without the part hidden under compute."""
        layout = self.layout
        if layout.pipeline_parallel == 1:
            return 0.0
        size = self._tokens() * self.shape.hidden * self.width / (layout.tensor_parallel if layout.sequence_parallel else 1)
        return 2 * self.links.send_s(size, layout.tensor_parallel * layout.gradient_ranks)

    @property
    def _shards(self) -> int:
        return self.layout.tensor_parallel * self.layout.pipeline_parallel

    def _weight_bytes(self) -> float:
        layout = self.layout
        ours = layout.is_ours and layout.pipeline_parallel == 1
        held = rank_parameters(self.shape, layout.tensor_parallel) if ours else self.work.model.parameters / self._shards
        return held * self.width

    def _gathers_s(self) -> float:
        """ZeRO-3: in each micro-batch, each rank gathers all weights for forward and for backward, and reduce-scatters gradients. The
        reference of preference pairs has a forward pass too.
        """
        layout = self.layout
        if layout.zero != 3 or self.setup.shards == 1:
            return 0.0
        ring = self._ring_s(self._weight_bytes())
        again = int(layout.recompute and layout.engine == "deepspeed") + int(self.setup.objective == "dpo")
        return (2 + again) * ring + self._ring_s(self.trained * self.width / self._shards)

    def _ring_s(self, size: float) -> float:
        return self.links.ring_s(size, self.setup.shards, stride=self.layout.tensor_parallel)

    def _gradients_s(self, backward_s: float) -> float:
        """Reduction of gradients and gathering of updated weights, without the part hidden under backward.

        DeepSpeed's stage 2 reduces in each micro-batch, other stages after the last.
        """
        layout = self.layout
        if averages_itself(self.setup):
            return max(0.0, exchange_s(self.setup, self.links, self.trained) - self.overlap * backward_s)
        if layout.gradient_ranks == 1 or layout.zero == 3:
            return 0.0
        gradients = self.trained * (4 if layout.engine in ("megatron", "nanotron") or layout.zero == 0 else self.width) / self._shards
        scatter = self._ring_s(gradients)
        hidden = self.overlap * backward_s
        if layout.zero == 0:
            return max(0.0, 2 * scatter - hidden)
        gather = self._ring_s(self.trained * self.width / self._shards)
        times = layout.grad_accum if layout.zero == 2 else 1
        return times * max(0.0, scatter - hidden) + gather

    @staticmethod
    def _exposed(gathers_s: float, moved_s: float, hidden_s: float) -> tuple[float, float]:
        """Exposed parts of the gathers between ranks and of the moves from the host. Both run at once, over different links."""
        longer = max(0.0, max(gathers_s, moved_s) - hidden_s)
        return (longer, 0.0) if gathers_s >= moved_s else (0.0, longer)

    def _offloaded_weights_s(self) -> float:
        """Moves of weights from the host (or a disk) for each pass of a micro-batch. Each rank moves its shard, and receives the other
        shards.
        """
        layout = self.layout
        if layout.offload_parameters == "none":
            return 0.0
        passes = 3 if layout.recompute else 2
        return self._host_s(passes * self._weight_bytes() / layout.gradient_ranks, layout.offload_parameters)

    def _host_s(self, size: float, place: str) -> float:
        """Seconds to move `size` bytes of one rank to or from the host's memory or disks, which the ranks of a machine share."""
        if self.setup.gpu.is_cpu:
            return size / GIGA / self.links.inside_gb_s
        over_pcie = size / GIGA / (self.setup.gpu.pcie_gb_s / 2 * self.efficiency.pcie)
        return over_pcie if place == "cpu" else max(over_pcie, size * self._ranks_here / GIGA / self.calibration.nvme_gb_s)

    @property
    def _ranks_here(self) -> int:
        return min(self.layout.workers, self.links.gpus_per_node)

    @property
    def _state_traffic(self) -> float:
        return _STATE_TRAFFIC[self.setup.optimizer] - (_MEANS_SAVED if self.setup.optimizer_states == "bf16" else 0.0)

    def _update_s(self) -> tuple[float, float, float]:
        """Seconds of offload traffic, of the CPU's optimizer, and of the device's."""
        layout = self.layout
        owned = self.trained / self._shards / (self.setup.shards if layout.zero else 1)
        if layout.offload_optimizer == "none":
            bandwidth = self.setup.gpu.memory_bandwidth_gb_s * GIGA * self.efficiency.memory
            if self.setup.gpu.is_cpu:
                bandwidth /= layout.workers
            return 0.0, 0.0, owned * (self._state_traffic + 4 + self.width) / bandwidth
        gradients = self._host_s(owned * self.width * (layout.grad_accum if layout.zero >= 2 else 1), "cpu")
        traffic = gradients + self._host_s(owned * self.width, "cpu")
        if layout.offload_optimizer == "nvme":
            traffic += self._host_s(owned * self._state_traffic, "nvme")
        bandwidth = self.calibration.host_bandwidth_gb_s or min(HOST_GB_S, HOST_GB_S_OF_A_GPU * self._ranks_here)
        return traffic, owned * self._ranks_here * CPU_ADAM_BYTES / bandwidth / GIGA, 0.0
