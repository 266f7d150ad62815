import sys

from warmstack_supervisor.main import main

sys.exit(main(sys.argv[1:]))
