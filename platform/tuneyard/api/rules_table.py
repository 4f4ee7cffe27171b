"""The table of combinations that cannot work. A new rule is a new row: errors, tests and the docs page follow from it.

Facts were read from the sources of DeepSpeed 0.19, transformers 5.19, bitsandbytes 0.50 and vLLM 0.32.
"""

from __future__ import annotations

from tuneyard.api.rules_batch import nearest_batch, uneven_batch
from tuneyard.api.rules_case import CPU, T4, Case, Device, Fix, Rule, always
from tuneyard.api.rules_compile import COMPILE_RULES
from tuneyard.api.rules_evaluation import EVALUATION_RULES
from tuneyard.api.rules_hybrid import HYBRID_RULES
from tuneyard.api.rules_parallel import PARALLEL_RULES
from tuneyard.api.rules_program import PROGRAM_RULES
from tuneyard.api.rules_rank import RANK_RULES
from tuneyard.api.rules_score import SCORE_RULES
from tuneyard.api.rules_tensor import TENSOR_RULES
from tuneyard.api.train import Adapter, Preference

_V100 = Device(sku="v100-16gb", flash=False, bf16=False)

# fmt: off
LEAKING_MODEL_TYPES = frozenset(
    {
        "bamba", "bloom", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "mamba",
        "mamba2", "minimax", "mpt", "nemotron_h", "olmo_hybrid", "openai-gpt", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text",
        "qwen3_5_text", "qwen3_next", "recurrent_gemma", "roformer", "rwkv", "xlnet", "xlstm", "zamba", "zamba2",
    }
)
# fmt: on
"""Models whose blocks carry a state along the row (Mamba, linear attention, short convolutions), or whose attention mask ignores position
ids (BLOOM, MPT). In a packed row, a sample would see the sample before it.
"""

_LOSS_ON_BY_FORMAT = {
    "chat": ("auto", "assistant", "all"),
    "prompt-completion": ("auto", "completion", "all"),
    "text": ("auto", "all"),
    "preference": ("auto", "assistant", "completion", "all"),
}


def _adapter(case: Case) -> Adapter:
    return case.train.method.adapter or Adapter()


def _instead_of_qlora(case: Case) -> Fix:
    return {"train.method": {"lora": {"rank": _adapter(case).rank}}}


def _takes_result(case: Case) -> bool:
    """Whether the model is the result of an earlier task, and not a folder inside its output."""
    return case.train.model.from_task is not None and case.train.model.path is None


def _prepares_with_workers(case: Case) -> bool:
    data = case.train.data
    return isinstance(data.workers, int) and (data.streaming is False or data.limit is not None)


