"""The one container of a head or worker pod: its command, environment, mounts and security context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from tuneyard.api import EnvVar
from tuneyard_operators.rendering.secrets import SecretKey

SCRATCH = "/scratch"
_LOG = f"{SCRATCH}/setup.log"
# Ray gives its node 30 s to come up, a time that cannot be set and that a busy machine misses: it is tried again.
_SCRIPT = f"""\
setup() {{
  eval "$1" >>{_LOG} 2>&1 && return
  code=$?
  python -m tuneyard.runtime.termination {_LOG} "$code" "$1"
  exit "$code"
}}
{{commands}}
{{warm}}{{wait}}ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -H -n)"
for try in 1 2 3 4; do
  began=$SECONDS
  eval "$KUBERAY_GEN_RAY_START_CMD" & ray=$!
  trap 'kill -TERM $ray' TERM
  wait $ray; code=$?
  [ $code = 1 ] && [ $((SECONDS - began)) -lt 120 ] || break
done
exit $code
"""
# A pod that must stop (drained node, reclaimed spot machine) learns it here, before SIGTERM: the attempt sees `notice`, commits a
# checkpoint and removes `busy`. Without work there is no `busy`, and no wait.
# A worker without a head stops at once: only the head can tell its ranks to stop.
_PRE_STOP = f"touch {SCRATCH}/notice; while [ -e {SCRATCH}/busy ]{{head}}; do sleep 0.5; done"
_HEAD_ANSWERS = ' && (exec 3<>"/dev/tcp/$FQ_RAY_IP/6379") 2>/dev/null'


# KubeRay's own way is an init container that runs `ray health-check`, a Python start every 5 s in every worker pod. With this one it can
# be switched off: ENABLE_INIT_CONTAINER_INJECTION=false on the KubeRay operator.
_WAIT = 'until (exec 3<>"/dev/tcp/$FQ_RAY_IP/6379") 2>/dev/null; do sleep 0.5; done\n'


WARM_SERVERS = f"{SCRATCH}/warm"
# Ranks and engines start cold without the fork server, and say so.
_WARM = f"mkdir -p {WARM_SERVERS}; python -P -m tuneyard.runtime.stack_server {{arguments}} >{SCRATCH}/warm.log 2>&1 &\n"


def command(setup: Sequence[str], *, wait_for_head: bool, warm: str = "") -> list[str]:
    """`setup`, each command in the same shell, so that what one exports is there for the next and for Ray; then Ray. `warm`: arguments of
    the fork server that loads meanwhile (see `tuneyard.runtime.stack_server`), or empty."""
    commands = "\n".join(f"setup {quote(line)}" for line in setup)
    script = _SCRIPT.replace("{commands}", commands).replace("{wait}", _WAIT if wait_for_head else "")
    return ["/bin/bash", "-c", script.replace("{warm}", _WARM.format(arguments=warm) if warm else "")]


def lifecycle(*, of_worker: bool) -> dict[str, Any]:
    hook = _PRE_STOP.replace("{head}", _HEAD_ANSWERS if of_worker else "")
    return {"preStop": {"exec": {"command": ["/bin/bash", "-c", hook]}}}


def security_context() -> dict[str, Any]:
    """The security context that the restricted Pod Security Standard requires."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def literal(container: Mapping[str, Any]) -> dict[str, Any]:
    """`container` with every `$` of its command, arguments and variables doubled: the kubelet passes on what stood there before.

    It would else replace `$(NAME)` by the variable NAME, also where NAME holds a secret, and `$$` by `$`
    (https://kubernetes.io/docs/reference/kubernetes-api/definitions/container-v1-core, `command`).
    """
    words = {field: [_doubled(word) for word in container[field]] for field in ("command", "args") if field in container}
    env = [{**variable, "value": _doubled(variable["value"])} if "value" in variable else variable for variable in container["env"]]
    return {**container, **words, "env": env}


def _doubled(text: str) -> str:
    return text.replace("$", "$$")


def plain(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def job_env(env: Sequence[EnvVar], secret_name: str | None) -> list[dict[str, Any]]:
    """The job's variables; secrets are read from the Secret `secret_name`, or (None) from the Secret that the variable itself names."""
    found: list[dict[str, Any]] = []
    for variable in env:
        if variable.value_from is None:
            found.append({"name": variable.name, "value": variable.value or ""})
            continue
        reference = variable.value_from.secret_key_ref
        key = reference.key if secret_name is None else SecretKey(reference.name, reference.key).copied_key
        source = {"name": reference.name if secret_name is None else secret_name, "key": key, "optional": reference.optional}
        found.append({"name": variable.name, "valueFrom": {"secretKeyRef": source}})
    return found
