"""Keys of environment.yaml: what clients and people reach, and the GPUs below it all.

Data only; `settings` puts the whole table together.
"""

from __future__ import annotations

from typing import Final

from warmplan.keys import Key, Kind, Moves

_LAST_PORT: Final = 65535
_DAY: Final = 86400

FRONT_KEYS: Final = (
    Key(
        name="gateway.host",
        kind=Kind.TEXT,
        default="127.0.0.1",
        moves=Moves.NO,
        doc="Address where the API is published; one that others reach needs `gateway.api_key: true`.",
    ),
    Key(
        name="gateway.port",
        kind=Kind.INTEGER,
        default=8000,
        minimum=1,
        maximum=_LAST_PORT,
        moves=Moves.NO,
        doc="Port of the API.",
    ),
    Key(
        name="gateway.hold_seconds",
        kind=Kind.INTEGER,
        default=120,
        minimum=0,
        maximum=_DAY,
        moves=Moves.NO,
        doc="How long a request is held while no engine is ready, or while a restart lets running ones end.",
    ),
    Key(
        name="gateway.api_key",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.NO,
        doc="Whether `/v1` needs the key in the project's secret `api_key`.",
    ),
    Key(
        name="open_webui.enabled",
        kind=Kind.BOOLEAN,
        default=True,
        moves=Moves.NO,
        doc="Whether the stack has a chat page.",
    ),
    Key(
        name="open_webui.host",
        kind=Kind.TEXT,
        default="127.0.0.1",
        moves=Moves.NO,
        doc="Address where the chat page is published; one that others reach needs `open_webui.url`.",
    ),
    Key(
        name="open_webui.port",
        kind=Kind.INTEGER,
        default=3000,
        minimum=1,
        maximum=_LAST_PORT,
        moves=Moves.NO,
        doc="Port of the chat page.",
    ),
    Key(
        name="open_webui.url",
        kind=Kind.TEXT,
        default_text="`http://`, the host and the port",
        moves=Moves.NO,
        doc="Address of the chat page as browsers see it; other origins are refused.",
    ),
    Key(
        name="open_webui.admin_email",
        kind=Kind.TEXT,
        default="admin@warmstack.local",
        moves=Moves.NO,
        doc="Login of the first administrator; the password is the project's secret `webui_admin_password`.",
    ),
    Key(
        name="open_webui.environment",
        kind=Kind.VARIABLES,
        default_text="none",
        moves=Moves.NO,
        doc="More variables for Open WebUI; they win over the plan's own.",
    ),
    Key(
        name="gpu.count",
        kind=Kind.INTEGER,
        default_text="`parallel.tensor`",
        minimum=1,
        maximum=64,
        moves=Moves.YES,
        doc="GPUs that both containers get (`cuda` only).",
    ),
    Key(
        name="gpu.devices",
        kind=Kind.TEXTS,
        default_text="the first `gpu.count`",
        moves=Moves.YES,
        doc="UUIDs of the GPUs (`GPU-…`), for hosts with more than are meant.",
    ),
    Key(
        name="gpu.memory_gib",
        kind=Kind.NUMBER,
        default_text="required on `cuda`",
        minimum=1,
        moves=Moves.NO,
        doc="Memory of one GPU in GiB, so that a laptop can plan for a server.",
    ),
    Key(
        name="gpu.headroom_gib",
        kind=Kind.NUMBER,
        default=0.5,
        minimum=0,
        moves=Moves.NO,
        doc="Memory of one GPU in GiB that the plan leaves free (`cuda` only).",
    ),
    Key(
        name="gpu.architecture",
        kind=Kind.TEXT,
        default="any",
        moves=Moves.NO,
        doc="For instance `sm90`; part of the name of the volume with compiled kernels.",
    ),
)
