"""Stands for vLLM's package in the tests of the nursery. It says on stderr how often it was imported."""

import os
import sys

print(f"importing the fake vLLM in process {os.getpid()}", file=sys.stderr, flush=True)
