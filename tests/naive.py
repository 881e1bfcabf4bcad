"""Obvious slow twins: one window, one patch, one number at a time. Every fast routine must agree with its twin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.protocol import Places

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

EPSILON = 1e-6


def fixed_scaffold(length: int, patch_length: int, max_patches: int, stride: int | None = None) -> list[int]:
    """The first sample of each patch of a window of this length."""
    if stride is not None:
        starts = [0]
        while starts[-1] + patch_length < length and starts[-1] + stride < length and len(starts) < max_patches:
            starts.append(starts[-1] + stride)
        return starts
    room = max(length - patch_length, 0)
    count = min(room + 1, max_patches)
    if count == 1:
        return [0]
    return [math.floor(Fraction(k * room, count - 1) + Fraction(1, 2)) for k in range(count)]


def centre(start: int, length: int, patch_length: int) -> float:
    """Mean sample index of the samples that a patch holds."""
    held = range(start, min(start + patch_length, length))
    return sum(held) / len(held)


def motion(values: Array) -> tuple[Array, Array, Array]:
    """Speed, acceleration and curvature (T,) of values (T, C) that stand still past their ends."""
    last = len(values) - 1
    speed, acceleration, curvature = np.zeros(last + 1), np.zeros(last + 1), np.zeros(last + 1)
    for t in range(last + 1):
        before, now, after = values[max(t - 1, 0)], values[t], values[min(t + 1, last)]
        speed[t] = math.sqrt(sum(((b - a) / 2) ** 2 for a, b in zip(before, after, strict=True)))
        acceleration[t] = math.sqrt(sum((b - 2 * n + a) ** 2 for a, n, b in zip(before, now, after, strict=True)))
        curvature[t] = acceleration[t] / ((1 + speed[t] ** 2) ** 1.5 + EPSILON)
    return speed, acceleration, curvature


def affine_residual(patch: Array, weights: Array) -> tuple[Array, Array]:
    """What the weighted least-squares line leaves of a patch (L, C), 0 where the weight is 0, and its slopes (C,)."""
    size, channels = patch.shape
    residual, slopes = np.zeros((size, channels)), np.zeros(channels)
    total = sum(weights)
    if total == 0:
        return residual, slopes
    mean_time = sum(w * t for t, w in enumerate(weights)) / total
    spread = sum(w * (t - mean_time) ** 2 for t, w in enumerate(weights))
    for c in range(channels):
        mean = sum(w * patch[t, c] for t, w in enumerate(weights)) / total
        if spread > 0:
            slopes[c] = sum(w * (t - mean_time) * (patch[t, c] - mean) for t, w in enumerate(weights)) / spread
        for t, w in enumerate(weights):
            residual[t, c] = (patch[t, c] - mean - slopes[c] * (t - mean_time)) if w > 0 else 0.0
    return residual, slopes


def local_residual(patch: Array, weights: Array) -> Array:
    """The affine residual over the local rate."""
    residual, slopes = affine_residual(patch, weights)
    return np.asarray(residual / np.maximum(np.abs(slopes), EPSILON))


def residual_norms(residual: Array, weights: Array) -> list[float]:
    """For j = 0, 1, 2 the mean over channels and over known j-th differences of their size."""
    size, channels = residual.shape
    norms = []
    for j in range(3):
        sizes = []
        for t in range(size - j):
            if all(weights[t + i] > 0 for i in range(j + 1)):
                for c in range(channels):
                    signs = [math.comb(j, i) * (-1) ** (j - i) for i in range(j + 1)]
                    sizes.append(abs(sum(sign * residual[t + i, c] for i, sign in enumerate(signs))))
        norms.append(sum(sizes) / len(sizes) if sizes else 0.0)
    return norms


def fill_gaps(values: Array) -> Array:
    """Values (T, C) with NaN bridged by straight lines, the ends held, and 0 for a channel without measurements."""
    filled = np.zeros_like(values)
    for c in range(values.shape[1]):
        known = [t for t in range(len(values)) if not math.isnan(values[t, c])]
        for t in range(len(values) if known else 0):
            left = max((k for k in known if k <= t), default=known[0])
            right = min((k for k in known if k >= t), default=known[-1])
            share = 0.0 if left == right else (t - left) / (right - left)
            filled[t, c] = values[left, c] * (1 - share) + values[right, c] * share
    return filled


def cut(values: Array, starts: Sequence[int], patch_length: int) -> Array:
    """Patches (K, L, C) of values (T, C), 0 where a patch hangs over the end."""
    patches = np.zeros((len(starts), patch_length, values.shape[1]))
    for k, start in enumerate(starts):
        for offset in range(patch_length):
            if start + offset < len(values):
                patches[k, offset] = values[start + offset]
    return patches


def descriptors(
    source: Array, confidence: Array, starts: Sequence[int], k: int, patch_length: int, max_patches: int, *, clock: bool
) -> dict[str, list[float]]:
    """Every descriptor of patch k of a source (T, C), by name."""
    length = len(source)
    held = range(starts[k], min(starts[k] + patch_length, length))
    speed, acceleration, curvature = motion(source)
    _, _, norms = _residual_of_patch(source, confidence, starts[k], patch_length, clock=clock)
    return {
        "slope": [math.log1p(_weighted_mean(speed, confidence, held))],
        "acceleration": [math.log1p(_weighted_mean(acceleration, confidence, held))],
        "curvature": [math.log1p(_weighted_mean(curvature, confidence, held))],
        "residual": [math.log1p(norm) for norm in norms],
        "confidence": [sum(confidence[t] for t in held) / len(held)],
        "position": [centre(starts[k], length, patch_length) / length],
        "index": [k / max(max_patches - 1, 1)],
        "length": [len(held) / length],
        "global": [math.log1p(_weighted_mean(track, confidence, range(length))) for track in (speed, curvature)],
    }


def evidence(source: Array, confidence: Array, start: int, patch_length: int, *, clock: bool) -> list[float]:
    """xi of a patch: log(1 + |grad^j r|_1 / count), j = 0, 1, 2, and log(1 + curvature); the last two times c_bar."""
    held, _, norms = _residual_of_patch(source, confidence, start, patch_length, clock=clock)
    curvature = _weighted_mean(motion(source)[2], confidence, held)
    c_bar = sum(confidence[t] for t in held) / len(held)
    return [math.log1p(norms[0]), math.log1p(norms[1]), c_bar * math.log1p(norms[2]), c_bar * math.log1p(curvature)]


def _residual_of_patch(
    source: Array, confidence: Array, start: int, patch_length: int, *, clock: bool
) -> tuple[range, Array, list[float]]:
    held = range(start, min(start + patch_length, len(source)))
    weights = np.asarray([confidence[t] for t in held])
    patch = np.asarray([source[t] for t in held])
    residual = local_residual(patch, weights) if clock else affine_residual(patch, weights)[0]
    return held, residual, residual_norms(residual, weights)


def _weighted_mean(track: Array, weights: Array, held: range) -> float:
    total = sum(weights[t] for t in held)
    return float(sum(weights[t] * track[t] for t in held) / total) if total > 0 else 0.0


def spans(start: int, length: int, patch_length: int, max_patches: int, step: int) -> list[int]:
    """Places of the context stem (every `step` samples) that the token of a patch may read: at least the nearest."""
    middle = centre(start, length, patch_length)
    reach = max(patch_length, 2 * length / max_patches) / 2
    places = [n for n in range((length - 1) // step + 1) if middle - reach <= n * step < middle + reach]
    following = [n for n in range((length - 1) // step + 1) if n * step >= middle - reach]
    return places or following[:1] or [(length - 1) // step]


def zscore(values: Array) -> tuple[Array, Array, Array]:
    """Each channel of a window to mean 0 and spread 1; a constant channel to 0."""
    level, spread = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    scaled = np.zeros_like(values)
    for c in range(values.shape[1]):
        level[c] = sum(values[:, c]) / len(values)
        spread[c] = math.sqrt(sum((value - level[c]) ** 2 for value in values[:, c]) / len(values))
        for t in range(len(values)):
            scaled[t, c] = (values[t, c] - level[c]) / spread[c] if spread[c] > EPSILON * (1 + abs(level[c])) else 0.0
    return scaled, level, spread


def masked_batch_norm(x: Array, inside: Mask, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
    """x (B, T, C) by the mean and variance of what lies inside, and that mean and variance (C,)."""
    rows = [x[b, t] for b in range(x.shape[0]) for t in range(x.shape[1]) if inside[b, t]]
    channels = x.shape[2]
    mean = np.asarray([sum(row[c] for row in rows) / len(rows) for c in range(channels)])
    variance = np.asarray([sum((row[c] - mean[c]) ** 2 for row in rows) / len(rows) for c in range(channels)])
    normed = np.zeros_like(x)
    for c in range(channels):
        normed[..., c] = (x[..., c] - mean[c]) / math.sqrt(variance[c] + eps) * weight[c] + bias[c]
    return normed, mean, variance


def masked_mean_max(rows: Array, mask: Mask) -> list[float]:
    """Mean and then max of each column over the rows that the mask holds; 0 where it holds none."""
    kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
    columns = range(rows.shape[1])
    means = [sum(row[c] for row in kept) / len(kept) if kept else 0.0 for c in columns]
    return means + [max(row[c] for row in kept) if kept else 0.0 for c in columns]


def gate(xi: Sequence[float], w1: Array, b1: Array, w2: Array, b2: float, valid: bool) -> float:
    """a = m sigmoid(W2 GELU(W1 xi + b1) + b2)."""
    hidden = [sum(w * x for w, x in zip(row, xi, strict=True)) + b for row, b in zip(w1, b1, strict=True)]
    active = [h * (1 + math.erf(h / math.sqrt(2))) / 2 for h in hidden]
    logit = sum(w * a for w, a in zip(w2, active, strict=True)) + b2
    return (1 / (1 + math.exp(-logit))) if valid else 0.0


def drift_and_difference(views: Array) -> tuple[Array, Array, Array]:
    """Of windows by their views (N, V, r): covariance round the window's mean, of the means, and the mean of means."""
    windows, count, width = views.shape
    drift, difference = np.zeros((width, width)), np.zeros((width, width))
    means = [sum(rows) / count for rows in views]
    centre = sum(means) / windows
    for rows, own in zip(views, means, strict=True):
        for row in rows:
            drift += np.outer(row - own, row - own)
        difference += np.outer(own - centre, own - centre)
    return drift / (windows * (count - 1)), difference / windows, centre


