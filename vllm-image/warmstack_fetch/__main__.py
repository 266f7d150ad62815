import sys

from warmstack_fetch.cli import main

sys.exit(main())