TRAIN_RULES = (
    Rule(
        id="qlora-zero3",
        kind="train",
        refused="4-bit weights (qlora) under ZeRO-3",
        why="ZeRO-3 cuts parameters into flat shards, and a 4-bit weight cannot be cut from its scales",
        field="train.method.qlora",
        breaks=lambda c: c.train.method.name == "qlora" and c.strategy.zero == 3,
        nearest=lambda c: ({"train.strategy.zero": 2}, _instead_of_qlora(c)),
        example={"train.method": {"qlora": {"rank": 16}}, "train.strategy.zero": 3},
    ),
    Rule(
        id="qlora-parameter-offload",
        kind="train",
        refused="4-bit weights (qlora) with parameter offload",
        why="parameters are offloaded by ZeRO-3, which cannot shard 4-bit weights",
        field="train.strategy.offload.parameters",
        breaks=lambda c: c.train.method.name == "qlora" and c.strategy.offload.parameters != "none" and c.strategy.zero == "auto",
        nearest=lambda c: ({"train.strategy.offload.parameters": "none"}, _instead_of_qlora(c)),
        example={"train.method": {"qlora": {"rank": 16}}, "train.strategy.offload.parameters": "cpu"},
    ),
    Rule(
        id="optimizer-offload-zero",
        kind="train",
        of_rankers=True,
        refused="optimizer offload without ZeRO",
        why="DeepSpeed offloads optimizer states only if ZeRO (stage 1 or higher) owns them",
        field="train.strategy.offload.optimizer",
        breaks=lambda c: c.strategy.offload.optimizer == "cpu" and c.strategy.zero == 0,
        nearest=always({"train.strategy.zero": 2}, {"train.strategy.offload.optimizer": "none"}),
        example={"train.strategy": {"zero": 0, "offload": {"optimizer": "cpu"}}},
    ),
    Rule(
        id="nvme-optimizer-zero3",
        kind="train",
        of_rankers=True,
        refused="optimizer offload to NVMe below ZeRO-3",
        why="only ZeRO-3 swaps optimizer states to disk",
        field="train.strategy.offload.optimizer",
        breaks=lambda c: c.strategy.offload.optimizer == "nvme" and c.strategy.zero in (0, 1, 2),
        nearest=always({"train.strategy.zero": 3}, {"train.strategy.offload.optimizer": "cpu", "train.strategy.zero": 2}),
        example={"train.strategy": {"zero": 2, "offload": {"optimizer": "nvme"}}},
    ),
    Rule(
        id="parameter-offload-zero3",
        kind="train",
        of_rankers=True,
        refused="parameter offload below ZeRO-3",
        why="only ZeRO-3 partitions parameters, so only ZeRO-3 can offload them",
        field="train.strategy.offload.parameters",
        breaks=lambda c: c.strategy.offload.parameters != "none" and c.strategy.zero in (0, 1, 2),
        nearest=always({"train.strategy.zero": 3}, {"train.strategy.offload.parameters": "none"}),
        example={"train.strategy": {"zero": 2, "offload": {"parameters": "cpu"}}},
    ),
    Rule(
        id="offload-needs-adamw",
        kind="train",
        of_rankers=True,
        refused="optimizer offload with an optimizer other than adamw",
        why="the step on offloaded states runs in DeepSpeed's CPU Adam, its only optimizer for them",
        field="train.strategy.offload.optimizer",
        breaks=lambda c: c.strategy.offload.optimizer != "none" and c.train.optimizer.name != "adamw",
        nearest=always({"train.optimizer.name": "adamw"}, {"train.strategy.offload.optimizer": "none"}),
        example={"train.strategy": {"zero": 2, "offload": {"optimizer": "cpu"}}, "train.optimizer.name": "adamw-8bit"},
    ),
    Rule(
        id="adafactor-zero",
        kind="train",
        of_rankers=True,
        refused="adafactor under ZeRO",
        why="it keeps second moments per row and column, and ZeRO gives it flat shards: results would depend on the number of workers",
        field="train.optimizer.name",
        breaks=lambda c: c.train.optimizer.name == "adafactor" and c.strategy.zero in (1, 2, 3) and c.strategy.offload.optimizer == "none",
        nearest=always({"train.optimizer.name": "adamw-8bit"}, {"train.strategy.zero": 0}),
        example={"train.optimizer.name": "adafactor", "train.strategy.zero": 2},
    ),
    Rule(
        id="flash-needs-ampere",
        kind="train",
        refused="flash attention on a device that cannot run it",
        why="FlashAttention 2 needs an NVIDIA GPU of the Ampere generation or newer, or an AMD Instinct of the MI200 series or newer",
        field="train.model.attention",
        breaks=lambda c: c.train.model.attention == "flash" and c.device is not None and not c.device.flash,
        nearest=always({"train.model.attention": "sdpa"}, {"train.model.attention": "auto"}),
        example={"train.model.attention": "flash"},
        example_device=T4,
    ),
    Rule(
        id="flash-fp32",
        kind="train",
        refused="flash attention in fp32",
        why="FlashAttention 2 computes in 16-bit precision only",
        field="train.strategy.precision",
        breaks=lambda c: c.train.model.attention == "flash" and c.strategy.precision == "fp32" and (c.device is None or c.device.flash),
        nearest=always({"train.strategy.precision": "bf16"}, {"train.model.attention": "sdpa"}),
        example={"train.model.attention": "flash", "train.strategy.precision": "fp32"},
    ),
    Rule(
        id="bf16-needs-ampere",
        kind="train",
        refused="bf16 on a GPU without it",
        why="GPUs before Ampere (T4, V100) have no bf16 arithmetic",
        field="train.strategy.precision",
        breaks=lambda c: c.strategy.precision == "bf16" and c.device is not None and not c.device.bf16,
        nearest=always({"train.strategy.precision": "fp16"}, {"train.strategy.precision": "auto"}),
        example={"train.strategy.precision": "bf16"},
        example_device=_V100,
    ),
    Rule(
        id="fp16-on-cpu",
        kind="train",
        refused="fp16 training on cpu",
        why="CPUs emulate fp16 and DeepSpeed has no loss scaling for them",
        field="train.strategy.precision",
        breaks=lambda c: c.strategy.precision == "fp16" and c.device is not None and c.device.is_cpu,
        nearest=always({"train.strategy.precision": "fp32"}, {"train.strategy.precision": "bf16"}),
        example={"train.strategy.precision": "fp16"},
        example_device=CPU,
    ),
    Rule(
        id="liger-on-cpu",
        kind="train",
        refused="Liger kernels on cpu",
        why="they are written in Triton, which compiles for GPUs",
        field="train.strategy.liger",
        breaks=lambda c: c.strategy.liger is True and c.device is not None and c.device.is_cpu,
        nearest=always({"train.strategy.liger": False}, {"train.strategy.liger": "auto"}),
        example={"train.strategy.liger": True},
        example_device=CPU,
    ),
    Rule(
        id="liger-adapted-head",
        kind="train",
        refused="Liger kernels beside an adapter that targets lm_head",
        why="Liger's fused loss reads the head's own weight past the adapter, which would never be trained",
        field="train.strategy.liger",
        breaks=lambda c: c.strategy.liger is True and c.train.method.adapter is not None and c.train.method.adapter.names_head,
        nearest=lambda c: (
            {"train.strategy.liger": "auto"},
            {f"train.method.{c.train.method.name}.targets": "all-linear", f"train.method.{c.train.method.name}.saveModules": ["lm_head"]},
        ),
        example={"train.method": {"lora": {"targets": ["q_proj", "lm_head"]}}, "train.strategy.liger": True},
    ),
    Rule(
        id="adapter-rank",
        kind="train",
        refused="an adapter of rank below 1",
        why="the rank is the inner dimension of its two factors: below 1 there is nothing to train",
        field="train.method",
        breaks=lambda c: c.train.method.adapter is not None and c.train.method.adapter.rank < 1,
        nearest=lambda c: ({f"train.method.{c.train.method.name}.rank": 8}, {"train.method": {"full": {}}}),
        example={"train.method": {"lora": {"rank": 0}}},
    ),
    Rule(
        id="adapter-targets",
        kind="train",
        refused="an adapter without targets",
        why="it would adapt no module: nothing would be trained",
        field="train.method",
        breaks=lambda c: c.train.method.adapter is not None and not c.train.method.adapter.targets,
        nearest=lambda c: ({f"train.method.{c.train.method.name}.targets": "all-linear"},),
        example={"train.method": {"lora": {"targets": []}}},
    ),
    Rule(
        id="scratch-adapter",
        kind="train",
        refused="an adapter on a model from scratch",
        why="an adapter corrects pretrained weights: random weights would stay random",
        field="train.model.init",
        breaks=lambda c: c.train.model.init == "scratch" and c.train.method.name != "full" and not _takes_result(c),
        nearest=always({"train.method": {"full": {}}}, {"train.model.init": "pretrained"}),
        example={"train.model.init": "scratch", "train.method": {"lora": {"rank": 16}}},
    ),
    Rule(
        id="scratch-from",
        kind="train",
        refused="`init: scratch` with the model of an earlier task",
        why="the weights of the earlier task would be lost",
        field="train.model.init",
        breaks=lambda c: c.train.model.init == "scratch" and _takes_result(c),
        nearest=always({"train.model.init": "pretrained"}, {"train.model.path": "model"}),
        example={"train.model": {"from": "earlier", "init": "scratch"}},
    ),
    Rule(
        id="uneven-batch",
        kind="train",
        of_rankers=True,
        refused="a global batch that is not micro x accumulation x copies of the model",
        why="every copy of the model takes the same number of equal micro-batches in a step",
        field="train.batch",
        breaks=uneven_batch,
        nearest=nearest_batch,
        example={"train.batch": {"global": 32, "micro": 5}},
    ),
    Rule(
        id="dpo-format",
        kind="train",
        refused="dpo on data that are not preferences",
        why="DPO compares a chosen with a rejected answer: it needs both in each sample",
        field="train.data.format",
        breaks=lambda c: c.train.objective == "dpo" and c.train.data.format not in ("auto", "preference"),
        nearest=always({"train.data.format": "preference"}, {"train.objective": "sft"}),
        example={"train.objective": "dpo", "train.data.format": "chat"},
    ),
    Rule(
        id="dpo-nvme-parameters",
        kind="train",
        refused="full training on preferences (dpo) with parameters on NVMe",
        why="DeepSpeed empties its folder when it loads a second model, and the reference is one",
        field="train.strategy.offload.parameters",
        breaks=lambda c: c.train.objective == "dpo" and c.train.method.adapter is None and c.strategy.offload.parameters == "nvme",
        nearest=always({"train.strategy.offload.parameters": "cpu"}, {"train.method": {"lora": {"rank": 16}}}),
        example={"train.objective": "dpo", "train.strategy": {"zero": 3, "offload": {"parameters": "nvme"}}},
    ),
    Rule(
        id="preference-objective",
        kind="train",
        refused="preference data with sft or clm",
        why="these objectives do not use the rejected answers",
        field="train.data.format",
        breaks=lambda c: c.train.objective != "dpo" and c.train.data.format == "preference",
        nearest=always({"train.objective": "dpo"}),
        example={"train.data.format": "preference"},
    ),
    Rule(
        id="preference-settings",
        kind="train",
        refused="`preference` settings without dpo",
        why="only dpo reads them",
        field="train.preference",
        breaks=lambda c: c.train.objective != "dpo" and c.train.preference != Preference(),
        nearest=always({"train.preference": None}, {"train.objective": "dpo"}),
        example={"train.preference.beta": 0.2},
    ),
    Rule(
        id="clm-format",
        kind="train",
        refused="clm on chats or prompts with completions",
        why="clm is plain next-token prediction on text; sft has turns and completions",
        field="train.objective",
        breaks=lambda c: c.train.objective == "clm" and c.train.data.format in ("chat", "prompt-completion"),
        nearest=always({"train.objective": "sft", "train.data.lossOn": "all"}, {"train.data.format": "text"}),
        example={"train.objective": "clm", "train.data.format": "chat"},
    ),
    Rule(
        id="clm-loss-on",
        kind="train",
        refused="clm with a loss on part of the tokens",
        why="clm counts every token of a text",
        field="train.data.lossOn",
        breaks=lambda c: (
            c.train.objective == "clm" and c.train.data.loss_on in ("assistant", "completion") and c.train.data.format == "auto"
        ),
        nearest=always({"train.data.lossOn": "all"}, {"train.objective": "sft"}),
        example={"train.objective": "clm", "train.data.lossOn": "assistant"},
    ),
    Rule(
        id="loss-on-format",
        kind="train",
        refused="a `lossOn` that the data format does not have",
        why="text has no turns and no completions, chats have assistant turns, and prompt-completion data have completions",
        field="train.data.lossOn",
        breaks=lambda c: c.train.data.loss_on not in _LOSS_ON_BY_FORMAT.get(c.train.data.format, (c.train.data.loss_on,)),
        nearest=always({"train.data.lossOn": "auto"}),
        example={"train.data.format": "text", "train.data.lossOn": "assistant"},
    ),
    Rule(
        id="pack-leaks",
        kind="train",
        refused="packing with a model that would leak across samples",
        why="its blocks carry a state along the row, or its mask ignores position ids, so a sample would see the sample before it",
        field="train.data.pack",
        breaks=lambda c: c.train.data.pack and c.model_type in LEAKING_MODEL_TYPES,
        nearest=always({"train.data.pack": False}),
        example={"train.data.pack": True},
        example_model_type="mamba2",
    ),
    Rule(
        id="mixture-settings",
        kind="train",
        refused="`temperature` or `whenExhausted` without `mix`",
        why="they share rows among the parts of a mixture, and one data set has no parts",
        field="train.data",
        breaks=lambda c: not c.train.data.mix and (c.train.data.temperature != 1 or c.train.data.when_exhausted != "repeat"),
        nearest=always({"train.data.temperature": None, "train.data.whenExhausted": None}),
        example={"train.data.temperature": 3},
    ),
    Rule(
        id="prepared-workers",
        kind="train",
        refused="`workers` for data that are not streamed",
        why="data workers prepare rows while the task trains; with `streaming: false` or `limit`, all rows are prepared before",
        field="train.data.workers",
        breaks=_prepares_with_workers,
        nearest=always({"train.data.workers": None}),
        example={"train.data.streaming": False, "train.data.workers": 2},
    ),
    Rule(
        id="train-instances",
        kind="train",
        refused="`instances` on a train task",
        why="instances count the engines of a score task; a train task counts its ranks in workers",
        field="resources.instances",
        breaks=lambda c: c.resources.instances != 1,
        nearest=lambda c: ({"resources.instances": None, "resources.workers": c.resources.instances},),
        example={"resources.instances": 2},
    ),
)

RULES: tuple[Rule, ...] = (
    *TRAIN_RULES,
    *PARALLEL_RULES,
    *TENSOR_RULES,
    *COMPILE_RULES,
    *HYBRID_RULES,
    *EVALUATION_RULES,
    *PROGRAM_RULES,
    *RANK_RULES,
    *SCORE_RULES,
)
