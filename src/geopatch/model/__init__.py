"""The encoder and its parts."""

from geopatch.model.checkpoint import Card, digest, load_checkpoint, save_checkpoint
from geopatch.model.encoder import PRESETS, Encoded, Encoder, ModelConfig

__all__ = ["Card", "Encoded", "Encoder", "ModelConfig", "PRESETS", "digest", "load_checkpoint", "save_checkpoint"]
