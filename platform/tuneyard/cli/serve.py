"""`tuneyard serve`: models behind OpenAI's API, on this machine."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.data.visible import visible
from tuneyard.extras import need

if TYPE_CHECKING:
    from tuneyard.runtime.serve.models import Served


class Precision(StrEnum):
    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="outputs of jobs or tasks, folders or URIs of adapters or of one whole model, or a Hugging Face name"
        ),
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="what requests call a model: once for each, in their order; default: its folder"),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="the address to listen at; others than this machine's own need a key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any free one")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="TUNEYARD_API_KEY", show_envvar=True, help="requests have to bring it in the header Authorization"
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="tokens of prompt and answer; default: the model's own, at most 8192")
    ] = None,
    dtype: Annotated[Precision, typer.Option(help="auto: bf16 where the GPU has it, else fp16; fp32 without a GPU")] = Precision.AUTO,
    tensor_parallel: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs that share the weights")] = 1,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="run Python code that comes with the model")] = False,
) -> None:
    """Serve models by vLLM, with OpenAI's API, until Ctrl-C.

    One engine serves one base model, and any number of adapters of it by their names. Prompts of each model are rendered as in its
    training. The line `serving: URL` on stdout says when it answers.

    Example: tuneyard serve runs/first runs/second --port 8000
    """
    need("score", "tuneyard serve")
    from tuneyard.runtime import stop_on_interrupt
    from tuneyard.runtime.placing import this_machine
    from tuneyard.runtime.serve.arguments import Wishes, command_of, environment_of, settings_of
    from tuneyard.runtime.serve.models import served_models
    from tuneyard.runtime.serve.ports import check_address, url_of
    from tuneyard.runtime.serve.process import ServerProcess

    port = check_address(host, port, has_key=bool(api_key))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the folder is removed
    with tempfile.TemporaryDirectory(prefix="tuneyard-serve-") as folder:
        served = served_models(models, name or [], Path(folder), trust=trust_remote_code)
        wishes = Wishes(max_length, dtype.value, tensor_parallel, trust_remote_code)
        settings = settings_of(served, wishes, sku=this_machine().sku)
        for line in _about(served):
            _tell(line)
        _tell(f"starting the engine: {settings.precision}, prompts with their answers of up to {settings.max_length} tokens")
        environment = environment_of(served, settings, api_key, Path(folder))
        with stop_on_interrupt(lambda: _tell("stopping; Ctrl-C again ends it at once")) as should_stop:
            server = ServerProcess(command_of(served, settings, host, port), environment, _tell)
            try:
                url = url_of(host, port)
                if server.wait_until_ready(url, should_stop, lambda seconds: _tell(f"  {seconds:.0f} s: the engine loads")):
                    print(f"serving: {url}/v1", flush=True)
                    for line in _how_to_ask(served, url, has_key=bool(api_key)):
                        _tell(line)
                    server.wait(should_stop)
            finally:
                server.end()


def _about(served: Served) -> list[str]:
    """A line for each model: what it is, and how it takes prompts."""
    lines = []
    for name in served.names:
        form = served.forms[name]
        what = f"an adapter on {served.base}" if name in served.adapters else f"the weights in {served.model}"
        takes = "chats and completions" if form.chats else f"completions alone: {form.why_plain}"
        made_by = f"; its prompts have the form {form.made_by!r}: a request sends one, or its columns" if form.made_by else ""
        lines.append(f"{name}: {what}; takes {takes}{made_by}")
    return lines


def _how_to_ask(served: Served, url: str, *, has_key: bool) -> list[str]:
    name = served.names[0]
    if served.forms[name].chats:
        path, body = "chat/completions", f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    else:
        path, body = "completions", f'{{"model": "{name}", "prompt": "Hello", "max_tokens": 64}}'
    key = ' -H "Authorization: Bearer $TUNEYARD_API_KEY"' if has_key else ""
    plain = "" if served.forms[name].chats else " --plain"
    return [
        f"models: {', '.join(served.names)}",
        f"ask: curl {url}/v1/{path} -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}",
        f"or: tuneyard chat --url {url}/v1 {shlex.quote(name)}{plain}",
        "Ctrl-C ends it",
    ]


def _tell(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)
