"""Checks of values that only make sense together, or that need more than their form.

In: typed values. Out: problems added to them, each at the line it belongs to. It does not know the host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from warmplan.addresses import is_loopback
from warmplan.compatibility import refuse_flag, refuse_variable
from warmplan.flags import FLAGS, Scope, find_flag, refuse_value, unknown_flag_hint, variable_scope
from warmplan.spec_values import KV_CACHE_KEYS, Values

_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARCHITECTURE: Final = re.compile(r"[a-z0-9_-]+")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_GPU: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]+")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def check_together(values: Values) -> None:
    """Add every contradiction to `values.problems`; a check waits while a key that it reads has no value."""
    for keys, check in _CHECKS:
        if values.has(*keys):
            check(values)


def _check_model(values: Values) -> None:
    name = values.text("model.name")
    if name.startswith("/"):
        if any(part in (".", "..") for part in name.split("/")) or len(name.strip("/")) == 0:
            values.add("model.name", "must be a folder's absolute path without `.` and `..`")
    elif not _HUB_NAME.fullmatch(name):
        hint = (
            "for a folder give its absolute path"
            if name.startswith((".", "~"))
            else "for instance Qwen/Qwen3-8B"
        )
        values.add("model.name", f"must be Org/Name or an absolute path, not {name}", hint)
    if not _REVISION.fullmatch(values.text("model.revision")):
        values.add("model.revision", "must be a branch, a tag or a commit")
    elif name.startswith("/") and values.text("model.revision") != "main":
        values.add(
            "model.revision", "means nothing for a local folder: its content decides", "remove the line"
        )


def _check_hub(values: Values) -> None:
    parts = urlsplit(values.text("model.hub_endpoint"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        values.add("model.hub_endpoint", "must be like https://hub.example")
    elif parts.username is not None:
        hint = "a token goes into HF_TOKEN: this file is for everyone to read"
        values.add("model.hub_endpoint", "must not hold a name or a password", hint)


def _check_kv_cache(values: Values) -> None:
    first, *others = [key for key in KV_CACHE_KEYS if values.has(key)] or [""]
    for other in others:
        values.add(other, f"contradicts {first}", "give one of the two")


def _check_standby(values: Values) -> None:
    if values.boolean("engine.standby") and values.has("engine.roll") and not values.boolean("engine.roll"):
        values.add("engine.roll", "contradicts engine.standby: true", "remove the line")


def _check_arguments(values: Values) -> None:
    for key in ("engine.arguments", "weight_cache.arguments"):
        _check_flags(values, key)


def _check_flags(values: Values, key: str) -> None:
    for name, found in values.under(key):
        path = f"{key}.{name}"
        flag = find_flag(name)
        if flag is None:
            values.add(path, "is not a flag of vLLM 0.32 or 0.33", unknown_flag_hint(name))
        elif (reason := refuse_flag(name)) is not None:
            if found.value is not False:
                values.add(path, f"cannot be used with fast-start: {reason}", "remove the line")
        elif flag.owner is not None:
            values.add(path, "cannot be set here", flag.owner)
        elif flag.since_0_33 and values.text("platform") == "cpu":
            values.add(path, "is a flag of vLLM 0.33, and the cpu platform has 0.32", "remove the line")
        elif (wrong := refuse_value(flag, found.value)) is not None:
            values.add(path, wrong)
        else:
            _check_scope(values, key, path, FLAGS[flag.name].scope)


def _check_scope(values: Values, key: str, path: str, scope: Scope) -> None:
    if key == "engine.arguments" and scope is Scope.WEIGHT_CACHE:
        values.add(
            path, "does nothing in an engine that maps its weights", "put it under weight_cache.arguments"
        )
    if key == "weight_cache.arguments" and scope is not Scope.WEIGHT_CACHE:
        both = " (both commands get it from there)" if scope is Scope.BOTH else ""
        values.add(path, "is not for the weight cache alone", f"put it under engine.arguments{both}")


def _check_variables(values: Values) -> None:
    for key in ("engine.environment", "weight_cache.environment", "open_webui.environment"):
        _check_table_of_variables(values, key)


def _check_table_of_variables(values: Values, key: str) -> None:
    for name, found in values.under(key):
        path = f"{key}.{name}"
        if not _VARIABLE.fullmatch(name):
            values.add(path, "is not a variable's name", "letters, digits and `_`, no digit first")
        elif name.startswith("WARMSTACK_") and name != "WARMSTACK_LINEAR_LAYOUT":
            values.add(
                path, "cannot be set here: the plan writes the WARMSTACK_ variables", "remove the line"
            )
        elif (reason := refuse_variable(name, str(found.value))) is not None:
            values.add(path, reason, "remove the line")
        elif key == "weight_cache.environment" and variable_scope(name) is Scope.BOTH:
            values.add(
                path,
                "chooses the layout of the weights, so the engine needs it too",
                "use engine.environment",
            )


def _check_labels(values: Values) -> None:
    for name, _ in values.under("labels"):
        if not _LABEL.fullmatch(name):
            values.add(f"labels.{name}", "is not a label's name", "letters, digits, `.`, `_`, `/` and `-`")
        elif name.startswith(("warmstack.", "com.docker.")):
            values.add(
                f"labels.{name}", "is a name that the project or Docker uses itself", "choose another name"
            )


def _is_address(values: Values, key: str) -> bool:
    try:
        ipaddress.ip_address(values.text(key))
    except ValueError:
        values.add(
            key, f"must be an IP address of this host, not {values.text(key)}", "for instance 127.0.0.1"
        )
        return False
    return True


def _check_gateway(values: Values) -> None:
    if not _is_address(values, "gateway.host"):
        return
    if not is_loopback(values.text("gateway.host")) and not values.boolean("gateway.api_key"):
        values.add(
            "gateway.host",
            "would let everyone who reaches this host use the model",
            "set gateway.api_key: true",
        )


def _check_placement(values: Values) -> None:
    port, found = values.integer("weight_cache.port"), values.find("weight_cache.port")
    if values.text("weight_cache.placement") != "host":
        if found is not None and found.origin != "default":
            values.add("weight_cache.port", "means nothing for a container", "use placement: host")
        return
    for key in ("gateway.port", "open_webui.port"):
        if values.integer(key) in (port, port + 1):
            values.add(
                key, f"is the weight cache's ({port} and {port + 1} on the host)", "choose another one"
            )


def _check_ports(values: Values) -> None:
    port = values.integer("gateway.port")
    if not values.boolean("open_webui.enabled") or values.integer("open_webui.port") != port:
        return
    # To blame is what somebody wrote, of two what is nearest to the command line.
    keys = sorted(("open_webui.port", "gateway.port"), key=lambda key: _distance(values, key))
    values.add(
        keys[0],
        f"{port} is {keys[1]} too",
        "choose another one: PORT is the gateway's, WEBUI_PORT the chat page's",
    )


def _distance(values: Values, key: str) -> int:
    """How far from the command line a value was given: 0 there, 1 in the file, 2 nowhere."""
    found = values.find(key)
    if found is None or found.origin == "default":
        return 2
    return 0 if found.file is None else 1


def _check_open_webui(values: Values) -> None:
    if not values.boolean("open_webui.enabled") or not _is_address(values, "open_webui.host"):
        return
    found = values.find("open_webui.url")
    if not is_loopback(values.text("open_webui.host")) and (found is None or found.origin == "default"):
        values.add("open_webui.host", "needs the address that browsers will use", "set open_webui.url")
    url = values.text("open_webui.url")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or ";" in url:
        values.add("open_webui.url", f"must be like http://127.0.0.1:3000, not {url}")


def _check_admin(values: Values) -> None:
    wrong = not _EMAIL.fullmatch(values.text("open_webui.admin_email"))
    if values.boolean("open_webui.enabled") and wrong:
        values.add("open_webui.admin_email", "must be an email address (it is only a login name)")


def _check_gpu(values: Values) -> None:
    platform, tensor = values.text("platform"), values.integer("parallel.tensor")
    if platform == "cpu":
        if (found := values.find("gpu.count")) is not None and found.origin != "default":
            values.add("gpu.count", "means nothing on the cpu platform", "remove the line")
        return
    count, devices = values.integer("gpu.count"), values.texts("gpu.devices")
    if values.find("gpu.memory_gib") is None:
        values.add("gpu.memory_gib", "is missing: the plan needs the memory of one GPU", "for instance 80")
    if tensor > count:
        values.add(
            "gpu.count", f"{count} GPUs are too few for parallel.tensor {tensor}", f"use {tensor} or more"
        )
    if devices and len(devices) != count:
        values.add("gpu.devices", f"names {len(devices)} GPUs where gpu.count is {count}")
    if len(set(devices)) != len(devices):
        values.add("gpu.devices", "names a GPU twice")
    values_wrong = [device for device in devices if not _GPU.fullmatch(device)]
    if values_wrong:
        values.add(
            "gpu.devices", f"must be UUIDs, not {', '.join(values_wrong)}", "`nvidia-smi -L` lists them"
        )
    if not _ARCHITECTURE.fullmatch(values.text("gpu.architecture")):
        values.add("gpu.architecture", "must be lower-case letters and digits", "for instance sm90")


_CHECKS: Final[tuple[tuple[tuple[str, ...], Callable[[Values], None]], ...]] = (
    (("model.name", "model.revision"), _check_model),
    (("model.hub_endpoint",), _check_hub),
    ((), _check_kv_cache),
    (("engine.standby",), _check_standby),
    (("platform",), _check_arguments),
    ((), _check_variables),
    ((), _check_labels),
    (("gateway.host", "gateway.api_key"), _check_gateway),
    (("open_webui.enabled", "open_webui.host", "open_webui.port", "open_webui.url"), _check_open_webui),
    (("open_webui.enabled", "open_webui.admin_email"), _check_admin),
    (("open_webui.enabled", "open_webui.port", "gateway.port"), _check_ports),
    (("weight_cache.placement", "weight_cache.port", "open_webui.port", "gateway.port"), _check_placement),
    (("platform", "parallel.tensor", "gpu.count"), _check_gpu),
)
