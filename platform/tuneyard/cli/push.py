"""`tuneyard push`: a finished model to the Hugging Face hub, or to a folder at a path or a URI."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def push(
    run: Annotated[str, typer.Argument(metavar="RUN", help="output of a job or of its task, or a model folder; a path or a URI")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="hf://owner/name, or a folder: a path or a URI")],
    private: Annotated[bool, typer.Option("--private", help="create a private repository")] = False,
    revision: Annotated[str | None, typer.Option(metavar="BRANCH", help="of the repository; default: main")] = None,
    base: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="the base of an adapter, by its name on the hub")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="the train task; default: the last that has succeeded")] = None,
) -> None:
    """Upload a finished model or adapter, with tokenizer, generation config and model card. The last line of stdout is its address.

    Manifests, certificates and anything else that may hold paths of this machine stay here. A push that was killed goes on when you
    repeat the command. The token is that of HF_TOKEN or of `hf auth login`; HF_ENDPOINT names another server with the hub's API.

    Example: tuneyard push runs/first hf://acme/support-bot --private
    """
    from tuneyard.api import BadInput
    from tuneyard.api.local_files import looks_like_path
    from tuneyard.runtime.publish.hub import SCHEME, copy_to_folder, refuse_other_base, repository, upload
    from tuneyard.runtime.publish.parcel import packed
    from tuneyard.storage import local_path
    from tuneyard.training.model_finder import find_model

    to_hub = target.startswith(SCHEME)
    if not to_hub and not looks_like_path(target) and not local_path(target).is_dir():
        raise BadInput(f"there is no folder {target}", f"write hf://{target} for the Hugging Face hub, or ./{target} for a new folder here")
    if not to_hub and (private or revision):
        raise BadInput(f"--private and --revision are for hf://, and {target} is a folder", "leave them out")
    repo = repository(target) if to_hub else ""
    found = find_model(run, task, checked=False)
    with packed(found, base) as parcel:
        count, size = len(parcel.files), parcel.size_bytes / 1e6
        print(f"pushing {count} files of {found.uri}, {size:,.1f} MB, to {target}", file=sys.stderr)
        if parcel.left:
            print(f"left here: {', '.join(parcel.left)}", file=sys.stderr)
        code = [path.name for path in parcel.files if path.suffix == ".py"]
        if code:
            print(f"with the code that the model needs: {', '.join(code)}", file=sys.stderr)
        if base is not None and found.origin is not None:
            refuse_other_base(found, base)
        if not to_hub:
            copy_to_folder(parcel, target)
            typer.echo(target)
            return
        typer.echo(upload(parcel, repo, private=private, revision=revision))
