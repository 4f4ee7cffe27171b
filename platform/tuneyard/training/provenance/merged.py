"""Compares a merged model with what it was merged from: the sum of a base and an adapter, computed again, weight by weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from tuneyard.api.local_files import looks_like_path
from tuneyard.planning import Plan
from tuneyard.storage import MANIFEST, Store, fetch_folder, open_store
from tuneyard.training.adapter_reach import refuse_shared_weights
from tuneyard.training.checkpoint.layout import MODEL
from tuneyard.training.checkpoint.pieces import WEIGHT
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.memory import free_host_gb
from tuneyard.training.merging import load_base
from tuneyard.training.models import DTYPES, quantization
from tuneyard.training.origin import Origin
from tuneyard.training.provenance.certificate import file_hashes
from tuneyard.training.provenance.findings import Finding, compared, tried

_ELEMENT = {torch.float32: 8.0}
_NORM = {torch.float32: 4.0}
_ELEMENT_16, _NORM_16 = 1.0, 0.5
"""Largest differences that are rounding, in steps of the dtype: of a number, beside its own size and the usual size in its weight; and of
the norm of a weight. In fp32, kernels add the products of an adapter in another order.
"""
_MODELS = 2.2
"""Models in host memory at once: the merged one, and the sum."""


@dataclass(frozen=True)
class Sum:
    """What a model was merged from. `precision`: in which base and adapter were added."""

    base: str
    adapter: Path
    origin: Origin
    precision: str
    words: str
    """Of the adapter, for people."""


def compare_with_sum(folder: Path, made: Sum, *, trust: bool) -> Finding:
    """Whether the weights of a model folder are those of base and adapter: bit for bit where the adapter adds nothing, else to rounding."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    needed_gb = _MODELS * sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e9
    if needed_gb > free_host_gb():
        return Finding("weights", "not checked", f"base, adapter and merged model need {needed_gb:.3g} GB of host memory")
    base = load_base(
        made.base,
        dtype=DTYPES[made.precision],
        revision=made.origin.revision,
        trust=trust,
        quantization=quantization(made.origin.quantized, made.precision),
    )
    adapted = PeftModel.from_pretrained(base, str(made.adapter), autocast_adapter_dtype=False)
    refuse_shared_weights(adapted)
    changed = tuple(
        f"{name.removeprefix('base_model.model.')}." for name, module in adapted.named_modules() if hasattr(module, "base_layer")
    )
    expected = adapted.merge_and_unload().state_dict()
    there = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=trust).state_dict()
    missing = sorted(expected.keys() ^ there.keys())
    if missing:
        return Finding("weights", "failed", f"{len(missing)} weights are in one of model and sum alone: {', '.join(missing[:3])}")
    sizes = {name: _difference(there[name], expected[name], may_round=name.startswith(changed)) for name in expected}
    wrong = sorted((name for name, size in sizes.items() if size is None or not size <= 1), key=lambda name: -(sizes[name] or float("inf")))
    if wrong:
        how = _relative(there[wrong[0]], expected[wrong[0]])
        some = f"{', '.join(wrong[:3])}{', and others' * (len(wrong) > 3)}"
        return Finding(
            "weights", "failed", f"{len(wrong)} of {len(sizes)} are not base + {made.words}: {some} (the first by {how:.1e} of its size)"
        )
    exact = sum(size == 0 for size in sizes.values())
    rest = "bit for bit" if exact == len(sizes) else f"{exact} bit for bit, the others to the rounding of {made.precision}"
    return Finding("weights", "ok", f"{len(sizes)} weights are base + {made.words}, {rest}")


def _difference(found: torch.Tensor, expected: torch.Tensor, *, may_round: bool) -> float | None:
    """The difference over that which is rounding; None for another shape. 0: equal bits. Infinite where nothing may be rounded."""
    if found.shape != expected.shape:
        return None
    if found.dtype == expected.dtype and torch.equal(found, expected):
        return 0.0
    if not may_round or found.dtype != expected.dtype:
        return float("inf")
    step = float(torch.finfo(found.dtype).eps)
    here, there = found.double(), expected.double()
    apart, usual = (here - there).abs(), there.square().mean().sqrt()
    element = float((apart / (there.abs() + usual).clamp(min=1e-30)).max()) / (step * _ELEMENT.get(found.dtype, _ELEMENT_16))
    return max(element, _relative(found, expected) / (step * _NORM.get(found.dtype, _NORM_16)))


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    if found.shape != expected.shape:
        return float("inf")
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30))


def adapter_of_run(run: Store, reader: Reader | None, plan: Plan, scratch: Path) -> Path | None:
    """A folder with the adapter of a run: that of a checkpoint, else the one that the run saved; None if neither is there. `plan`: of the
    run, which saves adapters in fp32 without DeepSpeed, and in its precision otherwise.
    """
    if reader is None:
        return fetch_folder(run.url("model"), scratch / "adapter") if run.exists("model/adapter_config.json") else None
    folder = scratch / "adapter-of-checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_bytes(run.get(f"{MODEL}/adapter_config.json"))
    names: Mapping[str, str] = run.manifest(MODEL).extra.get("names", {})
    dtype = DTYPES[plan.precision] if plan.zero else torch.float32
    weights = {saved: reader.whole(name, WEIGHT).to(dtype).contiguous() for name, saved in names.items()}
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    return folder


def checked_merge(uri: str, scratch: Path, *, trust: bool) -> Iterator[Finding] | None:
    """Comparisons of a folder of `tuneyard merge` with its manifest, and with the base and adapter that this names; None for others."""
    store = open_store(uri)
    if not store.exists(MANIFEST) or "adapter" not in store.manifest("").extra or "dtype" not in store.manifest("").extra:
        return None
    return _of_merge(store, uri, scratch, trust)


def _of_merge(store: Store, uri: str, scratch: Path, trust: bool) -> Iterator[Finding]:
    manifest = store.manifest("")
    folder = fetch_folder(uri, scratch / "model")

    def files() -> Finding:
        listed = {file.path: file.sha256 for file in manifest.files}
        differs = compared(listed, file_hashes(folder, hidden=True))
        return Finding("files", "failed", differs) if differs else Finding("files", "ok", f"{len(listed)} files as they were written")

    def weights() -> Finding:
        about = manifest.extra
        origin = Origin.from_dict(about)
        base = str(fetch_folder(origin.base, scratch / "base")) if looks_like_path(origin.base) else origin.base
        adapter = fetch_folder(about["adapter"], scratch / "adapter")
        return compare_with_sum(folder, Sum(base, adapter, origin, about["dtype"], f"the adapter of {about['adapter']}"), trust=trust)

    yield tried("files", files)
    yield tried("weights", weights, out_of_reach=True)
