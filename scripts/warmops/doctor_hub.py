"""What `doctor` learns of the model hub: whether it answers, and whether there is a token.

In: the process environment and the model as wished. Out: `HubFacts`. No value of a secret leaves this module,
and no token is sent but by Hugging Face's own client.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from warmops.doctor_facts import HubFacts
from warmops.model import hub_token_state
from warmplan.spec import ModelWish

HUB_SECONDS: Final = 2.0


def hub_facts(environment: Mapping[str, str], model: ModelWish | None) -> HubFacts:
    """Whether the hub answers in `HUB_SECONDS`, and whether there is a token. `model` None: do not ask."""
    token = hub_token_state(environment)
    if model is None:
        return HubFacts(token=token)
    endpoint = (model.hub_endpoint or environment.get("HF_ENDPOINT", "")).strip().rstrip("/")
    if importlib.util.find_spec("huggingface_hub") is not None:
        problem = _ask_client(model.name, endpoint or None)
        return HubFacts(token=token, asked=host_of(endpoint) or "the hub", problem=problem)
    if endpoint:
        return HubFacts(token=token, asked=host_of(endpoint), problem=_ask_plainly(endpoint))
    return HubFacts(token=token)


def host_of(url: str) -> str:
    """`https://user:secret@mirror.example/x` → `https://mirror.example`: nothing that may be a secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""


def _ask_client(model: str, endpoint: str | None) -> str | None:
    """Why Hugging Face's own client gets no answer; None when it does, whatever the answer is."""
    client = importlib.import_module("huggingface_hub")  # no requirement of this project
    try:
        client.HfApi(endpoint=endpoint).model_info(model, timeout=HUB_SECONDS)
    except client.errors.HfHubHTTPError:
        return None
    except Exception as error:  # its transport is not part of its interface, and has changed
        return type(error).__name__
    return None


def _ask_plainly(endpoint: str) -> str | None:
    """Why the endpoint gives no answer; None when it gives one, whatever its status is."""
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=HUB_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except (OSError, ValueError) as error:
        return type(getattr(error, "reason", error)).__name__
    return None
