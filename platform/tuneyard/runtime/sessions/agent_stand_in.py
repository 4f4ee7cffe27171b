"""Stands in for Ray's dashboard agent in an embedded Ray, which shows no dashboard. A script: it imports neither Ray nor Tuneyard.

1. The raylet starts it, and waits until it has written the agent's ports. It writes -1, "not in use", as the agent of a Ray without
   dashboard does.
2. The raylet ends when its agent ends, so the script waits for the end of the raylet.

Ray's own agent imports for two seconds of CPU time, and then measures the node every few seconds.
"""

import os
import sys
import time

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
_LOOK_EVERY_S = 1.0


def main() -> None:
    folder = next(word.partition("=")[2] for word in sys.argv if word.startswith("--session-dir="))
    for name in PORTS:
        path = os.path.join(folder, f"{name}_{os.environ['RAY_NODE_ID']}")
        with open(f"{path}.new", "w") as file:
            file.write("-1")
        os.replace(f"{path}.new", path)
    while os.getppid() == int(os.environ["RAY_RAYLET_PID"]):
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
