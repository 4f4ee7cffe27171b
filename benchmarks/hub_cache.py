"""Processor time of the hub's cache: a list of 10,000 JobSpecs, as many events of a watch, and patches; the server is in the same process.

    .venv/bin/python benchmarks/hub_cache.py

Against an older tree: PYTHONPATH=OLD/platform:OLD/operators in front, and runs of both in turn.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

from aiohttp import web
from kubernetes_asyncio import client

from tuneyard_operators.kube import JOBSPEC, Cache, Connection

JOBS, PATCHES, ROUNDS = 10_000, 2000, 5
TASK = {
    "name": "tune",
    "train": {"model": {"hub": "x" * 40}, "method": {"lora": {"rank": 16}}, "data": {"source": "s3://" + "y" * 60}, "steps": 1000},
    "resources": {"workers": 8, "sku": ["h100-80gb"]},
}
ATTEMPT = {"name": "tune-1", "number": 1, "task": "tune", "placement": {"cluster": "lab", "nodes": ["n1", "n2"]}}


def item(number: int, version: int) -> dict[str, Any]:
    metadata = {"name": f"job-{number}", "namespace": f"team-{number % 20}", "uid": f"u-{number}", "resourceVersion": str(version)}
    spec = {"tasks": [TASK, TASK], "storage": {"output": "s3://bucket/" + "z" * 40}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "attempts": [ATTEMPT], "message": "m" * 100}}


LIST = json.dumps({"metadata": {"resourceVersion": str(JOBS)}, "items": [item(n, n + 1) for n in range(JOBS)]}).encode()
EVENTS = b"".join(json.dumps({"type": "MODIFIED", "object": item(n, JOBS + n + 1)}).encode() + b"\n" for n in range(JOBS))


async def answer(request: web.Request) -> web.StreamResponse:
    if request.method == "PATCH":
        return web.Response(body=b'{"metadata":{}}', content_type="application/json")
    if "watch" not in request.query:
        return web.Response(body=LIST, content_type="application/json")
    response = web.StreamResponse()
    await response.prepare(request)
    for start in range(0, len(EVENTS), 1 << 16):
        await response.write(EVENTS[start : start + (1 << 16)])
    await response.write_eof()
    return response


async def measure(connection: Connection) -> dict[str, float]:
    lists, watches, patches = [], [], []
    for _ in range(ROUNDS):
        cache = Cache(connection, JOBSPEC)
        began = time.process_time()
        version = await cache._list()
        lists.append(time.process_time() - began)
        began = time.process_time()
        await cache._follow(version)
        watches.append(time.process_time() - began)
        assert cache.items["team-0", "job-0"]["metadata"]["resourceVersion"] == str(JOBS + 1)
        began = time.process_time()
        for number in range(PATCHES):
            await connection.patch(JOBSPEC, "a", f"b{number}", {"status": {"phase": "Running"}}, subresource="status", brief=True)
        patches.append((time.process_time() - began) / PATCHES)
    return {"list s": statistics.median(lists), "watch s": statistics.median(watches), "patch ms": statistics.median(patches) * 1e3}


async def main() -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    connection = Connection(client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"), qps=1e6)
    try:
        print(" · ".join(f"{name} {value:.3f}" for name, value in (await measure(connection)).items()))
    finally:
        await connection.close()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
