"""The Kubernetes API as values: kinds and paths, requests, errors, watch events, retries. Nothing here sends anything.

Three transports send the requests of this room: the hub's (`tuneyard_operators.kube`, asyncio), the client's (`tuneyard.cluster`) and the
pod's (`tuneyard.runtime.attempt.member_api`). A transport holds the connection, TLS, credentials and the sleep between two tries. It
builds a `Request`, sends its method, target, headers and body, turns each answer that is not 2xx into an `ApiError` with `error_of`, reads
any other by `read_object`, `read_list` or `read_event`, and asks `pause_before` whether to send the request again.
"""

from tuneyard.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Missing,
    NotServed,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unintelligible,
    Unreachable,
    error_of,
)
from tuneyard.kubernetes.events import Lines, event_of
from tuneyard.kubernetes.kinds import Kind
from tuneyard.kubernetes.objects import Key, Object, is_newer, key_of, over
from tuneyard.kubernetes.reading import NO_ROOM, Decode, read_event, read_list, read_object, unreadable, without_room
from tuneyard.kubernetes.requests import (
    Request,
    create_object,
    delete_object,
    get_object,
    group_path,
    list_objects,
    patch_object,
    replace_object,
    table_of,
    watch_objects,
)
from tuneyard.kubernetes.retries import backoff_s, pause_before

__all__ = [
    "NO_ROOM",
    "AlreadyExists",
    "ApiError",
    "Cause",
    "Conflict",
    "Decode",
    "Expired",
    "Forbidden",
    "Invalid",
    "Key",
    "Kind",
    "Lines",
    "Missing",
    "NotServed",
    "Object",
    "Request",
    "TooLarge",
    "TooMany",
    "Unauthenticated",
    "Unintelligible",
    "Unreachable",
    "backoff_s",
    "create_object",
    "delete_object",
    "error_of",
    "event_of",
    "get_object",
    "group_path",
    "is_newer",
    "key_of",
    "list_objects",
    "over",
    "patch_object",
    "pause_before",
    "read_event",
    "read_list",
    "read_object",
    "replace_object",
    "table_of",
    "unreadable",
    "watch_objects",
    "without_room",
]
