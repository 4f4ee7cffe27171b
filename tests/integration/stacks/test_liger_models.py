"""The catalog's table of models with Liger kernels is that of the liger-kernel of the GPU lock file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.servers.gpu_packages import gpu_packages
from tests.zoo.proofs import proven_once
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from tuneyard.catalog import has_fused_loss, has_liger

ROOT = Path(__file__).parents[3]
LOOK = """
import inspect, json
from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN, _apply_liger_kernel_to_instance
from transformers import AutoModelForCausalLM
from tests.zoo.configs import tiny_config_of

fused, others, odd = [], [], {}
for kind, patch in MODEL_TYPE_TO_APPLY_LIGER_FN.items():
    option = inspect.signature(patch).parameters.get("fused_linear_cross_entropy")
    is_fused = option is not None and option.default
    (fused if is_fused else others).append(kind)
    try:
        model = AutoModelForCausalLM.from_config(tiny_config_of(kind))
    except ValueError:  # no causal language model
        continue
    _apply_liger_kernel_to_instance(model)
    has = getattr(model.forward, "__func__", model.forward).__module__.startswith("liger_kernel.")
    head = next(name for name, module in model.named_modules() if module is model.get_output_embeddings())
    if has != is_fused or head.rsplit(".", 1)[-1] != "lm_head":
        odd[kind] = [has, head]
print(json.dumps({"fused": fused, "others": others, "odd": odd}))
"""


@proven_once
def test_the_table_is_that_of_the_locked_liger() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{gpu_packages()}"}
    ran = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["odd"] == {}, "another forward pass than the table says, or a head of another name"
    every = {*CONFIG_MAPPING_NAMES, *found["fused"], *found["others"]}
    assert {kind for kind in every if has_fused_loss(kind)} == {*found["fused"]}
    assert {kind for kind in every if has_liger(kind)} == {*found["fused"], *found["others"]}
