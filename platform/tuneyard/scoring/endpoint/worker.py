"""A worker whose engine is an endpoint. It loads no model and needs no GPU."""

from __future__ import annotations

import os
import time

from tuneyard.scoring.charges import Spent
from tuneyard.scoring.endpoint.key import key_of
from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.own_metrics import own_metrics_of
from tuneyard.scoring.similarity import similarities_of
from tuneyard.scoring.worker import Loaded, PartWorker


class EndpointWorker(PartWorker):
    """See `PartWorker`."""

    def load(self) -> Loaded:
        """Raises BadInput where the variable with the API key is missing."""
        from tuneyard.scoring.endpoint.engine import EndpointEngine  # late: the driver needs this class, and no client of HTTP

        began = time.perf_counter()
        request = self._order.request
        endpoint = request.task.engine.endpoint
        assert endpoint is not None
        self._own = own_metrics_of(request)
        self._similarities = similarities_of(request)
        prompts = EndpointPrompts(chat=request.task.data.chat)
        key = key_of(endpoint.api_key_variable, os.environ)
        sharing = min(request.instances, self._order.layout.parts)
        self._client = EndpointEngine(endpoint, request.task.generation, key=key, instances=sharing)
        self._begin(self._client, prompts)
        return Loaded(os.getpid(), time.perf_counter() - began, None, prompts.chats, warnings=self._warnings)

    def _spent(self) -> Spent:
        return super()._spent().plus(Spent(answers=self._client.paid))
