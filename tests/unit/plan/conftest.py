"""Property tests: the same examples in every run, and no time limit for one: others share the machine."""

from hypothesis import settings

settings.register_profile("plan", deadline=None, derandomize=True)
settings.load_profile("plan")
