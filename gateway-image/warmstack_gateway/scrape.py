"""`/metrics` for Prometheus, on one address of the container.

In: an address of the backend network, and a function that writes the text. Out: HTTP. Refuses to know what is
counted.
"""

from collections.abc import Callable

from aiohttp.web import BaseRequest, Response, Server, ServerRunner, TCPSite

from warmstack_gateway.marks import emit


async def serve(address: tuple[str, int], text: Callable[[], str]) -> ServerRunner | None:
    """Listen on what the name means; None, and a line in the log, when it means nothing here."""

    async def handle(request: BaseRequest) -> Response:
        if request.rel_url.raw_path != "/metrics":
            return Response(status=404, text="Only /metrics is served here.\n")
        return Response(text=text(), content_type="text/plain", charset="utf-8")

    runner = ServerRunner(Server(handle, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    host, port = address
    try:
        await TCPSite(runner, host, port).start()
    except OSError as error:
        emit("no-metrics", address=f"{host}:{port}", reason=str(error))
        await runner.cleanup()
        return None
    return runner
