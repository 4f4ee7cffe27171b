"""What a server serves: a base model, and adapters of it, each by a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.runtime.model_folders import folders_of
from tuneyard.runtime.serve.forms import Form, forms_of
from tuneyard.scoring.adapter import LoraAdapter, read_adapter
from tuneyard.scoring.settings import tokenizer_folder
from tuneyard.storage import is_local, local_path
from tuneyard.training.model_finder import FoundModel, find_model, name_of


@dataclass(frozen=True)
class Served:
    """`names`: of all models, those that were asked for first. `adapters` by name; all other names are the base's. `tokenizer`: the folder
    of the one that the engine takes."""

    names: list[str]
    base: str
    model: Path
    tokenizer: Path
    adapters: dict[str, LoraAdapter]
    forms: dict[str, Form]


def served_models(given: Sequence[str], names: Sequence[str], cache: Path, *, trust: bool) -> Served:
    """Find, fetch and check the models. `names`: of the first ones; the others, and those with an empty name, are called as their folders.

    Raises BadInput for what `find_model` and `folders_of` refuse, for models that one engine cannot serve together, and for adapters that
    engines do not apply.
    """
    if len(names) > len(given):
        raise BadInput(f"there are {len(names)} names for {len(given)} models", "give --name once for each of them, in their order")
    if twice := next((each for number, each in enumerate(given) if each in given[:number]), None):
        raise BadInput(f"{twice} is named twice", "name each model once")
    found = {each: find_model(each) for each in given}
    called = {each: (names[number] if number < len(names) else "") or name_of(each) for number, each in enumerate(given)}
    _check_one_base(found)
    whole = next((each for each in given if found[each].adapter_uri is None), None)
    first = found[given[0]]
    base = called[whole] if whole is not None else name_of(first.model_uri)
    all_names = list(called.values()) if whole is not None else [*called.values(), base]
    if twice := next((each for number, each in enumerate(all_names) if each in all_names[:number]), None):
        raise BadInput(f"two models would be served as {twice}", "name them in their order: --name A --name B")
    folders = {called[each]: folders_of(found[each], cache) for each in given}
    model = folders[called[given[0]]].model
    tokenizers = {name: tokenizer_folder(model, each.adapter) for name, each in folders.items()}
    if base not in tokenizers and (model / "tokenizer_config.json").exists():
        tokenizers[base] = model
    forms = forms_of(tokenizers, trust=trust)
    forms.setdefault(base, Form("", [], "its folder holds no tokenizer"))
    adapters = {name: _adapter(each.adapter, model) for name, each in folders.items() if each.adapter is not None}
    return Served(all_names, base, model, next(iter(tokenizers.values())), adapters, forms)


def _check_one_base(found: dict[str, FoundModel]) -> None:
    whole = [each for each, model in found.items() if model.adapter_uri is None]
    if len(whole) > 1:
        raise BadInput(f"{whole[0]} and {whole[1]} are whole models, and an engine has one", "start a server for each, on another --port")
    (first, one), *others = found.items()
    for each, other in others:
        if _weights(one) != _weights(other):
            raise BadInput(
                f"{first} is on {_said(one)}, and {each} on {_said(other)}: an engine has one base model",
                "start a server for each, on another --port",
            )


def _weights(found: FoundModel) -> tuple[str, str | None]:
    uri = found.model_uri
    return (str(local_path(uri).resolve()) if is_local(uri) and local_path(uri).exists() else uri), found.revision


def _said(found: FoundModel) -> str:
    return f"{found.model_uri} at revision {found.revision}" if found.revision else found.model_uri


def _adapter(folder: Path, model: Path) -> LoraAdapter:
    try:
        return read_adapter(folder, model)
    except BadInput as error:
        if not error.cause.startswith("the engine cannot apply"):
            raise
        raise BadInput(error.cause, "merge it with its base, and serve the merged model: tuneyard merge RUN --out FOLDER") from error
