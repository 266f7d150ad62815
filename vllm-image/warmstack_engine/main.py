"""Command line of `warmstack-engine`: the arguments are those of `vllm serve`."""

import os
import signal
import sys

from warmstack_engine.control import control
from warmstack_engine.ledger import metrics_of
from warmstack_engine.loop import Engine, is_pid_one
from warmstack_engine.settings import read_settings
from warmstack_shared.children import become_reaper
from warmstack_shared.errors import Failure
from warmstack_shared.inbox import Inbox
from warmstack_shared.local_server import METRICS, Answer, LocalServer, Reply, UnixLocalServer, serve
from warmstack_shared.marks import listen


def main(arguments: list[str]) -> int:
    try:
        settings = read_settings(os.environ, arguments)
        if not is_pid_one():
            print("warmstack-engine is not PID 1: only what it started itself is removed", file=sys.stderr)
        become_reaper()
        inbox = Inbox()
        inbox.listen(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        engine = Engine(settings, inbox)
        listen(engine.ledger.mark)
        serve(UnixLocalServer(settings.control_socket, control(inbox)))
        _serve_metrics(settings.status_port, engine)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    return engine.run()


def metrics(engine: Engine) -> Answer:
    """What the port answers that is never published."""

    def answer(method: str, path: str) -> Reply:
        if (method, path) != ("GET", "/metrics"):
            return Reply(text="try /metrics\n", code=404)
        return Reply(text=metrics_of(engine.ledger, nursery=engine.nursery), kind=METRICS)

    return answer


def _serve_metrics(port: int, engine: Engine) -> None:
    """An engine without /metrics serves all the same: containers in the host's network may share the port."""
    try:
        serve(LocalServer(("0.0.0.0", port), metrics(engine)))
    except OSError as error:
        print(f"no /metrics on port {port}: {error.strerror}", file=sys.stderr)
