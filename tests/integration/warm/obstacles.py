"""Loaded by a server, it does what the variable OBSTACLE names, as a library may do while it is imported."""

import _thread
import ctypes
import importlib
import os
import threading


def _pause() -> None:
    threading.Event().wait()


def _pause_under_a_name() -> None:
    ctypes.CDLL(None).prctl(15, b"of-a-library", 0, 0, 0)  # PR_SET_NAME
    named.set()
    _pause()


named = threading.Event()
match os.environ["OBSTACLE"]:
    case "grpc channel":
        channel = importlib.import_module("grpc").insecure_channel("127.0.0.1:1")
    case "grpc":
        importlib.import_module("grpc")
    case "ray":
        importlib.import_module("ray")
    case "thread":
        threading.Thread(target=_pause, name="of-python", daemon=True).start()
    case "native thread":
        _thread.start_new_thread(_pause_under_a_name, ())
        named.wait()
    case "cuda loaded":
        ctypes.CDLL("libcuda.so.1")
    case "cuda":
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    case "nvml":
        importlib.import_module("pynvml").nvmlInit()
    case "nvml ended":
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        nvml.nvmlShutdown()
