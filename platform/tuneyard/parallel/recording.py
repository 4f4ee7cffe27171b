"""Records one forward pass on the meta device: the operation that makes each tensor, and the module that calls each linear.

Nothing is computed and no weight is read, so a model of any size is recorded in seconds. Calls of `nn.Linear` and `nn.Embedding` are events
of their own; everything else is recorded as ATen operations.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tuneyard.parallel.linears import outputs_at
from tuneyard.parallel.modules import BACKWARD_HOOKS, experts_of, is_embedding, is_linear, is_torch_linear
from tuneyard.parallel.trees import leaves, mapped
from tuneyard.parallel.watcher import Watching, WithoutDropout

MAX_EVENTS = 400_000


@dataclass(frozen=True)
class Ref:
    """A tensor of the recording, by its number."""

    number: int


@dataclass(frozen=True)
class Event:
    """`kind` is op, linear, embedding, enter, exit or guard; `module` is the innermost running module (for a call: the called module).

    A guard marks the inputs and results of code whose backward pass is not visible: they must be whole.
    """

    kind: str
    module: str
    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: Any
    constants: tuple[torch.Tensor, ...] = ()
    """Tensors that Python made from numbers for this operation, with their values. Only these are on a device."""

    @property
    def read(self) -> list[Ref]:
        return [leaf for leaf in leaves((self.arguments, self.keywords)) if isinstance(leaf, Ref)]

    @property
    def made(self) -> list[Ref]:
        return [leaf for leaf in leaves(self.results) if isinstance(leaf, Ref)]


@dataclass
class Call:
    """One call of a module: its arguments and results, and its operations as a range of the recording's events."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    start: int
    stop: int = -1
    results: Any = None


