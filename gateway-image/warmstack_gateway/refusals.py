"""What a client reads when the gateway cannot give it an answer: one sentence, one code.

In: a refusal of the table. Out: the body in the shape of the OpenAI API. The Caddyfile has those that need
no engine. Refuses to know when each is used.
"""

import json
from dataclasses import dataclass

RETRY_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer of the gateway's own. `retry`: sending the request again later may help."""

    status: int
    kind: str
    code: str
    sentence: str
    retry: bool = True

    @property
    def error(self) -> dict[str, str | None]:
        return {"message": self.sentence, "type": self.kind, "param": None, "code": self.code}

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.error}).encode()

    @property
    def headers(self) -> dict[str, str]:
        retry = {"Retry-After": str(RETRY_SECONDS)} if self.retry else {}
        return {"Content-Type": "application/json", "Server": "warmstack", **retry}


class Refused(Exception):
    """Ends the handling of a request with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


NOT_READY = Refusal(
    status=503,
    kind="service_unavailable",
    code="engine_not_ready",
    sentence="No engine is ready: it is starting or has stopped. Please try again in a moment.",
)
STOPPED = Refusal(
    status=503,
    kind="service_unavailable",
    code="engine_stopped",
    sentence="The engine stopped before it answered this request. Please send it again.",
)
TOO_MANY = Refusal(
    status=503,
    kind="service_unavailable",
    code="too_many_waiting",
    sentence="Too many requests are waiting for an engine. Please try again in a moment.",
)
STOPPING = Refusal(
    status=503,
    kind="service_unavailable",
    code="gateway_stopping",
    sentence="The gateway is being restarted. Please send your request again.",
)
TOO_LARGE = Refusal(
    status=413,
    kind="invalid_request_error",
    code="request_too_large",
    sentence="The request is larger than 20 MB, the most this gateway takes.",
    retry=False,
)
BROKEN = Refusal(
    status=500,
    kind="internal_error",
    code="gateway_error",
    sentence="The gateway could not handle this request.",
    retry=False,
)
# In a stream that has begun these are events; the status is what the same would be before.
CUT = Refusal(
    status=503,
    kind="server_error",
    code="engine_stopped",
    sentence="The engine stopped while it was answering. Please send your message again.",
)
CUT_BY_US = Refusal(
    status=503,
    kind="server_error",
    code="gateway_stopping",
    sentence="The gateway was restarted while the answer was coming. Please send your message again.",
)