def whitened_directions(drift: Array, difference: Array, count: int, shrinkage: float) -> Array:
    """The leading directions (r, count) of what differs, where the drift is the unit in every direction."""
    width = len(drift)
    ridge = shrinkage * np.mean([drift[n, n] for n in range(width)])
    value, vector = np.linalg.eigh(drift + ridge * np.eye(width))
    whiten = vector @ np.diag(1 / np.sqrt(value)) @ vector.T
    _, leading = np.linalg.eigh(whiten @ difference @ whiten)
    directions: Array = whiten @ leading[:, ::-1][:, :count]
    return directions


def closed_form(
    shares: Array, sample: Array, scale: tuple[Array, Array], prior: tuple[Array, Array], sizes: tuple[int, int]
) -> Any:
    """What embeds features: from those of views (N, V, F), rows that span the space, and covariances known before."""
    (mean, spread), (rank, count), windows = scale, sizes, len(shares)
    basis = np.linalg.svd(sample, full_matrices=False)[2][:rank].T
    drift, difference, centre = drift_and_difference(((shares - mean) / spread) @ basis)
    own, known = windows / (windows + 20), 20 / (windows + 20)
    blended = [
        own * one + known * basis.T @ other @ basis for one, other in zip((drift, difference), prior, strict=True)
    ]
    directions = whitened_directions(blended[0], blended[1], count, 0.001)

    def embed(features: Array) -> Array:
        vectors = [(((row - mean) / spread) @ basis - centre) @ directions for row in features]
        return np.stack([vector / norm(vector) for vector in vectors])

    return embed


