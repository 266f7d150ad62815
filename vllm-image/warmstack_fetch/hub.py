"""A model from a hub, through huggingface_hub.

In: a model's name, a revision, perhaps a token. Out: its commit; a filled folder.
Three ends: it worked; `Failure` (the hub says that it can't be had, exit code 2); `HubUnreachableError`
(nobody who speaks as a hub answered: another source may be tried). Refuses to know: which other sources there
are.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmstack_shared.errors import Failure

# What vLLM reads of a model folder. Weights in other formats (*.bin, *.pt, *.gguf, onnx/…) stay where they
# are.
PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.py"]
_SUBFOLDERS = ["*/*"]  # original/, onnx/ …: a snapshot is flat


class HubUnreachableError(Exception):
    """No hub answered. The text says what happened instead."""


def resolve_commit(model: str, revision: str, token: str | None, timeout_seconds: float) -> str:
    """The 40-hex commit that `revision` is now."""
    from huggingface_hub import HfApi

    with _hub_errors(model, revision, token):
        info = HfApi(token=token or False).model_info(model, revision=revision, timeout=timeout_seconds)
        names = [sibling.rfilename for sibling in info.siblings or []]
        if not any(name.endswith(".safetensors") and "/" not in name for name in names):
            raise Failure(
                f"{model} has no *.safetensors file at revision {revision}", hint="choose one that has"
            )
        if info.sha is None:
            raise HubUnreachableError("the answer named no commit")
        return info.sha


def download(model: str, commit: str, token: str | None, target: Path) -> None:
    """Fill `target` with the model's files at `commit`; goes on where a killed run stopped."""
    from huggingface_hub import snapshot_download

    with _hub_errors(model, commit, token):
        snapshot_download(
            model,
            revision=commit,
            token=token or False,
            local_dir=target,
            allow_patterns=PATTERNS,
            ignore_patterns=_SUBFOLDERS,
        )
    shutil.rmtree(target / ".cache", ignore_errors=True)  # huggingface_hub's notes about the download


@contextmanager
def _hub_errors(model: str, revision: str, token: str | None) -> Iterator[None]:
    from huggingface_hub import errors

    # The base class of huggingface_hub's HTTP errors is its HTTP library's, which changes with its version.
    http_error: type[Exception] = errors.HfHubHTTPError.__mro__[1]
    try:
        yield
    except errors.GatedRepoError as error:
        raise Failure(
            f"{model} is gated and the token has no access"
            if token
            else f"{model} is gated and there is no token",
            hint=f"ask for access on the hub's page of {model}, and give a token with HF_TOKEN_FILE",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise Failure(f"{model} has no revision {revision}", hint="give a branch, tag or commit") from error
    except errors.RepositoryNotFoundError as error:
        if not _is_hub(error.response):
            raise HubUnreachableError(_refusal(error)) from error
        raise Failure(
            f"the hub has no model {model}" + ("" if token else ", or it is private and there is no token"),
            hint="check the spelling Org/Name",
        ) from error
    except errors.HFValidationError as error:
        raise Failure(f"{model} is not a model name: {error}", hint="write it as Org/Name") from error
    except (KeyError, TypeError, ValueError) as error:
        # A captive portal says 200 to everything, and huggingface_hub trips over its answer.
        raise HubUnreachableError("the answer is not a hub's") from error
    except errors.HfHubHTTPError as error:
        raise HubUnreachableError(_refusal(error)) from error
    except (http_error, ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
        raise HubUnreachableError(_first_line(error)) from error
    except OSError as error:
        raise Failure(f"cannot store {model}: {error}", hint="look at the free space", exit_code=3) from error


def _is_hub(response: object) -> bool:
    """Whether a hub answered, and not a mirror or proxy that refuses every path: only a hub sends an error
    code.
    """
    headers = getattr(response, "headers", {})
    return bool(headers.get("x-error-code") or headers.get("x-repo-commit"))


def _refusal(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"HTTP {status} from something that is not a hub" if status else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
