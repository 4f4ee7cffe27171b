"""Proof, after the last step, that the saved folders hold the model that was trained.

Rank 0 loads each folder as a user does. The weights must be those of the trained model, bit for bit, and the logits must agree within the
error of the dtype. Libraries drop, tie, cast and rename weights while they save and load; a folder that differs is not committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import JobFailed
from tuneyard.training.distributed import World
from tuneyard.training.memory import free_host_gb
from tuneyard.training.models import DTYPES
from tuneyard.training.proofs.limit import late_after, limit_of, within
from tuneyard.training.request import TrainRequest

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative difference of logits that is rounding, by the dtype that computes them."""
_OF_A_LOAD = 5e-2
_ELSEWHERE = {torch.float32: 10, torch.bfloat16: 2, torch.float16: 2}
"""Factor of the tolerance where the model was trained on a GPU: the saved one is computed on the processor."""
_NAMED = 3
_HEADROOM = 1.2
_OF_THE_BASE = ("inference_mode", "revision", "runtime_config", "fan_in_fan_out")
"""Fields of an adapter's configuration that follow from where, and in which form, its base is loaded."""

OF_A_SAVE = frozenset(
    ("use_cache", "dtype", "torch_dtype", "architectures", "transformers_version", "auto_map", "quantization_config", "inference_mode")
)
"""Fields of a configuration that a run or a save sets for itself. So does any that begins with an underscore."""

Weights = Mapping[str, torch.Tensor]


@dataclass
class SavedProof:
    """What the trained model computed before it was saved, and what its folders hold.

    `logits`: (tokens, vocabulary), of the row `ids`. `dtype`: in which they were computed, `on_gpu`: where. `config`:
    of the trained model. `found`: for the report.
    """

    ids: list[int]
    logits: torch.Tensor
    dtype: torch.dtype
    trust_remote_code: bool
    config: Any
    on_gpu: bool = False
    found: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trainer: Any, request: TrainRequest, world: World, ids: list[int]) -> SavedProof:
        """Compute the logits of the trained model. Collective."""
        logits = trainer.logits_of_row(ids).float().cpu()
        model = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
        trust, dtype = request.task.model.trust_remote_code, DTYPES[request.plan.precision]
        return cls(ids, logits, dtype, trust, model.config, world.device.type == "cuda")

    def prove_weights(self, folder: Path, trained: Weights) -> None:
        """Load the full model of `folder`. `trained`: its weights by name. Raises JobFailed."""
        size = _bytes_of(trained)
        if self._lacks_memory("model", size):
            return

        def prove() -> None:
            loaded = self._load("model", folder)
            self._refuse_other_config("model", loaded, self.config)
            self._refuse_other_weights("model", loaded, trained, folder)
            self._compare("model", loaded, self.logits)

        with self._timed():
            limit = limit_of(size)
            within(limit, prove, late_after("model", limit))

    def prove_adapter(self, folder: Path, base: Any, live: Any, trained: Weights) -> Any:
        """Put the adapter of `folder` on `base`, and return both; `live`: the trained model, `trained`: its trained weights by name.
        Raises JobFailed.
        """
        from peft import PeftModel

        with self._timed():
            loaded = PeftModel.from_pretrained(base, str(folder), autocast_adapter_dtype=False)
            was, now = (_settings(model) for model in (live, loaded))
            if changed := sorted(name for name in was if was[name] != now.get(name)):
                raise _differs("adapter", f"its setting {changed[0]} was {was[changed[0]]!r} and is {now.get(changed[0])!r}")
            self._refuse_other_weights("adapter", loaded, trained, folder)
            self._compare("adapter", loaded, self.logits)
        return loaded

    def logits_of(self, model: Any) -> torch.Tensor:
        """Logits (tokens, vocabulary) of a model in host memory, computed as in training."""
        ids = torch.tensor([self.ids])
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            logits: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].float()
        return logits

    def prove_merged(self, folder: Path, merged: Any, logits: torch.Tensor) -> None:
        """Load the merged model of `folder`. `merged`: the one in memory, whose head PEFT unties if it was trained; `logits`: of base and
        adapter, before they were merged. Raises JobFailed.
        """
        with self._timed():
            loaded = self._load("merged", folder)
            self._refuse_other_config("merged", loaded, merged.config)
            self._refuse_other_weights("merged", loaded, merged.state_dict(), folder)
            self._compare("merged", loaded, logits)

    def told(self) -> dict[str, Any]:
        """The part of the report."""
        shown = {"model": "model", "adapter": "adapter", "merged": "merged model"}
        parts = [f"{text} {_size(self.found[name])}" for name, text in shown.items() if name in self.found]
        said = [f"saved = trained: {', '.join(parts)}"] if parts else []
        if "unproven" in self.found:
            said.append(self.found["unproven"])
        if changed := self.found.get("changed by loading"):
            said.append(f"transformers changes {', '.join(changed[:_NAMED])} whenever it loads this model")
        return {**self.found, "sentence": "; ".join(said)}

    def _load(self, name: str, folder: Path) -> Any:
        try:
            model, told = AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", trust_remote_code=self.trust_remote_code, output_loading_info=True, **self.attention
            )
        except Exception as error:
            raise _differs(name, f"transformers does not load it: {error}") from error
        for kind in ("missing", "unexpected", "mismatched"):
            if names := sorted(map(str, told[f"{kind}_keys"])):
                raise _differs(name, f"{len(names)} weights are {kind} ({', '.join(names[:_NAMED])})")
        return model

    @property
    def attention(self) -> dict[str, str]:
        """The attention to load with, where the run has chosen one that computes something of its own: eager alone caps scores."""
        return {"attn_implementation": "eager"} if getattr(self.config, "_attn_implementation", None) == "eager" else {}

    def _refuse_other_config(self, name: str, loaded: Any, expected: Any) -> None:
        was, now = (_fields_of(config) for config in (expected, loaded.config))
        changed = sorted(field for field in was.keys() | now.keys() if was.get(field) != now.get(field))
        if changed:
            field = changed[0]
            raise _differs(name, f"{field} of its configuration was {was.get(field)!r} and is {now.get(field)!r}")

    def _refuse_other_weights(self, name: str, loaded: Any, trained: Weights, folder: Path) -> None:
        there = loaded.state_dict()
        other = [key for key, weight in trained.items() if key not in there or not _same(there[key], weight)]
        wrong = [key for key in other if key not in there or not _is_in_files(folder, key, trained, there[key].dtype)]
        if wrong:
            raise _differs(name, f"{len(wrong)} of {len(trained)} weights differ ({', '.join(wrong[:_NAMED])})")
        if other:  # the file is right, and each user's load changes it: Youtu's sets the row of the padding token to zero
            self.found["changed by loading"] = other

    def _compare(self, name: str, loaded: Any, expected: torch.Tensor) -> None:
        # Not of all tokens: a rounding may send single ones to other experts.
        share = 0.9 if self.dtype == torch.float32 else 0.5
        change = float(changes_of(self.logits_of(loaded), expected).quantile(share))
        rounding = TOLERANCES[self.dtype] * (_ELSEWHERE[self.dtype] if self.on_gpu else 1)
        if name == "merged":  # the sum of base and adapter is rounded
            rounding *= 2
        if not change <= (_OF_A_LOAD if "changed by loading" in self.found else rounding):
            raise _differs(name, f"its logits differ by {change:.1e} of their size")
        self.found[name] = change

    def _lacks_memory(self, name: str, needed_bytes: int) -> bool:
        lacks = needed_bytes * _HEADROOM > free_host_gb() * 1e9
        if lacks:
            self.found["unproven"] = f"the {name} was not loaded: it needs {needed_bytes * _HEADROOM / 1e9:.3g} GB of host memory"
        return lacks

    def can_load(self, model: Any) -> bool:
        """Whether host memory holds the base of an adapter. The report says where it does not."""
        return not self._lacks_memory("adapter's base", size_of(model, self.dtype))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.found["seconds"] = round(self.found.get("seconds", 0.0) + time.perf_counter() - began, 3)


