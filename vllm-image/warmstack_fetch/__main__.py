import os
import sys

# Before huggingface_hub is imported: the root file system is read-only, and /tmp is memory.
os.environ.setdefault("HF_HOME", "/hub/.cache")
os.environ.setdefault("HF_XET_CHUNK_CACHE_SIZE_BYTES", "0")

from warmstack_fetch.cli import main

sys.exit(main())
