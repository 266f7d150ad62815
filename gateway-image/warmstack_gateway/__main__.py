"""`python -m warmstack_gateway`, as `warmstack-gateway` runs it."""

import sys

from warmstack_gateway.main import main

sys.exit(main())