@dataclass
class Recording:
    """Events in order, the shape of each tensor, the parameters among them, and the outputs. `inputs`, `training` and `answer` allow the
    same pass to be made again with other weights.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    training: bool = False
    answer: bool = False
    events: list[Event] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    inside: dict[str, set[str]] = field(default_factory=dict)
    """The operations inside the calls of each linear and embedding."""
    calls: dict[str, list[Call]] = field(default_factory=dict)
    """The calls of each module, by its name."""
    tokens: list[int] = field(default_factory=list)
    real: set[int] = field(default_factory=set)
    """Tensors of real numbers. The others carry no gradient."""
    sized: set[str] = field(default_factory=set)
    """Parameters whose size was read outside of their linear's or embedding's own call."""
    asked: int = 0
    """Number of times that the code read a value that the meta device lacks."""
    error: Exception | None = None


def record(
    model: nn.Module,
    inputs: Mapping[str, Any],
    weights: Mapping[str, torch.Size],
    *,
    training: bool = False,
    answer: bool = False,
    limit: int = MAX_EVENTS,
) -> Recording:
    """Run `model` on `inputs`; `weights` gives parameters another shape. A failure ends the recording, which keeps it as `error`: more
    than `limit` events is one.

    `training`: in training mode and with gradients, for code that depends on them. `answer`: the result for code that reads a value which
    the meta device lacks, such as whether a mean is above zero.
    """
    linears = {module: outputs_at(module) == 1 for module in model.modules() if is_linear(module) and not is_torch_linear(module)}
    recorder = _Recorder(model, Recording(inputs=dict(inputs), training=training, answer=answer), limit)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.default_generator.manual_seed(0)  # what code draws at random, such as the layers that it skips, is the same in each pass
        stack.enter_context(_as_meta(model, weights, trained=training))
        model.train(training)
        stack.enter_context(_plain_settings(model))
        stack.enter_context(recorder.hooked())
        stack.enter_context(recorder.guarded_functions())
        stack.enter_context(_as_products(linears))
        given = mapped(_meta, dict(inputs))
        recorder.start(given)
        try:
            with torch.set_grad_enabled(training), Watching(recorder), recorder:
                returned = model(**given)
        except Exception as error:  # noqa: BLE001  any module's own error: the caller says where it happened
            recorder.recording.error = error
            return recorder.recording
    recorder.recording.outputs = [recorder.number(leaf) for leaf in leaves(_plain(returned)) if isinstance(leaf, torch.Tensor)]
    return recorder.recording


def of_length(inputs: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """The same inputs for rows of another length: tensors with two or more dimensions get `tokens` in the second one."""

    def resized(given: Any) -> Any:
        if not isinstance(given, torch.Tensor) or given.ndim < 2:
            return given
        return torch.empty((given.shape[0], tokens, *given.shape[2:]), dtype=given.dtype, device="meta")

    return {name: resized(given) for name, given in inputs.items()}


def record_again(model: nn.Module, whole: Recording, weights: Mapping[str, torch.Size], *, limit: int = MAX_EVENTS) -> Recording:
    """The same pass with other shapes of weights, without dropout, like the passes that a plan is proven for."""
    with WithoutDropout():
        return record(model, whole.inputs, weights, training=whole.training, answer=whole.answer, limit=limit)


class _Recorder(TorchDispatchMode):
    def __init__(self, model: nn.Module, recording: Recording, limit: int) -> None:
        super().__init__()
        self.recording = recording
        self._limit = limit
        self._model = model
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []  # keeps ids unique; meta tensors hold no memory
        self._modules = [""]
        self._inside_call = 0
        self._called = ""
        self._weights = {id(weight): name for name, weight in model.named_parameters()}
        self._linears = {name for name, module in model.named_modules() if is_linear(module)}  # as the whole model is

    def number(self, tensor: torch.Tensor) -> int:
        known = self._numbers.get(id(tensor))
        if known is not None:
            return known
        number = len(self._kept)
        self._kept.append(tensor)
        self._numbers[id(tensor)] = number
        self.recording.shapes[number] = tuple(tensor.shape)
        self.recording.storages[number] = tensor.untyped_storage()._cdata
        if tensor.is_floating_point() or tensor.is_complex():
            self.recording.real.add(number)
        return number

    def start(self, given: Mapping[str, Any]) -> None:
        tensors = [leaf for leaf in leaves(given) if isinstance(leaf, torch.Tensor)]
        self.recording.tokens = [self.number(tensor) for tensor in tensors if tensor.dtype == torch.long]
        for name, parameter in self._model.named_parameters(remove_duplicate=True):
            self.recording.parameters[self.number(parameter)] = name

    def read_size(self, tensor: Any) -> None:
        """The model's own code reads the size of a tensor."""
        number = self._numbers.get(id(tensor))
        if not self._inside_call and number in self.recording.parameters:
            self.recording.sized.add(self.recording.parameters[number])

    def guard(self, tensor: torch.Tensor) -> None:
        """A hook works on the gradient of a tensor; the recording does not show its work."""
        self._add("guard", self._modules[-1], None, (tensor,), {}, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._scalar(args[0])
        constants = tuple(leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta")
        args, kwargs = mapped(self._on_meta, (args, kwargs))
        if func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_, torch.ops.aten.index_put):
            args = (args[0], _places(args[1]), *args[2:])
        results = _every_place(args[0]) if func is torch.ops.aten.nonzero.default else func(*args, **kwargs)
        if self._inside_call:
            self.recording.inside.setdefault(self._called, set()).add(func.overloadpacket.__name__)
        else:
            self._add("op", self._modules[-1], func, args, kwargs, results, constants)
        return results

    def _scalar(self, tensor: torch.Tensor) -> Any:
        """Python reads a value. If the meta device lacks it, all flags are `answer`, and all counts are 0 or 1 accordingly."""
        if tensor.device.type != "meta":
            return tensor.tolist()
        self.recording.asked += 1
        if tensor.dtype == torch.bool:
            return self.recording.answer
        return float(self.recording.answer) if tensor.is_floating_point() else int(self.recording.answer)

    @contextlib.contextmanager
    def guarded_functions(self) -> Iterator[None]:
        """Guard calls of the model's own autograd functions: their backward pass is not recorded. The wrapper is around their forward,
        because code may keep references to `apply`.
        """
        wrapped = [function for function in _subclasses(torch.autograd.Function) if "forward" in vars(function)]
        was = [vars(function)["forward"] for function in wrapped]
        for function in wrapped:
            function.forward = staticmethod(self._guarded(function.forward))
        try:
            yield
        finally:
            for function, forward in zip(wrapped, was, strict=True):
                function.forward = forward

    def _guarded(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **keywords: Any) -> Any:
            results = forward(*arguments, **keywords)
            self._add("guard", self._modules[-1], None, arguments, keywords, results)
            return results

        return guarded

    def _on_meta(self, leaf: Any) -> Any:
        if id(leaf) in self._weights:
            raise RuntimeError(f"{self._weights[id(leaf)]} is read past its module, through a reference that the model keeps to it")
        # tensors that a module made on the CPU beside its parameters
        return leaf.to("meta") if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta" else leaf

    def _add(self, kind: str, module: str, function: Any, args: Any, kwargs: Any, results: Any, constants: Any = ()) -> None:
        if len(self.recording.events) >= self._limit:
            raise RuntimeError(f"the forward pass has more than {self._limit} operations")
        args, kwargs, results = mapped(self._ref, (tuple(args), dict(kwargs), _plain(results)))
        self.recording.events.append(Event(kind, module, function, args, kwargs, results, constants))

    def _ref(self, leaf: Any) -> Any:
        return Ref(self.number(leaf)) if isinstance(leaf, torch.Tensor) else leaf

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        experts = experts_of(self._model)
        handles = []
        for name, module in self._model.named_modules():
            kind = "linear" if name in self._linears else "embedding" if is_embedding(module) else "experts" if name in experts else "other"
            changes_gradient = any(getattr(module, hooks) for hooks in BACKWARD_HOOKS)
            handles.append(module.register_forward_pre_hook(self._before(name, kind), with_kwargs=True))
            handles.append(module.register_forward_hook(self._after(name, kind, changes_gradient=changes_gradient), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, name: str, kind: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            given, named = mapped(self._ref, (tuple(args), dict(kwargs)))
            self.recording.calls.setdefault(name, []).append(Call(given, named, len(self.recording.events)))
            if kind == "experts":
                self._add("enter", name, None, args, kwargs, None)
            self._modules.append(name)
            if kind in ("linear", "embedding"):
                self._called = self._called if self._inside_call else name
                self._inside_call += 1

        return hook

    def _after(self, name: str, kind: str, *, changes_gradient: bool) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._modules.pop()
            if kind in ("linear", "embedding"):
                self._inside_call -= 1
                self._add(kind, name, None, args or tuple(kwargs.values()), {}, output)
            elif kind == "experts":
                self._add("exit", name, None, (), {}, output)
            if changes_gradient:
                self._add("guard", name, None, args, kwargs, output)
            call = next(call for call in reversed(self.recording.calls[name]) if call.stop < 0)
            call.stop, call.results = len(self.recording.events), mapped(self._ref, _plain(output))

        return hook


def _subclasses(function: Any) -> list[Any]:
    """Subclasses in user code. torch's own consist of operations that are recorded."""
    found = [below for each in function.__subclasses__() for below in (each, *_subclasses(each))]
    return [each for each in found if not each.__module__.startswith("torch.")]


def _every_place(tensor: torch.Tensor) -> torch.Tensor:
    """`nonzero` on the meta device, where values are unknown: all places."""
    return torch.empty((tensor.numel(), tensor.ndim), dtype=torch.long, device="meta")


def _places(indices: Any) -> list[Any]:
    """Indices with masks replaced by the places that they would choose."""
    found: list[Any] = []
    for index in indices:
        mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        found += list(_every_place(index).unbind(1)) if mask else [index]
    return found


def _meta(leaf: Any) -> Any:
    return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf


def _plain(value: Any) -> Any:
    """Containers that pytree does not know (transformers' outputs, caches) as lists of their contents."""
    if isinstance(value, Mapping):
        return [_plain(item) for item in value.values()]
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def _as_meta(model: nn.Module, shapes: Mapping[str, torch.Size], *, trained: bool) -> Iterator[None]:
    """Move every parameter and buffer to the meta device, and back at the end. A parameter of two modules stays one tensor."""
    was: list[tuple[dict[str, Any], str, Any]] = []
    replaced: dict[int, Any] = {}
    for name, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for own, tensor in held.items():
                if tensor is None:
                    continue
                shape = shapes.get(f"{name}.{own}" if name else own, tensor.shape)
                if id(tensor) not in replaced:
                    blank = torch.empty(shape, dtype=tensor.dtype, device="meta")
                    replaced[id(tensor)] = (
                        nn.Parameter(blank, requires_grad=trained and blank.is_floating_point())
                        if isinstance(tensor, nn.Parameter)
                        else blank
                    )
                was.append((held, own, tensor))
                held[own] = replaced[id(tensor)]
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for held, own, tensor in was:
            held[own] = tensor
        for module, flag in training.items():
            module.training = flag


@contextlib.contextmanager
def _as_products(linears: Mapping[nn.Module, bool]) -> Iterator[None]:
    """Linears of other classes compute as `nn.Linear` does, with weights of any size: their own forward may fix how many outputs it
    has. True: the weight lies as [inputs, outputs].
    """
    for module, turned in linears.items():
        vars(module)["forward"] = functools.partial(_product, module, turned=turned)
    try:
        yield
    finally:
        for module in linears:
            del vars(module)["forward"]


def _product(module: Any, x: torch.Tensor, *, turned: bool) -> torch.Tensor:
    return nn.functional.linear(x, module.weight.t() if turned else module.weight, module._parameters.get("bias"))


@contextlib.contextmanager
def _plain_settings(model: nn.Module) -> Iterator[None]:
    """Make attention and experts use matrix products of static shape, if the model's config offers the choice."""
    wanted = {"_attn_implementation_internal": "eager", "_experts_implementation_internal": "batched_mm"}
    configs = {id(found): found for module in model.modules() if (found := getattr(module, "config", None)) is not None}
    was = [(config, name, vars(config)[name]) for config in configs.values() for name in wanted if name in getattr(config, "__dict__", {})]
    for config, name, _ in was:
        vars(config)[name] = wanted[name]
    try:
        yield
    finally:
        for config, name, value in was:
            vars(config)[name] = value
