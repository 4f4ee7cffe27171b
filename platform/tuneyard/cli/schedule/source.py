"""The Schedules that a command is about: of a hub, or of `tuneyard schedule run` on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.schedules.view import ScheduleView

if TYPE_CHECKING:
    from tuneyard.runtime.scheduled import ScheduleFolder

LocalOption = Annotated[
    Path | None,
    typer.Option(
        "--local", metavar="DIR", help="Schedules of this machine: a data folder of `tuneyard schedule run`, or a folder of such, as runs"
    ),
]


class Source(Protocol):
    def all(self) -> list[ScheduleView]: ...

    def one(self, name: str) -> ScheduleView: ...

    def change(self, name: str, spec: Mapping[str, Any]) -> ScheduleView:
        """Set fields of the spec."""
        ...


def source_of(
    local: Path | None, namespace: str | None, context: str | None, kubeconfig: Path | None, *, everywhere: bool = False
) -> Source:
    """`everywhere`: list the Schedules of all namespaces."""
    return _Local(local) if local is not None else _OnHub(namespace, context, kubeconfig, everywhere)


class _OnHub:
    def __init__(self, namespace: str | None, context: str | None, kubeconfig: Path | None, everywhere: bool) -> None:
        from tuneyard.cluster import open_hub

        self._everywhere = everywhere
        self._hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)

    def all(self) -> list[ScheduleView]:
        return self._hub.schedules(everywhere=self._everywhere)

    def one(self, name: str) -> ScheduleView:
        return self._hub.schedule(name)

    def change(self, name: str, spec: Mapping[str, Any]) -> ScheduleView:
        return self._hub.change_schedule(name, spec)


class _Local:
    def __init__(self, path: Path) -> None:
        from tuneyard.runtime.scheduled import folders_below

        if not path.is_dir():
            raise BadInput(
                f"there is no folder {path}", "give the data folder of `tuneyard schedule run`, or one above several, such as runs"
            )
        self._folders = {folder.view().name: folder for folder in folders_below(path)}
        self._path = path

    def all(self) -> list[ScheduleView]:
        return [folder.view() for _, folder in sorted(self._folders.items())]

    def one(self, name: str) -> ScheduleView:
        return self._folder(name).view()

    def change(self, name: str, spec: Mapping[str, Any]) -> ScheduleView:
        folder = self._folder(name)
        folder.wish({**spec, **({"suspend": None} if spec.get("suspend") is False else {})})
        if spec.get("suspend") is False and folder.view().suspended:
            raise BadInput(f"the file of {name} says suspend: true", "edit the file; the runner follows it")
        return folder.view()

    def _folder(self, name: str) -> ScheduleFolder:
        if name not in self._folders:
            known = ", ".join(sorted(self._folders)) or "none"
            raise BadInput(f"{self._path} has no Schedule {name}{did_you_mean(name, self._folders)}", f"there are: {known}")
        return self._folders[name]