def decorrelation(gated: Array, valid: Mask, epsilon: float = 1e-8) -> float:
    """Eq. decorrelation: a double loop over the valid tokens of each window (B, K, d)."""
    total = 0.0
    for tokens, keep in zip(gated, valid, strict=True):
        kept = [token for token, k in zip(tokens, keep, strict=True) if k]
        pairs = 0.0
        for i, one in enumerate(kept):
            for j, other in enumerate(kept):
                if i != j:
                    pairs += abs(dot(one, other) / (norm(one) * norm(other) + epsilon))
        if len(kept) > 1:
            total += pairs / (len(kept) * (len(kept) - 1))
    return total / len(gated)


def supervised_contrastive(
    query: Array, query_labels: Sequence[int], key: Array, key_labels: Sequence[int], same: Mask, temperature: float
) -> float:
    """Mean over queries that have a positive of the mean over their positives of -log softmax."""
    losses = []
    for q, label in enumerate(query_labels):
        others = [n for n in range(len(key)) if not same[q, n]]
        positives = [n for n in others if key_labels[n] == label]
        if positives:
            share = {n: math.exp(dot(query[q], key[n]) / temperature) for n in others}
            total = sum(share.values())
            losses.append(sum(-math.log(share[n] / total) for n in positives) / len(positives))
    return sum(losses) / len(losses) if losses else 0.0


