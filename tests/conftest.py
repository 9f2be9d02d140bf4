"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: on a shared machine it would measure the neighbours.
_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=_QUIET)
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True, suppress_health_check=_QUIET)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
