"""Baselines: what GeoPatch is compared with, behind one interface."""

from geopatch_lab.baselines.choice import Choice, better_amplitude
from geopatch_lab.baselines.method import Method
from geopatch_lab.baselines.registry import METHODS, make

__all__ = ["Choice", "METHODS", "Method", "better_amplitude", "make"]
