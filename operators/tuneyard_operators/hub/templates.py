"""Follows the ModelTemplates of the hub. Jobs that name a template and have not started look it up here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuneyard.api import BadInput, ModelTemplate
from tuneyard.api.templates import kept_template, template_from, template_of
from tuneyard_operators.kube import MODEL_TEMPLATE, Cache, Connection, Key

Object = dict[str, Any]
_KEPT = "kept"


class ModelTemplates(Cache):
    """Follows all ModelTemplates. `on_change` gets the name of a template that was created, changed or deleted."""

    def __init__(self, connection: Connection, on_change: Callable[[str], None]) -> None:
        super().__init__(connection, MODEL_TEMPLATE, on_change=self._changed)
        self._on_template = on_change
        self._read: dict[str, ModelTemplate | BadInput] = {}

    def find(self, name: str) -> ModelTemplate:
        """The template of a name. Raises BadInput if it does not exist or cannot be used."""
        item = self.items.get(("", name))
        if item is None:
            why = f": they cannot be read: {self.error}" if self.error is not None else "" if self.synced.is_set() else " yet"
            raise BadInput(f"the hub has no ModelTemplate {name}{why}", "list the templates: kubectl get modeltemplates")
        if name not in self._read:
            try:
                self._read[name] = template_from(item)
            except BadInput as error:
                self._read[name] = error
        found = self._read[name]
        if isinstance(found, BadInput):
            raise BadInput(found.cause, found.next_step)
        return found

    def version(self, job: Mapping[str, Any]) -> str:
        """Version of the template that the JobSpec's goal depends on; empty if the JobSpec names none."""
        name = template_of(job.get("spec"))
        if not name:
            return ""
        try:
            if kept_template(job) is not None:
                return _KEPT
        except BadInput:
            return _KEPT
        item = self.items.get(("", name))
        return f"{name}@{item['metadata'].get('resourceVersion', '')}" if item is not None else name

    def _changed(self, key: Key, _old: Object | None, _new: Object | None) -> None:
        self._read.pop(key[1], None)
        self._on_template(key[1])
