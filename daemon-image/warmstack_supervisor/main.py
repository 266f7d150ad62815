"""Command line of `warmstack-supervisor`: the arguments are those of `vllm preload`."""

import os
import signal
import sys

from warmstack_shared.children import become_reaper
from warmstack_shared.errors import Failure
from warmstack_shared.inbox import Inbox
from warmstack_shared.local_server import serve
from warmstack_supervisor.loop import Supervisor
from warmstack_supervisor.serving import StatusServer, UnixStatusServer
from warmstack_supervisor.settings import read_settings


def main(arguments: list[str]) -> int:
    try:
        settings = read_settings(os.environ, arguments)
        if os.getpid() != 1:
            print(
                "warmstack-supervisor is not PID 1: only what it started itself is removed", file=sys.stderr
            )
        become_reaper()
        inbox = Inbox()
        inbox.listen(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        supervisor = Supervisor(settings, inbox)
        serve(UnixStatusServer(settings.supervisor_socket, lambda: supervisor.status))
        serve(StatusServer((settings.status_host, settings.status_port), lambda: supervisor.status))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    return supervisor.run()
