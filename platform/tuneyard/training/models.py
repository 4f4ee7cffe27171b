"""The model and tokenizer at the start of a task, in the precision, attention and form of the plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, set_seed
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.api.pointers import refuse_pointers
from tuneyard.api.train import QuantizedAdapter
from tuneyard.catalog import refuse_encoders
from tuneyard.catalog.adapter_files import check_adapter_files
from tuneyard.catalog.weight_files import check_weight_files
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.planning import Plan
from tuneyard.storage import fetch_folder
from tuneyard.training.distributed import World, barrier
from tuneyard.training.host_sharding import spread_weights
from tuneyard.training.memory import is_out_of_memory
from tuneyard.training.merging import load_base, merge, save_here
from tuneyard.training.model_finder import find_model
from tuneyard.training.request import TrainRequest
from tuneyard.training.varlen import VARLEN

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_HOPPER = 9
"""Major compute capability of the GPUs that flash-attn 3 was written for."""


def attention_name(kind: str) -> str:
    """transformers' name of a kind of attention. `flash` is the package flash-attn where it is installed (3 on Hopper, 2), else Tuneyard's
    own, over the kernel inside torch.
    """
    if kind != "flash":
        return kind
    if is_flash_attn_3_available() and torch.cuda.get_device_capability()[0] == _HOPPER:
        return "flash_attention_3"
    return "flash_attention_2" if is_flash_attn_2_available() else VARLEN


def find_start(request: TrainRequest, world: World) -> str:
    """A local folder with the starting weights and tokenizer, or a Hugging Face name. One rank of each machine fetches.

    With `init: scratch`, and for full training on top of an adapter, the folder is made here once, so that every layout starts from the
    same weights. Must be called before TrainingArguments exist: ZeRO-3 would partition the weights made here.
    """
    uri = request.model_uri
    cache = Path(request.scratch) / "start"
    if "://" not in uri and not Path(uri).expanduser().exists():
        if uri.startswith((".", "/", "~")):
            raise BadInput(f"there is no folder {uri}", "check model.name: a Hugging Face name, a folder, or a URI of a model folder")
        source = uri
    else:
        source = fetched(uri, cache / "model", world)
        _check_is_model(Path(source), uri, needs_weights=request.task.model.init == "pretrained")
    if request.task.model.init == "scratch":
        return _made_once(cache / "scratch", world, lambda folder: _initialise(source, folder, request))
    if request.adapter_uri is not None and request.task.method.name == "full":
        adapter = adapter_source(request, world, source)
        return _made_once(cache / "merged", world, lambda folder: _merge(source, adapter, folder, request))
    return source


def adapter_source(request: TrainRequest, world: World, start: str) -> str:
    """A local folder with the adapter to continue from, whole and as its configuration says. `start`: the base's folder or name."""
    assert request.adapter_uri is not None
    folder = fetched(request.adapter_uri, Path(request.scratch) / "start" / "adapter", world)
    check_adapter_files(Path(folder), Path(start) if Path(start).is_dir() else None)
    return folder


def load_tokenizer(request: TrainRequest, start: str) -> Any:
    """The tokenizer. If it has no padding token, its end token pads; without either, token 0 pads, which never counts."""
    tokenizer = _read_tokenizer(request, start)
    if tokenizer.pad_token is None and (token := tokenizer.eos_token or tokenizer.unk_token):
        tokenizer.pad_token = token
    return tokenizer


def _read_tokenizer(request: TrainRequest, start: str) -> Any:
    model = request.task.model
    return read_tokenizer(start, revision=model.revision, trust=model.trust_remote_code, called=request.model_uri)


