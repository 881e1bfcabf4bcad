"""The fixed half of the encoder: kernels, their features, and the closed form of the map that follows them."""
