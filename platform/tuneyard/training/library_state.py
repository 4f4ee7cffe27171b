"""Restores the process-wide state of transformers and accelerate after a run."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from accelerate.state import AcceleratorState
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.utils import logging as transformers_logging


@contextmanager
def clean_libraries() -> Iterator[None]:
    """Restore transformers and accelerate at the end: both keep the choice of DeepSpeed in the process, and would force it on the next run
    in it. Inside the context, their progress bars and notices are off, because every rank would print them.
    """
    accelerate_log = logging.getLogger("accelerate")
    verbosity = transformers_logging.get_verbosity()
    settings = {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerate_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # In every step, DeepSpeed calls collectives by names that torch has deprecated.
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*is deprecated. Please use `torch.distributed")
            yield
    finally:
        accelerate_log.setLevel(logging.NOTSET)
        transformers_logging.set_verbosity(verbosity)
        for name in [name for name in os.environ if name.startswith("ACCELERATE_") and name not in settings]:
            del os.environ[name]
        unset_hf_deepspeed_config()
        AcceleratorState._reset_state(reset_partial_state=True)
