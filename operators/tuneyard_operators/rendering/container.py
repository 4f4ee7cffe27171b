"""The one container of a head or worker pod: its command, environment, mounts and security context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from tuneyard.api import EnvVar
from tuneyard_operators.rendering.secrets import SecretKey

SCRATCH = "/scratch"
_LOG = f"{SCRATCH}/setup.log"
# One shell runs all commands and starts Ray. `exit` in a command would end it: the container then fails, with the command's name.
_SETUP = f"""\
setup() {{
  __tuneyard_command=$1
  eval "$1" >>{_LOG} 2>&1 && return
  exit
}}
refused() {{
  code=$?
  python -m tuneyard.runtime.termination {_LOG} "$code" "$__tuneyard_command"
  [ "$code" = 0 ] && code=1
  exit "$code"
}}
trap refused EXIT
trap 'trap - EXIT; exit 143' TERM
{{commands}}
trap - EXIT TERM
set +eux
"""
# Ray's node has 30 s to start, a fixed time that a busy machine may exceed: the script tries again.
_SCRIPT = """\
{setup}{warm}{wait}ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -H -n)"
for try in 1 2 3 4; do
  began=$SECONDS
  eval "$KUBERAY_GEN_RAY_START_CMD" & ray=$!
  trap 'kill -TERM $ray' TERM
  wait $ray; code=$?
  [ $code = 1 ] && [ $((SECONDS - began)) -lt 120 ] || break
done
exit $code
"""

# Kubernetes runs this hook before SIGTERM in a pod that must stop (drained node, reclaimed spot machine): the attempt sees `notice`,
# commits
# a checkpoint and removes `busy`. A pod without work has no `busy`, and does not wait.
# A worker without a head stops at once: only the head can tell its ranks to stop.
_PRE_STOP = f"touch {SCRATCH}/notice; while [ -e {SCRATCH}/busy ]{{head}}; do sleep 0.5; done"
_HEAD_ANSWERS = ' && (exec 3<>"/dev/tcp/$FQ_RAY_IP/6379") 2>/dev/null'


# Replaces KubeRay's init container, which runs `ray health-check`, a Python start every 5 s in every worker pod. That container can be
# switched
# off with ENABLE_INIT_CONTAINER_INJECTION=false on the KubeRay operator.
_WAIT = 'until (exec 3<>"/dev/tcp/$FQ_RAY_IP/6379") 2>/dev/null; do sleep 0.5; done\n'


WARM_SERVERS = f"{SCRATCH}/warm"
# Without the fork server, ranks and engines start cold, and log that they do.
_WARM = f"mkdir -p {WARM_SERVERS}; python -P -m tuneyard.runtime.stack_server {{arguments}} >{SCRATCH}/warm.log 2>&1 &\n"


def command(setup: Sequence[str], *, wait_for_head: bool, warm: str = "") -> list[str]:
    """The command of a container: the `setup` commands, then Ray, all in one shell, so that later commands and Ray see exported variables.

    `warm`: arguments of the fork server that loads meanwhile (see `tuneyard.runtime.stack_server`), or empty.
    """
    commands = "\n".join(f"setup {quote(line)}" for line in setup)
    script = _SCRIPT.replace("{setup}", _SETUP if setup else "").replace("{commands}", commands)
    script = script.replace("{wait}", _WAIT if wait_for_head else "")
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
    """`container` with every `$` of its command, arguments and variables doubled, so that the kubelet passes on the original text.

    Otherwise the kubelet replaces `$(NAME)` by the variable NAME, even if NAME holds a secret, and `$$` by `$`
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
    """The job's variables. Their secrets come from the Secret `secret_name`, or (None) from the Secret that each variable names."""
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
