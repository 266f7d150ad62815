import sys

from warmstack_engine.main import main

sys.exit(main(sys.argv[1:]))
