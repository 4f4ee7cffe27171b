"""Keeps the trust between replicas and API server: the serving certificate in a Secret, its authority in the APIService, the front proxy.

The chart makes an empty Secret, and an APIService without an authority. The first replica fills both. If replicas race, each writes with
the version that it has read, so that one write succeeds, and the other replicas use its result.
"""

from __future__ import annotations

import base64
import datetime
from dataclasses import dataclass

from tuneyard.cluster.history_api import HISTORY_GROUP, HISTORY_VERSION
from tuneyard.cluster.log_api import LOG_GROUP, LOG_VERSION
from tuneyard.kubernetes import over
from tuneyard_operators.kube import API_SERVICE, CONFIG_MAP, SECRET, ApiError, Conflict, Connection
from tuneyard_operators.logs.certificates import Serving, new_serving
from tuneyard_operators.logs.front_proxy import CONFIG_NAME, CONFIG_NAMESPACE, FrontProxy

NAME = "tuneyard-hub-logs"
"""Name of the Service and of the Secret, in the hub's namespace."""
API_SERVICE_NAME = f"{LOG_VERSION}.{LOG_GROUP}"
HISTORY_API_SERVICE = f"{HISTORY_VERSION}.{HISTORY_GROUP}"
_TRIES = 3


@dataclass(frozen=True)
class Trust:
    serving: Serving
    proxy: FrontProxy


async def keep_trust(connection: Connection, namespace: str, now: datetime.datetime, *, history: bool = False) -> Trust:
    """Bring Secret and APIServices up to date. Raises ApiError; ValueError if the API server aggregates no APIs.

    `history`: the hub serves run history, which has an APIService of its own.
    """
    proxy = FrontProxy.from_config_map((await connection.get(CONFIG_MAP, CONFIG_NAMESPACE, CONFIG_NAME)).get("data") or {})
    serving = await _serving(connection, namespace, now)
    for name in (API_SERVICE_NAME, *([HISTORY_API_SERVICE] if history else [])):
        await _tell_api_server(connection, name, serving)
    return Trust(serving, proxy)


async def _serving(connection: Connection, namespace: str, now: datetime.datetime) -> Serving:
    host = f"{NAME}.{namespace}.svc"
    for _ in range(_TRIES):
        secret = await connection.get(SECRET, namespace, NAME)
        held = Serving.from_data({key: _decoded(value) for key, value in (secret.get("data") or {}).items()})
        if held is not None and held.is_good(host, now):
            return held
        made = new_serving(host, now, held)
        data = {key: base64.b64encode(value.encode()).decode() for key, value in made.to_data().items()}
        try:
            await connection.patch(SECRET, namespace, NAME, over(secret, {"data": data}))
            return made
        except Conflict:
            continue
    raise ApiError(409, f"others keep changing the Secret {namespace}/{NAME}")


async def _tell_api_server(connection: Connection, name: str, serving: Serving) -> None:
    wanted = base64.b64encode(serving.authorities.encode()).decode()
    if (await connection.get(API_SERVICE, None, name))["spec"].get("caBundle") != wanted:
        await connection.patch(API_SERVICE, None, name, {"spec": {"caBundle": wanted}})


def _decoded(value: str) -> str:
    return base64.b64decode(value).decode(errors="replace")
