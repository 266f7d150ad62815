"""Python runs this at its start in a drill: the engine's process gets the PID number that COLLIDE_PID names.

In the container's first process the stack's own care is switched off; in `vllm serve` ids are used up right
before the engine's process is made, threads take theirs from the same counter. Never part of an image.
"""

import multiprocessing.popen_fork
import multiprocessing.util
import os
import sys
import threading

WANTED = int(os.environ.get("COLLIDE_PID", "0"))


def use_up_to(last):
    """Until the next process gets the id after `last`; nothing when the counter is past it."""
    while True:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        if thread.native_id >= last:
            print(
                f"collide: the counter is at {thread.native_id}, wanted {last}", file=sys.stderr, flush=True
            )
            return


def before_spawn(spawn):
    def spawn_with_id(path, arguments, fds):
        if any(b"spawn_main" in os.fsencode(word) for word in arguments):
            use_up_to(WANTED - 1)
        return spawn(path, arguments, fds)

    return spawn_with_id


def before_fork(launch):
    def launch_with_id(self, process):
        use_up_to(WANTED - 1)
        return launch(self, process)

    return launch_with_id


if WANTED and os.getpid() == 1:
    import warmstack_engine.pids as pids

    pids.move_past = lambda highest, ranks: 0.0
    pids.collides = lambda pid, ranks: False
elif WANTED and "serve" in getattr(sys, "orig_argv", []):
    multiprocessing.util.spawnv_passfds = before_spawn(multiprocessing.util.spawnv_passfds)
    multiprocessing.popen_fork.Popen._launch = before_fork(multiprocessing.popen_fork.Popen._launch)