def reconstruction(rebuilt: Array, target: Array, inside: Mask) -> float:
    """Mean over patches that hold a sample of the squared distance over their samples (B, K, L, C)."""
    errors = []
    for b in range(rebuilt.shape[0]):
        for k in range(rebuilt.shape[1]):
            held = [place for place in range(rebuilt.shape[2]) if inside[b, k, place]]
            if held:
                errors.append(sum(norm(rebuilt[b, k, place] - target[b, k, place]) ** 2 for place in held))
    return sum(errors) / len(errors) if errors else 0.0


def maxsim(query: Array, query_valid: Mask, candidate: Array, valid: Mask) -> float:
    """Mean over valid query tokens of the best valid candidate token; -inf where there is none."""
    best = []
    for i in range(len(query)):
        found = [dot(query[i], candidate[j]) for j in range(len(candidate)) if valid[j]]
        if query_valid[i] and found:
            best.append(max(found))
    return sum(best) / len(best) if best else -math.inf


def symmetric_maxsim(query: Array, query_valid: Mask, candidate: Array, valid: Mask) -> float:
    return (maxsim(query, query_valid, candidate, valid) + maxsim(candidate, valid, query, query_valid)) / 2


def bridge(query: Array, query_valid: Mask, candidate: Array, valid: Mask, sharpness: float) -> float:
    """Mean over valid query tokens of log(mean(exp(sharpness * cosine))) / sharpness over the candidate's."""
    smooth = []
    for i in range(len(query)):
        terms = [math.exp(sharpness * dot(query[i], candidate[j])) for j in range(len(candidate)) if valid[j]]
        if query_valid[i] and terms:
            smooth.append(math.log(sum(terms) / len(terms)) / sharpness)
    return sum(smooth) / len(smooth) if smooth else -math.inf


def aligned(query: Array, query_valid: Mask, candidate: Array, valid: Mask) -> float:
    """The best of all monotone paths, each tried, from both first valid tokens to both last; -inf where there is none.

    A step on both sides counts once, on one side a half; the middles of two tokens that meet are at most a quarter of
    the window apart, or half a token of the shorter side.
    """
    first = [token for token, known in zip(query, query_valid, strict=True) if known]
    second = [token for token, known in zip(candidate, valid, strict=True) if known]
    rows, columns = len(first), len(second)
    if not rows or not columns:
        return -math.inf
    reach = max(Fraction(1, 4), Fraction(1, 2 * min(rows, columns)))

    def near(i: int, j: int) -> bool:
        return abs(Fraction(2 * i + 1, 2 * rows) - Fraction(2 * j + 1, 2 * columns)) <= reach

    def totals(i: int, j: int) -> list[float]:
        """The sums of all paths that end here."""
        if i < 0 or j < 0 or not near(i, j):
            return []
        cosine = dot(first[i], second[j])
        if i == j == 0:
            return [cosine]
        both = [total + cosine for total in totals(i - 1, j - 1)]
        return both + [total + cosine / 2 for total in totals(i - 1, j) + totals(i, j - 1)]

    return max(totals(rows - 1, columns - 1)) / ((rows + columns) / 2)


def rerank(
    cosine: Array, query: Array, query_valid: Mask, tokens: Array, valid: Mask, scorer: str, shortlist: int
) -> list[int]:
    """The gallery in order, best first, for one query: the shortlist by `scorer`, then the others by cosine."""
    order = sorted(range(len(cosine)), key=lambda n: -cosine[n])
    if scorer == "cosine":
        return order

    def score(n: int) -> float:
        if scorer == "maxsim":
            return maxsim(query, query_valid, tokens[n], valid[n])
        if scorer == "bridge":
            return bridge(query, query_valid, tokens[n], valid[n], sharpness=10.0)
        parts = (query, query_valid, tokens[n], valid[n])
        if scorer == "aligned":
            return aligned(*parts)
        return float(cosine[n]) + (aligned(*parts) if scorer == "fused-aligned" else symmetric_maxsim(*parts))

    return sorted(order[:shortlist], key=lambda n: -score(n)) + order[shortlist:]


def hits(scores: Array, candidate: Mask, relevant: Mask) -> list[bool]:
    """Which places of the ranking are right, best first; among equal scores the wrong ones stand first."""
    order = [n for n in range(len(scores)) if candidate[n]]
    order.sort(key=lambda n: (-scores[n], bool(relevant[n])))
    return [bool(relevant[n]) for n in order]


