"""`python -m warmops`."""

from warmops.cli import main

raise SystemExit(main())
