"""The laboratory: baselines, stability and the study behind the scores. The product, `geopatch`, never imports it."""
