"""GeoPatch for scikit-learn users: fit, transform, encode, save, load."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from geopatch.config import PRESETS, TRAIN_PRESETS, ModelConfig, TrainConfig, check_reconstruction
from geopatch.encoding import ENCODE_BATCH, Between, Encoding, encode_batches, joined
from geopatch.errors import ConfigError, at_least, one_of
from geopatch.kernels.fitting import from_prior
from geopatch.model.checkpoint import Card, PackedCheckpoint, load_checkpoint, load_moments, save_checkpoint
from geopatch.model.encoder import Encoder
from geopatch.parameters import changed_config, checked_card, device_of, seed_of, views_for
from geopatch.progress import counting_bar, training_bar
from geopatch.signal import LazySignals
from geopatch.train.closed_form import fit_kernels
from geopatch.train.fit import Callback, Fitted, HistoryRow, fit, fitting_config
from geopatch.train.launch import Team, launch
from geopatch.training_set import TrainingSet, check_rate, signals_of

PRETRAINED = ("general",)
MODEL_PARAMETERS = ("amplitude", "patch_length", "max_patches", "width", "embedding", "layers", "dropout")
TRAIN_PARAMETERS = ("max_steps", "batch_size", "learning_rate", "temperature", "warp", "noise", "robust_to")
FROM_DATA: dict[str, Any] = {"channels": 1, "length": ModelConfig.length, "patch_count": None, "bands": False}
LEARNED_ONLY = ("layers", "dropout", "max_steps", "batch_size", "learning_rate", "temperature")


class GeoPatch(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode time series as unit vectors in which the same shape at another tempo is near.

    A scikit-learn transformer. Of each setting there is one place: a parameter here, or a field of `model` or
    `train`; a setting that is given in both is refused.

    Parameters
    ----------
    preset : {"instant", "default", "paper"}, optional
        The encoder to start from: fixed kernels alone, which take seconds; these and a trained half; the paper's. By
        default "default" with labels and "instant" without. Not together with `model`.
    random_state : int, RandomState or None, default=0
        Seed of weights, order of windows and views: one number gives one model. None draws a seed; the one that was
        used is `seed_`.
    amplitude : {"keep", "zscore", "both"}, optional
        Treatment of level and scale of a window. As all that follow up to `noise`, None means as the preset has it;
        see `ModelConfig` and `TrainConfig`.
    patch_length : int, optional
        Samples in a patch.
    max_patches : int, optional
        Patches in a window, at most.
    width : int, optional
        Numbers in a token.
    embedding : int, optional
        Numbers in the embedding of each half.
    layers : int, optional
        Transformer layers over the tokens.
    dropout : float, optional
        Share of features dropped in training.
    max_steps : int, optional
        Training steps, at most.
    batch_size : int, optional
        Windows in a training step.
    learning_rate : float, optional
        Largest learning rate.
    temperature : float, optional
        Temperature of the contrastive loss.
    warp : float, optional
        Strongest time warp that training shows, as a share of the window.
    noise : float, optional
        White noise that training adds, in units of the training spread.
    robust_to : tuple of str, optional
        Distortions that a search should not mind; by default all of "speed", "crop", "shift", "gain", "noise",
        "wander" and "drop". See `TrainConfig`.
    model : ModelConfig, optional
        All settings of the encoder; by default those of the preset.
    train : TrainConfig, optional
        All settings of the training; by default `TrainConfig()`.
    device : str, default="auto"
        "cpu", "cuda", "cuda:N", or "auto" for a GPU where there is one.
    devices : int, default=1
        How many devices (or CPU processes) train together.
    progress : bool, default=False
        Whether `fit` shows its progress on stderr.
    callbacks : sequence of callables, default=()
        Each is called with every row of the history while it trains; one that returns True ends the training.

    Attributes
    ----------
    encoder_ : Encoder
        The trained encoder.
    classes_ : array or None
        The classes among the labels, in order; None without labels, and for models saved by version 0.1.
    history_ : list of dict
        The course of the training: `step`, `steps`, `loss`, and `validation_loss` where it was measured.
    channels_ : tuple of str
        Names of the channels in the order of the training signals; empty where they had none.
    rate_hz_ : float or None
        Samples a second of the training signals; None where not known.
    seed_ : int
        The seed that was used.
    card_ : Card
        The model card: settings, data and scores.

    Examples
    --------
    >>> import numpy as np
    >>> from geopatch import GeoPatch
    >>> time = np.linspace(0, 1, 64)
    >>> X = [np.sin(2 * np.pi * (1 + n % 2) * time + n) for n in range(16)]
    >>> y = ["one turn", "two turns"] * 8
    >>> GeoPatch(embedding=8).fit(X).transform(X).shape  # without labels: fixed kernels, no training
    (16, 8)

    With labels a half that is trained comes beside them, and its numbers beside theirs:

    >>> model = GeoPatch(max_steps=20, width=16, embedding=8).fit(X, y)
    >>> model.transform(X).shape
    (16, 16)
    >>> model.classes_.tolist()
    ['one turn', 'two turns']
    >>> model.history_[-1]["step"]
    20

    It stands in pipelines and grid searches:

    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(GeoPatch("paper", max_steps=2, width=16), KNeighborsClassifier(1))
    >>> search = GridSearchCV(pipeline, {"geopatch__embedding": [4, 8]}, cv=2).fit(np.asarray(X), y)
    >>> sorted(search.best_params_)
    ['geopatch__embedding']
    """

    def __init__(
        self,
        preset: str | None = None,
        *,
        random_state: int | np.random.RandomState | None = 0,
        amplitude: str | None = None,
        patch_length: int | None = None,
        max_patches: int | None = None,
        width: int | None = None,
        embedding: int | None = None,
        layers: int | None = None,
        dropout: float | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        temperature: float | None = None,
        warp: float | None = None,
        noise: float | None = None,
        robust_to: Sequence[str] | None = None,
        model: ModelConfig | None = None,
        train: TrainConfig | None = None,
        device: str = "auto",
        devices: int = 1,
        progress: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.preset = preset
        self.random_state = random_state
        self.amplitude = amplitude
        self.patch_length = patch_length
        self.max_patches = max_patches
        self.width = width
        self.embedding = embedding
        self.layers = layers
        self.dropout = dropout
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.temperature = temperature
        self.warp = warp
        self.noise = noise
        self.robust_to = robust_to
        self.model = model
        self.train = train
        self.device = device
        self.devices = devices
        self.progress = progress
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, groups: Any = None, *, resume: str | Path | None = None) -> GeoPatch:
        """Fit the encoder: fixed kernels in closed form, and by gradients the half that is trained.

        Parameters
        ----------
        X : array, list of arrays, frame or signals
            An array (N, T) or (N, T, C), arrays of unequal lengths, a pandas or polars frame, or `Signal` objects.
            NaN means not measured. Named channels are brought into the order of the first signal.
        y : array of shape (N,), optional
            Labels: windows of one label are drawn together; without labels, the views of each window.
        groups : array of shape (N,), optional
            The speaker, patient or device of each window. With labels, what is kept of level and scale is then chosen
            by searches for windows of groups that were left out, unless `amplitude` is set.
        resume : str or Path, optional
            File that keeps the state of an interrupted training until the model is saved.

        Returns
        -------
        GeoPatch
            The estimator itself.

        Raises
        ------
        ConfigError
            When a setting lies outside its range, or two settings contradict each other.
        SignalError
            When the signals differ in rate or channels, or a label is missing.
        CheckpointError
            When `resume` is the state of another training.
        """
        at_least("devices", self.devices, 1)
        model, train, seed = self._model_config(labelled=y is not None), self.train_config, seed_of(self.random_state)
        device = device_of(self.device)
        self._check_used(model)
        check_reconstruction(model, train)
        clock, surroundings = model.geometry_source == "clock", 0 if model.clock_share == 0 else model.surroundings
        data = TrainingSet.of(X, y, groups, clock=clock, surroundings=surroundings, lazy=not model.is_trained)
        if model.channels not in (1, data.windows.channels):
            raise ConfigError(
                f"model has channels={model.channels}, the signals have {data.windows.channels}; leave it out"
            )
        model = data.adapted(model)
        train = views_for(train, model)
        labels = None if data.labels is None else torch.from_numpy(data.labels)
        choices: dict[str, Any] = {}
        if self.amplitude is None and data.has_choice(model):
            with self._count("level and scale") as count:
                model, choices = data.chosen_amplitude(model, train, seed=seed, device=device, report=count)
        if data.records is not None and model.has_kernels and model.clock_share is None:
            with self._count("relative tempo") as count:
                model, chosen = data.chosen_rhythm(model, train, seed=seed, device=device, report=count)
            choices |= chosen
        scores: dict[str, Any] = {}
        team, history = None, []
        if model.is_trained:
            team = launch(self.devices, device) if self.devices > 1 else None
            fitted = self._train(data, labels, model, train, seed, device, team, resume)
            encoder, history = fitted.encoder, fitted.history
            scores = {"loss": fitted.loss, "validation_loss": fitted.validation}
            scores |= {"step": fitted.step, "steps": fitted.steps}
        else:
            encoder = Encoder(fitting_config(model, data.windows)).eval()
            encoder.learn_scale(data.windows)
        self.kernel_fit_ = None
        if model.has_kernels:
            with self._count() as count:
                self.kernel_fit_ = fit_kernels(
                    encoder, data.windows, labels, train, seed=seed, device=device, report=count
                )
        settings = {**dataclasses.asdict(train), "seed": seed}
        self.card_ = Card(settings, data.description(), scores, history=history, choices=choices)
        self.encoder_: Encoder = encoder
        self.classes_ = data.classes
        self.leads_ = team is None or team.leads  # of several processes, the one that should save
        self.resume_ = resume
        return self

    def partial_fit(self, X: Any, y: Any = None) -> GeoPatch:
        """Add windows to what the fixed kernels were fitted on; the first call is a `fit`.

        Windows that were encoded before must be encoded anew: the vectors of all windows change.

        Parameters
        ----------
        X : array, list of arrays, frame or signals
            As `fit` takes it.
        y : None
            There is nothing to learn from labels in this call.

        Returns
        -------
        GeoPatch
            The estimator itself.

        Raises
        ------
        ConfigError
            When the encoder has a trained half, which cannot take windows later; or labels are given.
        """
        if y is not None:
            raise ConfigError("partial_fit takes windows without labels; call fit with all windows and their labels")
        if not hasattr(self, "encoder_"):
            return self.fit(X)
        if self.kernel_fit_ is None or self.encoder_.config.is_trained:
            raise ConfigError("only preset='instant' takes windows later; call fit with all windows")
        signals = signals_of(X)
        check_rate(signals, self.rate_hz_)
        if not isinstance(signals, LazySignals):
            signals = [signal.arranged(self.channels_) for signal in signals]
        data = TrainingSet.of(signals, None, clock=False, lazy=True)
        encoder = copy.deepcopy(self.encoder_)  # a gallery may hold the old one
        with self._count() as count:
            self.kernel_fit_ = fit_kernels(
                encoder,
                data.windows,
                None,
                views_for(self.train_config, encoder.config),
                seed=self.seed_,
                device=device_of(self.device),
                state=self.kernel_fit_,
                report=count,
            )
        self.encoder_ = encoder
        self.card_ = dataclasses.replace(self.card_, data=data.added_to(self.card_.data))
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Embed windows.

        Parameters
        ----------
        X : array, list of arrays, frame or signals
            As `fit` takes it. Windows may have any length; named channels are matched by name.

        Returns
        -------
        array of shape (N, D)
            One unit vector a window.
        """
        return self.encode(X).embedding

    def encode(self, X: Any, *, batch_size: int = ENCODE_BATCH, between: Between | None = None) -> Encoding:
        """Embed windows and keep their tokens.

        Parameters
        ----------
        X : array, list of arrays, frame or signals
            As `fit` takes it.
        batch_size : int, default=256
            Windows encoded at a time.
        between : callable, optional
            Called with each batch of patches and the number of its first window; what it returns is encoded.

        Returns
        -------
        Encoding
            Embeddings, and tokens with their places.

        Raises
        ------
        SignalError
            When rate or channels are not those of the training signals.
        """
        return joined(list(self.encode_batches(X, batch_size=batch_size, between=between)))

    def encode_batches(
        self, X: Any, *, batch_size: int = ENCODE_BATCH, between: Between | None = None
    ) -> Iterator[Encoding]:
        """Encode batch by batch, for more windows than memory holds.

        Parameters
        ----------
        X : array, list of arrays, frame or signals
            As `fit` takes it.
        batch_size : int, default=256
            Windows encoded at a time.
        between : callable, optional
            Called with each batch of patches and the number of its first window; what it returns is encoded.

        Returns
        -------
        iterator of Encoding
            One encoding a batch.
        """
        check_is_fitted(self)
        at_least("batch_size", batch_size, 1)
        signals = signals_of(X)
        check_rate(signals, self.rate_hz_)
        if not isinstance(signals, LazySignals):
            signals = [signal.arranged(self.channels_) for signal in signals]
        device = device_of(self.device)
        if self.encoder_.level.device != device:  # looking through all parameters takes a tenth of a search
            self.encoder_.to(device)
        return encode_batches(self.encoder_, signals, device, batch_size, between, self.channels_)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write config, weights and model card into a folder.

        Parameters
        ----------
        folder : str or Path
            The folder to make.
        overwrite : bool, default=False
            Whether to replace a model that is there.

        Raises
        ------
        GeoPatchError
            When the folder is there already, or cannot be written.
        """
        check_is_fitted(self)
        save_checkpoint(self.encoder_, self.card_, folder, moments=self.kernel_fit_, overwrite=overwrite)
        if self.resume_ is not None:
            Path(self.resume_).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path | PackedCheckpoint, *, device: str = "auto") -> GeoPatch:
        """Read a model that `save` wrote.

        Parameters
        ----------
        folder : str, Path or PackedCheckpoint
            The folder of the model, or the same files as a gallery holds them.
        device : str, default="auto"
            Where to encode; see `GeoPatch`.

        Returns
        -------
        GeoPatch
            The fitted estimator.

        Raises
        ------
        CheckpointError
            When the folder holds no model, or one that is damaged or of a newer version.
        """
        encoder, card = load_checkpoint(folder)
        card, train = checked_card(card, folder)
        model = dataclasses.replace(encoder.config, **FROM_DATA)
        loaded = cls(model=model, train=train, random_state=card.train["seed"], device=device)
        loaded.encoder_, loaded.card_, loaded.leads_, loaded.resume_ = encoder, card, True, None
        loaded.kernel_fit_ = None if isinstance(folder, PackedCheckpoint) else load_moments(folder)
        labels = card.data.get("labels")
        loaded.classes_ = None if labels is None else np.asarray(labels)
        return loaded

    @classmethod
    def pretrained(cls, name: str = "general", *, channels: int = 1, device: str = "auto") -> GeoPatch:
        """A model that comes with the package: fixed kernels that know many kinds of signals, and none of yours.

        Parameters
        ----------
        name : {"general"}, default="general"
            Which model.
        channels : int, default=1
            Channels of the signals.
        device : str, default="auto"
            Where to encode; see `GeoPatch`.

        Returns
        -------
        GeoPatch
            A fitted estimator, for windows of any length and rate. `partial_fit` adds windows of your own.

        Raises
        ------
        ConfigError
            When there is no such model.

        Examples
        --------
        >>> import numpy as np
        >>> from geopatch import GeoPatch
        >>> time = np.linspace(0, 1, 200)
        >>> waves = [np.sin(2 * np.pi * turns * time) for turns in (1, 2, 3)]
        >>> GeoPatch.pretrained("general").transform(waves).shape
        (3, 128)
        """
        one_of("name", name, PRETRAINED)
        at_least("channels", channels, 1)
        model = dataclasses.replace(PRESETS["instant"], amplitude="zscore")
        loaded = cls(model=model, device=device)
        encoder = Encoder(dataclasses.replace(model, channels=channels)).eval()
        assert encoder.kernels is not None
        with torch.inference_mode():
            loaded.kernel_fit_ = from_prior(encoder.kernels)
        data: dict[str, Any] = {"windows": 0, "classes": 0, "labels": None, "lengths": [model.length] * 2}
        data |= {"rate_hz": None, "channels": [], "digest": name}
        loaded.card_ = Card({**dataclasses.asdict(loaded.train_config), "seed": 0}, data)
        loaded.encoder_, loaded.classes_, loaded.leads_, loaded.resume_ = encoder, None, True, None
        return loaded

    @property
    def model_config(self) -> ModelConfig:
        """The settings of the encoder that `fit` makes of windows with labels."""
        return self._model_config(labelled=True)

    def _model_config(self, *, labelled: bool) -> ModelConfig:
        changes = self._set(MODEL_PARAMETERS)
        if self.model is None:
            preset = self.preset or ("default" if labelled else "instant")
            one_of("preset", preset, tuple(PRESETS))
            return dataclasses.replace(PRESETS[preset], **changes)
        if self.preset is not None:
            raise ConfigError(f"preset={self.preset!r} and model={self.model} are both given; give one of them")
        return changed_config(self.model, "model", changes)

    @property
    def train_config(self) -> TrainConfig:
        """The settings of the training."""
        changes = self._set(TRAIN_PARAMETERS)
        if self.train is None:
            return TrainConfig(**{**TRAIN_PRESETS.get(self.preset or "", {}), **changes})
        return changed_config(self.train, "train", changes)

    @property
    def seed_(self) -> int:
        """The seed that was used."""
        return int(self.card_.train["seed"])

    @property
    def history_(self) -> list[HistoryRow]:
        """The course of the training; empty for models saved by version 0.1."""
        return self.card_.history

    @property
    def channels_(self) -> tuple[str, ...]:
        """Names of the channels in the order of the training signals; empty where they had none."""
        return tuple(self.card_.data["channels"])

    @property
    def rate_hz_(self) -> float | None:
        """Samples a second of the training signals; None where not known."""
        rate_hz = self.card_.data["rate_hz"]
        return None if rate_hz is None else float(rate_hz)

    @property
    def n_features_in_(self) -> int:
        """Samples in a training window, where all had as many. Windows of any other length can be encoded, too."""
        shortest, longest = self.card_.data["lengths"]
        if shortest != longest:
            raise AttributeError(f"no n_features_in_: the training windows have {shortest} to {longest} samples")
        return int(shortest)

    @property
    def _n_features_out(self) -> int:
        return self.encoder_.config.embedding_width

    def _set(self, names: Sequence[str]) -> dict[str, Any]:
        """The parameters among these that were set."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def _check_used(self, model: ModelConfig) -> None:
        """Refuse a setting of the trained half where there is none."""
        for name in () if model.is_trained else LEARNED_ONLY:
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is for the half that is trained, and fixed kernels alone (the "
                    "preset 'instant', which is the one without labels) have none; leave it out, or give labels or "
                    "preset='default'"
                )

    def _train(
        self,
        data: TrainingSet,
        labels: torch.Tensor | None,
        model: ModelConfig,
        train: TrainConfig,
        seed: int,
        device: torch.device,
        team: Team | None,
        resume: str | Path | None,
    ) -> Fitted:
        with self._report() as report:
            return fit(
                data.windows,
                labels,
                model,
                train,
                seed=seed,
                device=device,
                team=team,
                resume=None if resume is None else Path(resume),
                callbacks=[*self.callbacks, *([] if report is None else [report])],
            )

    def _count(self, what: str = "fixed kernels") -> AbstractContextManager[Callable[[int], None] | None]:
        return counting_bar(what) if self.progress else nullcontext(None)

    def _report(self) -> AbstractContextManager[Callback | None]:
        return training_bar("training") if self.progress else nullcontext(None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
