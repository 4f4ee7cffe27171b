"""Uploads a parcel to a repository of the Hugging Face hub, or of a server with its API (`HF_ENDPOINT`).

huggingface_hub sends what is not there yet: a push that was killed goes on when it is repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tuneyard.api import BadInput, StorageError, TuneyardError
from tuneyard.runtime.publish.parcel import Parcel
from tuneyard.storage import open_store
from tuneyard.storage.filling import fill
from tuneyard.training.model_finder import FoundModel
from tuneyard.training.provenance.certificate import FILE, Certificate
from tuneyard.training.published import is_hub_id

SCHEME = "hf://"
_PUSHED = "pushed"
"""The entry of the manifest in a folder."""
_AGAIN = "repeat the command: it goes on with what is missing"
_OF_A_MODEL = [
    *("model*.safetensors*", "pytorch_model*", "adapter_model*", "adapter_config.json", "config.json", "generation_config.json"),
    *("added_tokens.json", "chat_template.jinja", "additional_chat_templates/*"),
]
"""What an earlier push may have left: transformers reads an adapter's configuration before the weights beside it."""


def repository(target: str) -> str:
    """The id in hf://owner/name. Raises BadInput for anything else."""
    name = target.removeprefix(SCHEME).rstrip("/")
    if name.count("/") != 1 or not is_hub_id(name):
        raise BadInput(
            f"{target} names no repository of a model",
            "write hf://owner/name: letters, digits, '-', '_' and '.', at most 96 in all, without '--' and '..'",
        )
    return name


def upload(parcel: Parcel, repo: str, *, private: bool, revision: str | None) -> str:
    """Upload a parcel, and return the address of its page. Creates the repository and the branch `revision` where they are missing.

    Raises BadInput without a token or the right to write, and for a public repository where a private one is asked for; StorageError if
    the upload ends early.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils.tqdm import disable_progress_bars

    api = HfApi(library_name="tuneyard")
    if get_token() is None:
        raise BadInput(
            f"there is no token for {api.endpoint}",
            f"make one with the right to write ({api.endpoint}/settings/tokens), and set HF_TOKEN or run hf auth login",
        )
    if not sys.stderr.isatty():
        disable_progress_bars()
    with _told(repo, api.endpoint):
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise BadInput(
                f"{repo} is there, and public",
                f"make it private ({api.endpoint}/{repo}/settings), name another repository, or leave --private out",
            )
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        message = "Upload a model trained by Tuneyard"
        # Files of this push are not deleted.
        api.upload_folder(repo_id=repo, folder_path=parcel.folder, revision=revision, commit_message=message, delete_patterns=_OF_A_MODEL)
    return f"{api.endpoint}/{repo}" + (f"/tree/{revision}" if revision else "")


def copy_to_folder(parcel: Parcel, target: str) -> None:
    """Write a parcel as the folder `target`, completely or not at all, in place of an earlier push. Raises BadInput for other files."""
    fill(target, parcel.folder, {_PUSHED: True}, over=_PUSHED)


def refuse_other_base(found: FoundModel, base: str) -> None:
    """Raises BadInput if the hub has no model `base`, or if its weights are not those that the adapter was trained on.

    The certificate beside the adapter has the SHA-256 of each file of its base, and so has the hub. Without a certificate, only the
    existence is checked.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    api, store = HfApi(library_name="tuneyard"), open_store(found.uri)
    with _told(base, api.endpoint):
        try:
            there = api.model_info(base, files_metadata=True)
        except RepositoryNotFoundError as error:
            advice = "check the name; a private model needs a token that may read it"
            raise BadInput(f"{api.endpoint} has no model {base}", advice) from error
    if not store.exists(FILE):
        return
    hashes = Certificate.from_json(store.get(FILE).decode(), FILE).base
    known = {each.rfilename: each.lfs.sha256 for each in there.siblings or () if each.lfs is not None}
    other = [name for name, mark in hashes.items() if name.endswith(".safetensors") and known.get(name) not in (None, mark)]
    if other:
        raise BadInput(
            f"{base} has other weights than the base of the adapter {found.uri}: {', '.join(other[:3])}",
            "name the model that the adapter was trained on, or push the merged model (tuneyard merge)",
        )


@contextmanager
def _told(repo: str, endpoint: str) -> Iterator[None]:
    """Errors of the client as errors for people."""
    try:
        yield
    except TuneyardError:
        raise
    except Exception as error:
        raise _for_people(error, repo, endpoint) from error


def _for_people(error: Exception, repo: str, endpoint: str) -> TuneyardError:
    from huggingface_hub.errors import HfHubHTTPError

    refused = next((each for each in (error, error.__cause__) if isinstance(each, HfHubHTTPError)), None)
    if refused is None or refused.response is None:
        said = " ".join(str(error.__cause__ or error).split())[:300] or type(error).__name__
        if isinstance(error, ValueError):  # what the server says of the card, or the client of a name
            return BadInput(f"{endpoint} refuses {repo}: {said}", "mend what it names; README.md is the model card")
        return StorageError(f"the push of {repo} to {endpoint} ended early: {said}", _AGAIN)
    status, said = refused.response.status_code, refused.server_message or str(refused).strip().splitlines()[0]
    if isinstance(error, ValueError):
        return BadInput(
            f"{endpoint} refuses {repo}: {' '.join(str(error).split())[:300]}", "mend what it names; README.md is the model card"
        )
    if status == 401:
        return BadInput(f"{endpoint} does not accept the token: {said}", "make a new one, and set HF_TOKEN or run hf auth login")
    if status == 403:
        advice = "name a repository of your own or of your organization, and use a token with the right to write"
        return BadInput(f"the token may not write to {repo}: {said}", advice)
    return StorageError(f"{endpoint} answered {status} to the push of {repo}: {said}", _AGAIN)
