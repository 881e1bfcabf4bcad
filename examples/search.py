"""Find windows like one of yours: train on the built-in motions, then ask for the neighbours of a warped window."""

from __future__ import annotations

import numpy as np

from geopatch import GeoPatch, TrainConfig
from geopatch.data.sample import basic_motions
from geopatch.warp import warped

train, test = basic_motions()
model = GeoPatch(train=TrainConfig(min_steps=60, max_steps=60), progress=True).fit(train.signals, train.labels)
gallery = model.transform(test.signals)
query = model.transform([warped(test.signals[25])])[0]
assert test.labels is not None
print("query:", test.labels[25], "at another tempo")
for place in np.argsort(-gallery @ query)[:5]:
    print(f"{gallery[place] @ query:.3f}  window {test.signals[place].id}  {test.labels[place]}")
