"""The encoder: what it is, its weights as a folder, and the digest that names both."""

from geopatch.config import PRESETS, ModelConfig
from geopatch.model.checkpoint import digest
from geopatch.model.encoder import Encoder

__all__ = ["Encoder", "ModelConfig", "PRESETS", "digest"]
