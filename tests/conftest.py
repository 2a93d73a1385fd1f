"""What holds for every test: none fails for having been slow."""

from hypothesis import settings

settings.register_profile("at any speed", deadline=None)
settings.load_profile("at any speed")