def load_model(request: TrainRequest, start: str, world: World, warn: Callable[[str], None] = lambda _: None) -> Any:
    """The model without adapters. With ZeRO-3, TrainingArguments must exist: weights are partitioned during loading.

    `warn` gets a warning for weights of the files that the model has no place for.
    """
    plan = request.plan
    rounding = quantization(request.task.method.qlora, plan.precision)
    options: dict[str, Any] = {} if rounding is None else {"quantization_config": rounding, "device_map": {"": world.device}}
    trust = request.task.model.trust_remote_code
    set_seed(request.task.seed)
    refuse_pointers(start)
    try:
        refuse_encoders(AutoConfig.from_pretrained(start, revision=request.task.model.revision, trust_remote_code=trust).to_dict())
        model, loaded = AutoModelForCausalLM.from_pretrained(
            start,
            revision=request.task.model.revision,
            dtype=load_dtype(request),
            attn_implementation=attention_name(plan.attention),
            trust_remote_code=trust,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise BadInput(f"{request.model_uri} cannot be loaded: {said_by(error)}", _loading_advice(plan, error)) from error
    except RuntimeError as error:
        if is_out_of_memory(error) or "size" not in str(error):
            raise
        raise BadInput(
            f"the weights of {request.model_uri} have other shapes than its config.json says",
            "take config.json and weights from the same model; `init: scratch` needs no weights",
        ) from error
    unplaced = sorted(map(str, loaded["unexpected_keys"]))
    if unplaced:
        some = ", ".join(unplaced[:3]) + (", ..." if len(unplaced) > 3 else "")
        warn(f"{request.model_uri} has {len(unplaced)} weights that its config.json has no place for; they are left out: {some}")
    _refuse_missing(request, start, sorted(loaded["missing_keys"]))
    _keep_trainable(model)
    spread_weights(model, world)
    model.config.use_cache = False
    return model


def _keep_trainable(model: Any) -> None:
    """On processors with AVX512-BF16, bitsandbytes packs 4-bit weights at their first pass in evaluation mode. Packed weights multiply
    faster, and pass no gradient on.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def sizes_of_weights(request: TrainRequest, start: str) -> list[int]:
    """Elements of each of the model's weights. Nothing is loaded; TrainingArguments must not exist yet."""
    trust = request.task.model.trust_remote_code
    config = AutoConfig.from_pretrained(start, revision=request.task.model.revision, trust_remote_code=trust)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    return [int(parameter.numel()) for parameter in model.parameters()]


def vision_warning(request: TrainRequest, start: str, model: Any) -> str | None:
    """The warning for a model with vision if only its language part is loaded and saved; None if the whole model is."""
    trust = request.task.model.trust_remote_code
    own = (AutoConfig.from_pretrained(start, revision=request.task.model.revision, trust_remote_code=trust).architectures or [None])[0]
    ours = type(model).__name__
    if own in (None, ours) or not str(own).endswith("ForConditionalGeneration"):
        return None
    return f"{request.model_uri} is a {own}: its language part ({ours}) is trained and saved, without the weights for images and sound"


def _refuse_missing(request: TrainRequest, start: str, names: list[str]) -> None:
    """Raises BadInput for missing weights: transformers would initialise them at random, and report it only in a log."""
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        if request.plan.zero == 3 and all(_is_stored(Path(start), name) for name in names):
            raise BadInput(
                f"transformers {transformers.__version__} does not load {some} of {request.model_uri} under ZeRO 3; its files hold it",
                "set strategy.zero to 2, under which transformers loads it in another way",
            )
        raise BadInput(
            f"{request.model_uri} lacks {len(names)} weights of a language model, which would start at random: {some}",
            "name a model that was saved with its language head (AutoModelForCausalLM), or set model.init to scratch",
        )


def _is_stored(folder: Path, name: str) -> bool:
    """Whether a file of the folder holds a weight of that name, with or without the prefix of the base model."""
    plain = name.partition(".")[2]
    for file in folder.glob("*.safetensors"):
        opened: Any = safe_open(file, "pt")
        if not {name, plain}.isdisjoint(opened.keys()):
            return True
    return False


def load_dtype(request: TrainRequest) -> torch.dtype:
    """The dtype of weights in memory. Without DeepSpeed, trained weights stay fp32 and the forward pass is autocast. DeepSpeed keeps its
    own fp32 masters, and frozen weights need none.
    """
    trained_in_fp32 = request.plan.zero == 0 and request.task.method.name == "full"
    return torch.float32 if trained_in_fp32 else DTYPES[request.plan.precision]


def quantization(qlora: QuantizedAdapter | None, precision: str) -> Any | None:
    """How transformers rounds the frozen weights to 4 bits; None for other methods than QLoRA."""
    if qlora is None:
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=qlora.quantization,
        bnb_4bit_use_double_quant=qlora.double_quantization,
        bnb_4bit_compute_dtype=DTYPES[precision],
    )


def fetched(uri: str, cache: Path, world: World) -> str:
    """A local copy of a model folder. One rank of each machine fetches it."""
    if world.is_first_here:
        folder = fetch_folder(uri, cache)
    barrier(world)
    if not world.is_first_here:
        folder = fetch_folder(uri, cache)
    return str(folder)


def _check_is_model(folder: Path, uri: str, *, needs_weights: bool) -> None:
    """Raises BadInput for a folder without a whole model: a run does not look at what another task will make."""
    try:
        find_model(str(folder), checked=False)
        if needs_weights:
            check_weight_files(folder)
    except BadInput as error:
        raise BadInput(error.cause.replace(str(folder), uri), error.next_step) from error


def _made_once(folder: Path, world: World, make: Any) -> str:
    if world.is_first_here:
        shutil.rmtree(folder, ignore_errors=True)
        make(folder)
    barrier(world)
    return str(folder)


def _initialise(source: str, folder: Path, request: TrainRequest) -> None:
    trust = request.task.model.trust_remote_code
    config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
    set_seed(request.task.seed)
    save_here(AutoModelForCausalLM.from_config(config, trust_remote_code=trust, dtype=torch.float32), folder)
    _read_tokenizer(request, source).save_pretrained(folder)


def _merge(source: str, adapter: str, folder: Path, request: TrainRequest) -> None:
    from peft import PeftModel

    trust = request.task.model.trust_remote_code
    base = load_base(source, dtype="auto", revision=request.task.model.revision, trust=trust, quantization=None)
    merge(PeftModel.from_pretrained(base, adapter), folder)
    _read_tokenizer(request, source).save_pretrained(folder)


def _loading_advice(plan: Plan, error: BaseException) -> str:
    if "attention implementation" in str(error) or plan.attention == "flash":
        slower = "sdpa or eager" if plan.attention == "flash" else "eager"
        return f"if this is about its attention: set model.attention to {slower}"
    if isinstance(error, ImportError):
        return "install the package that it names beside Tuneyard; for a job, in its image or by spec.setup"
    if "Unrecognized configuration class" in str(error):
        return "train a causal language model; of a model for images, save its language part as one (AutoModelForCausalLM) first"
    return "check that the folder holds a causal language model that this version of transformers knows"
