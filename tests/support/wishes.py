"""From the text of an environment to a spec, a plan or an error, in one call: cases stay two literals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from warmplan import (
    Environment,
    HostFacts,
    LockedModel,
    Override,
    Pins,
    Plan,
    Spec,
    UserError,
    build_spec,
    plan_stack,
)
from warmplan.document import parse_document
from warmplan.lock import HEADERS, ModelFacts

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = Pins(vllm_cpu="0.32.0", vllm_cuda="0.33.0", gateway="2.11.7", open_webui="0.12.4")
CPU = "platform: cpu\nmodel: {name: Org/Model}\n"
CUDA = "platform: cuda\nmodel: {name: Org/Model}\ngpu: {memory_gib: 80}\n"
# SmolLM2-135M's shapes: 2 (key, value) * 30 layers * 3 KV heads * 64 * 2 bytes = 23 040 bytes a token.
SMALL = ModelFacts(
    architecture="LlamaForCausalLM",
    dtype="bfloat16",
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
)
LOCKED = LockedModel(
    name="Org/Model",
    revision="main",
    source="hub",
    digest="ab" * 32,
    commit="cd" * 20,
    weight_bytes=269_030_016,
    weight_bytes_from=HEADERS,
    facts=SMALL,
)


def read_yaml(text: str) -> Any:
    """A generated file as data; in C where there is libyaml, since these files are long."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def spec_of(text: str, overrides: Mapping[str, str] | None = None) -> Spec:
    """The spec of an environment `try` with this text; overrides come from the make line."""
    document = parse_document(text, file="try/environment.yaml")
    environment = Environment(name="try", document=document)
    given = [Override(key=key, value=value, origin="make line") for key, value in (overrides or {}).items()]
    return build_spec(environment=environment, overrides=given)


def plan_of(
    text: str,
    *,
    overrides: Mapping[str, str] | None = None,
    model: LockedModel | None = LOCKED,
    pins: Pins = PINS,
    host: HostFacts | None = None,
) -> Plan:
    """The plan of that spec with a locked model."""
    return plan_stack(spec=spec_of(text, overrides), pins=pins, model=model, host=host)


def errors_of(text: str, overrides: Mapping[str, str] | None = None) -> str:
    """What a user reads about this environment, which must be wrong."""
    with pytest.raises(UserError) as raised:
        spec_of(text, overrides)
    assert raised.value.exit_code == 2
    return str(raised.value)
