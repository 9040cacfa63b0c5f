"""Settings for all tests."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)  # a test never times, and says the same each time
settings.load_profile("steady")
