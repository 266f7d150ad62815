import sys

from supervisor.main import main

sys.exit(main(sys.argv[1:]))
