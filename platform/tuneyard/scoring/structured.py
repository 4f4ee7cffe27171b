"""Answers in the form of a JSON schema (`generation.schema`): the check of the schema, and of each answer.

vLLM and endpoints hold the model to the schema while it writes. An answer can still miss it: it was cut off, or the endpoint ignores the
schema. Such answers are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.storage import NotFound, is_local, local_path, open_store

_LONGEST = 65_536


def read_schema(uri: str) -> dict[str, Any]:
    """The JSON schema in a file. Raises BadInput."""
    folder, _, name = uri.rpartition("/")
    try:
        values = json.loads(Path(local_path(uri)).read_bytes() if is_local(uri) else open_store(folder).get(name))
    except OSError as error:
        raise BadInput(f"generation.schema: {uri} cannot be read: {error.strerror}", "paths start at the JobSpec's folder") from error
    except NotFound as error:
        raise BadInput(f"generation.schema: {error.cause}", "check the URI") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"generation.schema: {uri} is not JSON: {error}", "write the JSON schema of an answer into the file") from error
    if not isinstance(values, dict):
        raise BadInput(f"generation.schema: {uri} holds no JSON schema, which is an object", "write the JSON schema of an answer into it")
    return values


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises BadInput where `schema` is no JSON schema (draft 2020-12), is too large, or refers to other files."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        size = len(json.dumps(schema))
        Draft202012Validator.check_schema(dict(schema))
        remote = next((name for name in _references(schema) if not name.startswith("#")), None)
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        at = f" at {where}" if where else ""
        raise BadInput(f"generation.schema is no JSON schema{at}: {error.message[:300]}", "correct it (draft 2020-12)") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"generation.schema cannot be read: {str(error)[:300]}", "write a plain JSON schema") from error
    if remote is not None:
        raise BadInput(f"generation.schema refers to {remote[:300]}", "put that schema into $defs, and refer to it by #/$defs/NAME")
    if size > _LONGEST:
        raise BadInput(f"generation.schema has {size:,} characters, more than {_LONGEST:,}", "describe the answer by a smaller schema")


class Fits:
    """Whether texts are JSON of a schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator

        self._validator = Draft202012Validator(dict(schema))

    def __call__(self, text: str) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text)))
        except (ValueError, RecursionError):
            return False


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
