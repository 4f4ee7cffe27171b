"""A worker whose engine is an endpoint. It loads no model and needs no GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from tuneyard.api import BadInput
from tuneyard.scoring.endpoint.engine import EndpointEngine
from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.own_metrics import own_metrics_of
from tuneyard.scoring.similarity import similarities_of
from tuneyard.scoring.worker import Loaded, PartWorker


class EndpointWorker(PartWorker):
    """See `PartWorker`."""

    def load(self) -> Loaded:
        """Raises BadInput where the variable with the API key is missing."""
        began = time.perf_counter()
        request = self._order.request
        endpoint = request.task.engine.endpoint
        assert endpoint is not None
        self._own = own_metrics_of(request)
        self._similarities = similarities_of(request)
        prompts = EndpointPrompts(chat=request.task.data.chat)
        key = key_of(endpoint.api_key_variable, os.environ)
        sharing = min(request.instances, self._order.layout.parts)
        self._begin(EndpointEngine(endpoint, request.task.generation, key=key, instances=sharing), prompts)
        return Loaded(os.getpid(), time.perf_counter() - began, None, prompts.chats, warnings=self._warnings)


def key_of(variable: str | None, environment: Mapping[str, str]) -> str | None:
    """The API key in `environment`; None: none is asked for. Raises BadInput if it is missing, or cannot stand in a header."""
    if variable is None:
        return None
    key = environment.get(variable, "").strip()
    if not key:
        raise BadInput(
            f"the environment variable {variable} of engine.endpoint.apiKeyVariable is not set",
            f"give it to the job in spec.env: {{name: {variable}, valueFrom: {{secretKeyRef: {{name: SECRET, key: {variable}}}}}}}; "
            "a local run takes it from your environment",
        )
    if not key.isascii() or not key.isprintable():
        raise BadInput(f"the value of {variable} is no API key: it has characters that no header can hold", "export the key alone")
    return key
