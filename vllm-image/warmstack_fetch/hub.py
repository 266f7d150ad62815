"""A model from a hub, through huggingface_hub.

In: a model's name, a revision, perhaps a token. Out: what the hub says of it; a filled folder.
Three ends: it worked; `Failure` (it can't be had, or what came is not what the hub names);
`HubUnreachableError` (nobody who speaks as a hub answered: another source may be tried).
Refuses to know: which other sources there are.
"""

import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstack_shared.errors import Failure

# What vLLM reads of a model folder. Weights in other formats (*.bin, *.pt, *.gguf, onnx/…) stay where they
# are.
PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.py"]
_SUBFOLDERS = ["*/*"]  # original/, onnx/ …: a snapshot is flat
_NOTES = ".cache"  # huggingface_hub's own, about a download; with them it keeps the files that are whole
_TOKEN_REFUSED = "Invalid credentials in Authorization header"
WRONG_CONTENT = 1


class HubUnreachableError(Exception):
    """No hub answered. The text says what happened instead."""


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A model at one commit. `digests` are what the hub names the content by, for each file it names any."""

    name: str
    commit: str
    digests: dict[str, "Digest"]


@dataclass(frozen=True, kw_only=True)
class Digest:
    """Of a large file the sha256, of a file that git itself holds its blob id."""

    value: str
    is_sha256: bool

    def problem(self, path: Path) -> str | None:
        """Why the file at `path` is another one; None when it is the right one."""
        head = b"blob %d\0" % path.stat().st_size
        kind, begun = "git blob", hashlib.sha1(head, usedforsecurity=False)
        if self.is_sha256:
            kind, begun = "sha256", hashlib.sha256()
        found = _file_digest(path, begun)
        return None if found == self.value else f"{kind} {found[:16]}, the hub says {self.value[:16]}"


def ask(model: str, revision: str, token: str | None, timeout_seconds: float) -> HubModel:
    """What `revision` of a model is now: a 40-hex commit, and its files."""
    from huggingface_hub import HfApi

    with _hub_errors(model, revision, token):
        info = HfApi(token=token or False).model_info(
            model, revision=revision, timeout=timeout_seconds, files_metadata=True
        )
        siblings = info.siblings or []
        names = [sibling.rfilename for sibling in siblings]
        if not any(name.endswith(".safetensors") and "/" not in name for name in names):
            raise Failure(
                f"{model} has no *.safetensors file at revision {revision}", hint="choose one that has"
            )
        if info.sha is None:
            raise HubUnreachableError("the answer named no commit")
        digests = {sibling.rfilename: found for sibling in siblings if (found := _digest_of(sibling))}
        return HubModel(name=model, commit=info.sha, digests=digests)


def download(found: HubModel, token: str | None, target: Path) -> None:
    """Fill `target` with the model's files; keeps those that an earlier run brought whole.

    Failure with exit code 1 when it broke off again, and when a file is not what the hub names: that file is
    removed, so that the next run fetches it anew.
    """
    from huggingface_hub import snapshot_download

    try:
        with _hub_errors(found.name, found.commit, token):
            snapshot_download(
                found.name,
                revision=found.commit,
                token=token or False,
                local_dir=target,
                allow_patterns=PATTERNS,
                ignore_patterns=_SUBFOLDERS,
            )
    except HubUnreachableError as error:
        # The hub has answered before: another source would bring other content under the same name.
        raise Failure(
            f"the download of {found.name} broke off: {error}",
            hint="run it again: files that are whole are kept",
            exit_code=WRONG_CONTENT,
        ) from error
    _check(found, target)
    shutil.rmtree(target / _NOTES, ignore_errors=True)


def _check(found: HubModel, target: Path) -> None:
    """Read every file that came, several at a time, and compare it with what the hub names."""
    came = [name for name in sorted(found.digests) if (target / name).is_file()]
    with ThreadPoolExecutor() as pool:
        problems = pool.map(lambda name: found.digests[name].problem(target / name), came)
        bad = {name: problem for name, problem in zip(came, problems, strict=True) if problem}
    for name in bad:
        (target / name).unlink()
    if bad:
        wrong = [f"{name} has {problem}" for name, problem in bad.items()]
        raise Failure(
            f"what came of {found.name} is not what the hub names: {'; '.join(wrong)}",
            hint="run it again; if it stays so, the mirror or proxy on the way changes files",
            exit_code=WRONG_CONTENT,
        )


def _digest_of(sibling: Any) -> Digest | None:
    """A mirror may leave out what names the content: then there is nothing to compare with."""
    if sibling.lfs is not None and sibling.lfs.sha256:
        return Digest(value=sibling.lfs.sha256, is_sha256=True)
    return Digest(value=sibling.blob_id, is_sha256=False) if sibling.blob_id else None


def _file_digest(path: Path, begun: "hashlib._Hash") -> str:
    with path.open("rb") as file:
        while block := file.read(2**20):
            begun.update(block)
    return begun.hexdigest()


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
            hint=f"ask for access on the hub's page of {model}, and give a token: HF_TOKEN in the "
            "environment, or a saved login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise Failure(f"{model} has no revision {revision}", hint="give a branch, tag or commit") from error
    except errors.RepositoryNotFoundError as error:
        if not _is_hub(error.response):
            raise HubUnreachableError(_refusal(error)) from error
        raise Failure(
            f"the hub has no model {model}"
            + (" that this token may see" if token else ", or it is private and there is no token"),
            hint="check the spelling Org/Name",
        ) from error
    except errors.HFValidationError as error:
        raise Failure(f"{model} is not a model name: {error}", hint="write it as Org/Name") from error
    except (KeyError, TypeError, ValueError) as error:
        # A captive portal says 200 to everything, and huggingface_hub trips over its answer.
        raise HubUnreachableError("the answer is not a hub's") from error
    except errors.HfHubHTTPError as error:
        if token and _header(error.response, "x-error-message") == _TOKEN_REFUSED:
            raise Failure(
                "the hub does not know the token", hint="renew HF_TOKEN, or the saved login"
            ) from error
        raise HubUnreachableError(_refusal(error)) from error
    except (http_error, ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
        raise HubUnreachableError(_first_line(error)) from error
    except OSError as error:
        if "Consistency check failed" in str(error):  # huggingface_hub's words for fewer bytes than promised
            raise HubUnreachableError(_first_line(error)) from error
        raise Failure(f"cannot store {model}: {error}", hint="look at the free space", exit_code=3) from error


def _is_hub(response: object) -> bool:
    """Whether a hub answered, and not a mirror or proxy that refuses every path: only a hub sends an error
    code.
    """
    return bool(_header(response, "x-error-code") or _header(response, "x-repo-commit"))


def _header(response: object, name: str) -> str | None:
    value = getattr(response, "headers", {}).get(name)
    return None if value is None else str(value)


def _refusal(error: Exception) -> str:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is None:
        return _first_line(error)
    return f"HTTP {status}" if _is_hub(response) else f"HTTP {status} from something that is not a hub"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