def recall_at(ranked: Sequence[bool], most: int) -> float:
    return float(any(ranked[:most]))


def reciprocal_rank(ranked: Sequence[bool]) -> float:
    return next((1 / rank for rank, hit in enumerate(ranked, start=1) if hit), 0.0)


def average_precision(ranked: Sequence[bool]) -> float:
    """Mean over right candidates of the share of right ones down to each; 0 where there is none."""
    precisions = [sum(ranked[:rank]) / rank for rank, hit in enumerate(ranked, start=1) if hit]
    return sum(precisions) / len(precisions) if precisions else 0.0


def dot(one: Array, other: Array) -> float:
    return float(sum(a * b for a, b in zip(one, other, strict=True)))


def norm(vector: Array) -> float:
    return math.sqrt(dot(vector, vector))


def protocol(name: str, guard_s: float, where: Places, labels: Any, query: int, entry: int) -> tuple[bool, bool]:
    """Whether an entry stands in the ranking of a query, and whether it is right."""
    candidate, right = query != entry, labels[query] == labels[entry]
    same_record = where.records[query] == where.records[entry]
    gap_s = max(where.start_s[entry] - where.stop_s[query], where.start_s[query] - where.stop_s[entry])
    near = same_record and (name.endswith("cross-record") or gap_s < guard_s)
    if name.startswith("strict") and near:
        candidate = False
    if name.startswith("penalised") and near:
        right = False
    return bool(candidate), bool(right)


def kernel_above(
    copy: npt.NDArray[np.float32], mix: npt.NDArray[np.float32], bias: float, dilation: int, twos: tuple[int, ...]
) -> Mask:
    """Whether the response of a kernel to a window (C, T) exceeds its bias at each place, added up in float32."""
    length = copy.shape[1]
    mixed = copy[0] * mix[0]
    for channel in range(1, len(copy)):
        mixed = mixed + copy[channel] * mix[channel]
    padded = np.concatenate([np.zeros(4 * dilation), mixed, np.zeros(4 * dilation)]).astype(np.float32)
    taps = [padded[tap * dilation : tap * dilation + length] for tap in range(9)]
    total = taps[0]
    for tap in range(1, 9):
        total = total + taps[tap]
    response = -total
    for tap in twos:
        response = response + np.float32(3) * taps[tap]
    above: Mask = response > bias
    return above


def kernel_features(
    copies: npt.NDArray[np.float32],
    mixes: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    dilation: npt.NDArray[np.int64],
    inner: Mask,
) -> npt.NDArray[np.float32]:
    """Shares of places above the biases, of the copies (copies, C, T) of one window."""
    shares = []
    for group, step in enumerate(dilation):
        for kernel, twos in enumerate(combinations(range(9), 3)):
            mix = mixes[group, kernel % mixes.shape[1]]
            above = kernel_above(copies[group * 3 // 48], mix, bias[group, kernel], int(step), twos)
            if inner[group, kernel]:
                above = above[4 * step : len(above) - 4 * step]
            shares.append(np.float32(above.sum()) / np.float32(len(above)))
    return np.asarray(shares)


def kernel_span_features(
    copies: npt.NDArray[np.float32],
    mixes: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    dilation: npt.NDArray[np.int64],
    spans: Sequence[tuple[int, int]],
) -> npt.NDArray[np.float32]:
    """The same in spans (K, 12 * 84), of every fourth group from the third on."""
    shares = []
    for group in range(2, 48, 4):
        for kernel, twos in enumerate(combinations(range(9), 3)):
            mix = mixes[group, kernel % mixes.shape[1]]
            above = kernel_above(copies[group * 3 // 48], mix, bias[group, kernel], int(dilation[group]), twos)
            shares.append([np.float32(above[start:stop].sum()) / np.float32(stop - start) for start, stop in spans])
    return np.asarray(shares).T


def step_mean(track: Any, low: float, high: float) -> float:
    """The mean from `low` to `high` of numbers that each hold for one place, within the places there are."""
    low, high = min(max(low, 0.0), len(track) - 1.0), min(max(high, 1.0), float(len(track)))
    high = max(high, low + 0.5)
    shares = [max(min(high, place + 1) - max(low, place), 0.0) for place in range(len(track))]
    return float(sum(share * value for share, value in zip(shares, track, strict=True)) / (high - low))
