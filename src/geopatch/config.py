"""The settings of encoder and training, each declared once with its help text and range. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any

from geopatch.errors import ConfigError, at_least, one_of

DESCRIPTORS: dict[str, int] = {  # name -> columns it takes
    "slope": 1,
    "acceleration": 1,
    "curvature": 1,
    "residual": 3,
    "confidence": 1,
    "position": 1,
    "index": 1,
    "length": 1,
    "global": 2,
}
TEMPO_COLUMNS = 3  # of the descriptor "tempo", which `fit` adds where relative tempo counts
RHYTHM = (  # relative tempo: names of its columns, see `rhythm`; the last two are in units of time
    *("shortest", "longest", "fall", "rise", "spread", "change", "alternation"),
    *("tempo", "surroundings"),
)
HARMONICS = (1, 3, 5, 7)  # of the waves that a column of relative tempo is written in, two numbers each
DISTORTIONS = ("speed", "crop", "shift", "gain", "noise", "wander", "drop")  # what views can make harmless
SOUND_DISTORTIONS = ("tract",)  # and what they can where channels are neighbouring bands of a spectrum
HALVES = ("kernels", "learned")
KERNELS = (3, 7, 15, 31)  # samples each convolution of the context stem spans
MIN_STEPS = 1200
MAX_WARP = 1 / (2 * math.pi)  # a stronger warp would let time run backwards


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A dataclass field with its help text, its range and its choices, from which checks and flags are made."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "choices": choices})


def check_settings(config: Any) -> None:
    """Refuse a value outside the range or the choices that its field declares."""
    for item in fields(config):
        _check(item, getattr(config, item.name))


def _check(item: Field[Any], value: Any) -> None:
    low, high, choices = (item.metadata[key] for key in ("low", "high", "choices"))
    if value is None and item.default is None:
        return
    if choices is not None:
        for name in value if isinstance(value, tuple) else (value,):
            one_of(item.name, name, choices)
    if low is not None:
        at_least(item.name, value, low)
    if high is not None and not value <= high:
        raise ConfigError(f"{item.name} must be at most {high:.4g}, got {value}")


@dataclass(frozen=True)
class PatchConfig:
    """How windows become patches.

    Parameters
    ----------
    patch_length : int, default=16
        Samples in a patch.
    max_patches : int, default=16
        Patches in a window, at most; see `patch_budget`.
    patch_budget : int, default=64
        What `max_patches` grows to where the training windows are long: beyond 1024 samples, or for sound beyond two
        thirds of a second, in proportion to their median length.
    patch_count : int, optional
        What it has grown to, where it has; `fit` sets it.
    stride : int, optional
        Samples between the starts of two patches; by default patches are spread over the window.
    boundaries : {"fixed", "adaptive", "random"}, default="fixed"
        Where patches lie: evenly, where the signal bends, or by chance.
    descriptors : tuple of str, default=all but "tempo"
        Geometry of a patch that conditions its token. "tempo" is that of its anchors beside those round the window.
    geometry_source : {"values", "clock"}, default="values"
        What geometry is measured on: the values, or the clock that a signal's anchors give.
    curvature_channel : bool, default=False
        Whether curvature is one more channel of the input.
    """

    patch_length: int = setting(16, "Samples in a patch.", low=3)
    max_patches: int = setting(16, "Patches in a window, at most; more where windows are long.", low=1)
    patch_budget: int = setting(64, "What --max-patches grows to where windows are long.", low=1)
    patch_count: int | None = setting(None, "Patches in a window, at most; taken from the data.", low=1)
    stride: int | None = setting(None, "Samples between two patches; by default spread over the window.", low=1)
    boundaries: str = setting("fixed", "Where patches lie.", choices=("fixed", "adaptive", "random"))
    descriptors: tuple[str, ...] = setting(
        tuple(DESCRIPTORS), "Geometry of a patch that conditions its token.", choices=(*DESCRIPTORS, "tempo")
    )
    geometry_source: str = setting(
        "values", "What geometry is measured on; the clock needs signals with anchors.", choices=("values", "clock")
    )
    curvature_channel: bool = setting(False, "Give curvature as one more channel of the input.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "descriptors", tuple(self.descriptors))
        check_settings(self)

    @property
    def patches(self) -> int:
        """Patches in a window, at most: the tokens that a gallery keeps of it."""
        return self.max_patches if self.patch_count is None else self.patch_count

    def patches_for(self, length: float, unit: float) -> int:
        """What `patch_count` is for windows of a median length, where `max_patches` are for `unit` samples.

        Parameters
        ----------
        length : float
            Median length of the training windows, in samples.
        unit : float
            Up to so many samples `max_patches` do.

        Returns
        -------
        int
            At least `max_patches` and, where that is more, at most `patch_budget`.
        """
        grown = math.ceil(self.max_patches * max(length / unit, 1.0))
        return max(min(grown, self.patch_budget), self.max_patches)


@dataclass(frozen=True)
class ModelConfig(PatchConfig):
    """What the encoder is.

    Parameters
    ----------
    patch_length : int, default=16
        Samples in a patch.
    max_patches : int, default=16
        Patches in a window, at most; see `patch_budget`.
    patch_budget : int, default=64
        What `max_patches` grows to where the training windows are long: beyond 1024 samples, or for sound beyond two
        thirds of a second, in proportion to their median length.
    patch_count : int, optional
        What it has grown to, where it has; `fit` sets it.
    stride : int, optional
        Samples between the starts of two patches; by default patches are spread over the window.
    boundaries : {"fixed", "adaptive", "random"}, default="fixed"
        Where patches lie: evenly, where the signal bends, or by chance.
    descriptors : tuple of str, default=all but "tempo"
        Geometry of a patch that conditions its token. "tempo" is that of its anchors beside those round the window.
    geometry_source : {"values", "clock"}, default="values"
        What geometry is measured on: the values, or the clock that a signal's anchors give.
    curvature_channel : bool, default=False
        Whether curvature is one more channel of the input.
    halves : tuple of {"kernels", "learned"}, default=both
        What the encoder is made of: fixed kernels, whose map has a closed form, and what is trained by gradients.
    kernel_share : float, default=0.4
        What the fixed kernels count for in the cosine of two embeddings, where there are both halves.
    clock_share : float, optional
        What relative tempo counts for in the cosine of two embeddings; by default `fit` chooses it where windows have
        anchors. 0 leaves it out.
    rhythm : tuple of str, default=()
        The columns of relative tempo that count; `fit` chooses them, and with a `clock_share` above 0 all do.
    surroundings : int, default=8
        Intervals between anchors on either side of a window that its own are measured against.
    prior_windows : float, default=2.0
        How many windows the prior that comes with the package counts for in the fixed kernels: what a fit on fewer
        than five times as many windows leans on. 0 leaves it out.
    channels : int, default=1
        Channels of a signal; `fit` takes the number from the training signals.
    bands : bool, default=False
        Whether the channels are neighbouring bands of a spectrum: then fixed kernels read neighbouring channels
        together, and their tokens are means of groups of bands. `fit` takes it from the names of the channels.
    length : int, default=256
        Samples that windows are resampled to for the fixed kernels; `fit` takes the median of the training signals.
    amplitude : {"keep", "zscore", "both"}, default="keep"
        Treatment of level and scale: kept, removed from each window, or removed and handed back as geometry.
    stem : {"context", "patch"}, default="context"
        What a token sees: the window round its patch, or the patch alone.
    global_branch : bool, default=True
        Whether the embedding also sees mean and maximum of the whole window (context stem only).
    fuse : {"film", "gated", "concat", "none"}, default="film"
        How geometry conditions a token.
    patch_encoder : {"mlp", "cnn", "attention"}, default="mlp"
        What makes a token of a patch.
    gate : bool, default=True
        Whether geometry decides how much each token counts in the embedding.
    aggregate : {"ordered", "set"}, default="ordered"
        What makes an embedding of tokens: a Transformer that knows their order, or a mean that does not.
    reconstruction : {"none", "head", "operator"}, default="none"
        What rebuilds patches from tokens in training; needs a weight, `TrainConfig.reconstruction`.
    width : int, default=64
        Numbers in a token.
    embedding : int, default=128
        Numbers in the embedding of each half.
    layers : int, default=2
        Transformer layers of the ordered aggregate.
    heads : int, default=4
        Attention heads; `width` is a multiple of it.
    dropout : float, default=0.05
        Share of features dropped in training.

    Raises
    ------
    ConfigError
        When a value lies outside its range.

    Examples
    --------
    >>> ModelConfig(width=32, amplitude="zscore").patch_length
    16
    """

    halves: tuple[str, ...] = setting(HALVES, "What the encoder is made of.", choices=HALVES)
    kernel_share: float = setting(0.4, "What fixed kernels count for in the cosine of both halves.", low=0, high=1)
    clock_share: float | None = setting(
        None, "What relative tempo counts for in the cosine; chosen where windows have anchors.", low=0, high=1
    )
    rhythm: tuple[str, ...] = setting((), "Columns of relative tempo that count.", choices=RHYTHM)
    surroundings: int = setting(8, "Intervals before and after a window that its own are measured by.", low=1, high=16)
    prior_windows: float = setting(2.0, "Windows that the prior of the fixed kernels counts for.", low=0)
    channels: int = setting(1, "Channels of a signal; taken from the data.", low=1)
    bands: bool = setting(False, "Channels are neighbouring bands of a spectrum; taken from their names.")
    length: int = setting(256, "Samples windows are resampled to for the fixed kernels; from the data.", low=9)
    amplitude: str = setting(
        "keep",
        "Level and scale of a window: kept, removed, or removed and handed back as geometry.",
        choices=("keep", "zscore", "both"),
    )
    stem: str = setting(
        "context", "What a token sees: the window round its patch, or the patch.", choices=("context", "patch")
    )
    global_branch: bool = setting(True, "Let the embedding see mean and maximum of the whole window.")
    fuse: str = setting("film", "How geometry conditions a token.", choices=("film", "gated", "concat", "none"))
    patch_encoder: str = setting("mlp", "What makes a token of a patch.", choices=("mlp", "cnn", "attention"))
    gate: bool = setting(True, "Let geometry decide how much each token counts.")
    aggregate: str = setting(
        "ordered", "What makes an embedding of tokens: with their order, or without.", choices=("ordered", "set")
    )
    reconstruction: str = setting(
        "none",
        "What rebuilds patches in training; needs --reconstruction-weight.",
        choices=("none", "head", "operator"),
    )
    width: int = setting(64, "Numbers in a token.")
    embedding: int = setting(128, "Numbers in the embedding of each half.", low=1)
    layers: int = setting(2, "Transformer layers of the ordered aggregate.", low=1)
    heads: int = setting(4, "Attention heads; the width is a multiple of it.", low=1)
    dropout: float = setting(0.05, "Share of features dropped in training.", low=0, high=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "halves", tuple(self.halves))
        object.__setattr__(self, "rhythm", tuple(self.rhythm))
        super().__post_init__()
        object.__setattr__(self, "halves", tuple(half for half in HALVES if half in self.halves))
        if self.clock_share and not self.rhythm:
            object.__setattr__(self, "rhythm", RHYTHM)
        if self.rhythm and not self.clock_share:
            raise ConfigError("rhythm names columns that count; say how much, by a clock_share above 0")
        if not self.halves:
            raise ConfigError(f"halves must name at least one of {', '.join(HALVES)}")
        at_least("width", self.width, len(KERNELS) * self.heads)
        if self.width % self.heads or self.width % len(KERNELS):
            raise ConfigError(
                f"width must be a multiple of heads ({self.heads}) and of {len(KERNELS)}, got {self.width}"
            )

    @property
    def rhythm_width(self) -> int:
        """Numbers of relative tempo at the end of an embedding."""
        return 2 * len(HARMONICS) * len(self.rhythm)

    @property
    def embedding_width(self) -> int:
        """Numbers in an embedding."""
        return self.embedding * len(self.halves) + self.rhythm_width

    @property
    def is_trained(self) -> bool:
        """Whether there is a half that gradients train."""
        return "learned" in self.halves

    @property
    def has_kernels(self) -> bool:
        """Whether there is a half of fixed kernels."""
        return "kernels" in self.halves

    @property
    def descriptor_columns(self) -> int:
        """Columns of the geometry of a patch."""
        level_and_scale = 2 * self.channels if self.amplitude == "both" else 0
        columns = {**DESCRIPTORS, "tempo": TEMPO_COLUMNS}
        return sum(columns[name] for name in self.descriptors) + level_and_scale

    @property
    def stem_channels(self) -> int:
        """Channels that the stem reads."""
        return self.channels + self.curvature_channel


PRESETS: dict[str, ModelConfig] = {
    "instant": ModelConfig(halves=("kernels",)),
    "default": ModelConfig(),
    "paper": ModelConfig(
        halves=("learned",),
        descriptors=("global", "position", "slope", "acceleration"),
        amplitude="zscore",
        stem="patch",
        global_branch=False,
        patch_encoder="cnn",
        dropout=0.2,
    ),
}


@dataclass(frozen=True)
class TrainConfig:
    """How the encoder is trained.

    The number of steps is `epochs` passes over the data, at least `min_steps` and at most `max_steps`. The seed is no
    part of it: see `random_state` of `GeoPatch`.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the training windows.
    min_steps : int, optional
        Training steps, at least; by default 1200, or `max_steps` where that is less.
    max_steps : int, default=1500
        Training steps, at most.
    batch_size : int, default=128
        Windows in a step; each gives two views.
    learning_rate : float, default=0.001
        Largest learning rate of AdamW, reached after the warm-up.
    weight_decay : float, default=0.02
        Weight decay of AdamW.
    warmup : float, default=0.1
        Share of the steps in which the learning rate rises.
    clip : float, default=1.0
        Norm that gradients are clipped to.
    temperature : float, default=0.1
        Temperature of the contrastive and the task loss.
    contrastive : float, default=1.0
        Weight of the contrastive loss.
    task : float, default=0.5
        Weight of the classification loss, where there are labels.
    decorrelation : float, default=0.05
        Weight of the loss that keeps the tokens of a window unlike each other.
    reconstruction : float, default=0.0
        Weight of the reconstruction loss; above 0 exactly where the model has a reconstruction.
    warp : float, default=0.12
        Strongest time warp of a view, as a share of the window; below 0.159 time never runs backwards.
    shift : float, default=0.05
        Largest shift of a view, as a share of the window.
    amplitude : float, default=0.1
        Spread of the gain of a view.
    noise : float, default=0.03
        White noise of a view, in units of the training spread.
    robust_to : tuple of str, default=all of them
        Distortions that a search should not mind; each view has one of them or none: "speed" (six random speeds),
        "crop" (a part stretched to the whole, or the whole squeezed), "shift", "gain", "noise", "wander" (of the
        baseline) and "drop" (a span bridged by a line). Where channels are bands of a spectrum all of them have
        "tract" besides: the bands of a longer or shorter vocal tract.
    span_mask : float, default=0.0
        Share of each view that is hidden, as one span: with a reconstruction, the masked-patch pretext task.
    validation : float, default=0.1
        Share of the training windows that chooses the best step, where that makes at least 100 windows.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Number format of the arithmetic; auto takes bfloat16 where the hardware multiplies it.

    Raises
    ------
    ConfigError
        When a value lies outside its range, or `max_steps` below a `min_steps` that was set.

    Examples
    --------
    >>> TrainConfig(max_steps=100).steps(windows=5000)
    100
    """

    epochs: int = setting(100, "Passes over the training windows, within the least and most steps.", low=1)
    min_steps: int = setting(None, "Training steps, at least; 1200, or --max-steps where that is less.", low=1)
    max_steps: int = setting(1500, "Training steps, at most.", low=1)
    batch_size: int = setting(128, "Windows in a step; each gives two views.", low=2)
    learning_rate: float = setting(1e-3, "Largest learning rate, reached after the warm-up.", low=1e-9)
    weight_decay: float = setting(0.02, "Weight decay of AdamW.", low=0)
    warmup: float = setting(0.1, "Share of the steps in which the learning rate rises.", low=0, high=0.9)
    clip: float = setting(1.0, "Norm that gradients are clipped to.", low=1e-9)
    temperature: float = setting(0.1, "Temperature of the contrastive and the task loss.", low=1e-9)
    contrastive: float = setting(1.0, "Weight of the contrastive loss.", low=0)
    task: float = setting(0.5, "Weight of the classification loss, where there are labels.", low=0)
    decorrelation: float = setting(0.05, "Weight of the loss that keeps tokens unlike each other.", low=0)
    reconstruction: float = setting(0.0, "Weight of the reconstruction loss; needs --reconstruction.", low=0)
    warp: float = setting(0.12, "Strongest time warp of a view, as a share of the window.", low=0)
    shift: float = setting(0.05, "Largest shift of a view, as a share of the window.", low=0)
    amplitude: float = setting(0.1, "Spread of the gain of a view.", low=0)
    noise: float = setting(0.03, "White noise of a view, in units of the training spread.", low=0)
    robust_to: tuple[str, ...] = setting(
        DISTORTIONS,
        "Distortions that a search should not mind; each view has one or none.",
        choices=(*DISTORTIONS, *SOUND_DISTORTIONS),
    )
    span_mask: float = setting(0.0, "Share of each view that is hidden, as one span.", low=0, high=0.9)
    validation: float = setting(
        0.1, "Share of the windows that chooses the best step, if at least 100.", low=0, high=0.9
    )
    precision: str = setting(
        "auto",
        "Number format of the arithmetic; auto is bfloat16 where the hardware multiplies it.",
        choices=("auto", "float32", "bfloat16"),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "robust_to", tuple(self.robust_to))
        if self.min_steps is None:
            object.__setattr__(self, "min_steps", max(min(MIN_STEPS, self.max_steps), 1))
        check_settings(self)
        if self.max_steps < self.min_steps:
            raise ConfigError(
                f"max_steps is {self.max_steps} and min_steps {self.min_steps}; leave min_steps out, or lower it too"
            )
        if not self.warp < MAX_WARP:
            raise ConfigError(f"warp must be below 0.159, so that time never runs backwards, got {self.warp}")

    def steps(self, windows: int) -> int:
        """How many steps a training takes.

        Parameters
        ----------
        windows : int
            Training windows.

        Returns
        -------
        int
            `epochs` passes over them, within `min_steps` and `max_steps`.
        """
        per_epoch = -(-windows // self.batch_size)
        return min(max(self.epochs * per_epoch, self.min_steps), self.max_steps)


TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"robust_to": ()}
}  # what a preset trains with, where not the default


def check_reconstruction(model: ModelConfig, train: TrainConfig) -> None:
    """Refuse a reconstruction that no loss would train, and a weight with nothing to weigh."""
    if (model.reconstruction == "none") == (train.reconstruction > 0):
        raise ConfigError(
            f"the model's reconstruction is {model.reconstruction!r} and its weight, the train config's reconstruction,"
            f" is {train.reconstruction:g}; set both (a weight of 0.1 is a start) or neither"
        )
