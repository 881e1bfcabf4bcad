"""Baselines: what GeoPatch is compared with, behind one interface."""

from geopatch.baselines.choice import Choice, better_amplitude
from geopatch.baselines.method import Method
from geopatch.baselines.registry import METHODS, make

__all__ = ["Choice", "METHODS", "Method", "better_amplitude", "make"]
