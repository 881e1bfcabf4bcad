"""The fixed half of the encoder: kernels, their features, and the closed form of the map that follows them."""

__all__: list[str] = []  # an encoder has it; nobody calls it by itself
