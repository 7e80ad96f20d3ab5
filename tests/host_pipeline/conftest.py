"""Property tests of this package: no deadline, because the machine may be busy with others."""

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
