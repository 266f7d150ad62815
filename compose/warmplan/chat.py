"""Open WebUI's settings as variables, each for a reason found out with the real program (0.12.4).

In: a spec. Out: (name, value) pairs. It does not know the container around them.
"""

from __future__ import annotations

from warmplan.flags import compact_json
from warmplan.spec import Spec

# Longest silence of the engine in a stream, the first token included, after the gateway stopped holding the
# request.
_IDLE_SECONDS = 300


def open_webui_variables(spec: Spec) -> tuple[tuple[str, str], ...]:
    """Every setting but the secrets; the wish's own variables win."""
    variables = {
        "DATA_DIR": "/data",
        "ENV": "prod",
        # The engine, through the gateway alone.
        "OPENAI_API_BASE_URL": "http://gateway:8080/v1",
        "ENABLE_OLLAMA_API": "false",
        "DEFAULT_MODELS": spec.model.served_name,
        # The list is known, so no page asks the engine for it: one loaded while no engine lives has its model
        # and can send. Asked for, a message then ends with "Model '' was not found" instead of being held.
        "OPENAI_API_CONFIGS": compact_json({"0": {"model_ids": [spec.model.served_name]}}),
        # Without this, ordinary users see no model until an administrator publishes each one.
        "BYPASS_MODEL_ACCESS_CONTROL": "true",
        # A recreated gateway has another address; the default remembers the old one for 300 s.
        "AIOHTTP_POOL_DNS_TTL": "5",
        "AIOHTTP_CLIENT_STREAM_IDLE_TIMEOUT": str(spec.gateway.hold_seconds + _IDLE_SECONDS),
        # One engine call a message, and no tools that an engine without a tool parser refuses with 400.
        "DEFAULT_MODEL_METADATA": compact_json({"capabilities": {"builtin_tools": False}}),
        "ENABLE_TITLE_GENERATION": "false",
        "ENABLE_TAGS_GENERATION": "false",
        "ENABLE_FOLLOW_UP_GENERATION": "false",
        "ENABLE_AUTOCOMPLETE_GENERATION": "false",
        # These variables are the truth, not what an earlier start wrote into the database; sign-up must then
        # be closed here, because closing it after the first user is such a database setting.
        "ENABLE_PERSISTENT_CONFIG": "false",
        "ENABLE_SIGNUP": "false",
        "WEBUI_ADMIN_EMAIL": spec.open_webui.admin_email,
        "WEBUI_URL": spec.open_webui.url,
        "CORS_ALLOW_ORIGIN": ";".join(_origins(spec)),
        # Nothing to the outside, no local models.
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "USE_SLIM_DOCKER": "true",
        "RAG_EMBEDDING_ENGINE": "openai",
        "BYPASS_EMBEDDING_AND_RETRIEVAL": "true",
        "ENABLE_COMMUNITY_SHARING": "false",
        "ANONYMIZED_TELEMETRY": "false",
        "DO_NOT_TRACK": "true",
        "SCARF_NO_ANALYTICS": "true",
    }
    if spec.model.temperature is not None:
        # A chat's own settings win over this.
        variables["DEFAULT_MODEL_PARAMS"] = compact_json({"temperature": spec.model.temperature})
    variables.update(spec.open_webui.environment)
    return tuple(variables.items())


def _origins(spec: Spec) -> tuple[str, ...]:
    """The addresses a browser may use: the stated one, and on the same host both spellings of it."""
    url = spec.open_webui.url.rstrip("/")
    local = f"http://127.0.0.1:{spec.open_webui.port}"
    return (url, f"http://localhost:{spec.open_webui.port}") if url == local else (url,)