def changes_of(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|found - expected| / |expected| of each token, norms over the vocabulary."""
    found, expected = found.float().cpu(), expected.float().cpu()
    return (found - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=1e-30)


def _same(loaded: torch.Tensor, trained: torch.Tensor) -> bool:
    """Equal after the cast to the dtype of the file. Compared as bits, so that a NaN equals itself."""
    cast = trained.detach().to("cpu", loaded.dtype)
    if loaded.shape != cast.shape:
        return False
    there, here = (each.detach().cpu().reshape(-1).view(torch.uint8) for each in (loaded, cast))
    return bool(torch.equal(there, here))


def _is_in_files(folder: Path, name: str, trained: Weights, dtype: torch.dtype) -> bool:
    """Whether a file of the folder holds the trained weight, under its name or that of a weight that is tied to it."""
    weight = trained[name]
    tied = {other for other, value in trained.items() if value.shape == weight.shape and torch.equal(value, weight)}
    for file in folder.glob("*.safetensors"):
        opened: Any = safe_open(file, "pt")
        for key in tied & set(opened.keys()):
            saved = opened.get_tensor(key)
            if saved.dtype == dtype and _same(saved, weight):
                return True
    return False


def _size(difference: float) -> str:
    return f"to {difference:.0e}" if difference else "exactly"


def _settings(adapted: Any) -> dict[str, Any]:
    config = adapted.peft_config["default"].to_dict()
    return {name: sorted(value) if isinstance(value, set) else value for name, value in config.items() if name not in _OF_THE_BASE}


def _fields_of(config: Any) -> dict[str, Any]:
    """The fields of a configuration that belong to the model, as JSON holds them."""

    def own(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(name): own(each) for name, each in value.items() if name not in OF_A_SAVE and not str(name).startswith("_")}
        return [own(each) for each in value] if isinstance(value, (list, tuple)) else value

    fields: dict[str, Any] = json.loads(json.dumps(own(config.to_dict()), default=str, sort_keys=True))
    return fields


def refuse_other_tokenizer(folder: Path, tokenizer: Any, *, trust_remote_code: bool) -> None:
    """Raises JobFailed if the saved tokenizer has another vocabulary or chat template."""
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if loaded.get_vocab() != tokenizer.get_vocab():
        raise _differs("tokenizer", "its vocabulary is another")
    if loaded.chat_template != tokenizer.chat_template:
        raise _differs("tokenizer", "its chat template is another")


def _bytes_of(weights: Weights) -> int:
    return sum(weight.numel() * weight.element_size() for weight in {id(weight): weight for weight in weights.values()}.values())


def size_of(model: Any, dtype: torch.dtype) -> int:
    """Bytes of all weights in `dtype`. A byte of a quantized weight holds two weights."""
    weights = list(model.parameters())
    numbers: list[int] = [2 * each.numel() if each.dtype is torch.uint8 else getattr(each, "ds_numel", each.numel()) for each in weights]
    return sum(numbers) * int(dtype.itemsize)


def _differs(name: str, how: str) -> JobFailed:
    return JobFailed(
        f"the saved {name} is not what was trained: {how}",
        "the last checkpoint is whole: `tuneyard checkpoints convert` writes its weights; report this with the versions of the packages",
    )
