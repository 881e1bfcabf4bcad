"""A gallery brought to what the files of a folder hold: what is new or changed is read, cut, encoded and written.

The gallery keeps the digest of each file. A file counts as taken when all of its windows are written, so that a run
that was killed goes on where it stood, and ends with what a run that was not killed ends with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geopatch.data.front_end import CARD_FIELD, FrontEnd
from geopatch.data.metadata import MetadataTable, PathPattern
from geopatch.data.reading import InputFile, list_files
from geopatch.engines.place import Place
from geopatch.errors import ConfigError, DataError, MissingExtraError, NotFoundError
from geopatch.gallery import Gallery
from geopatch.gallery.facts import FILE, FileFacts
from geopatch.indexing.held import held_files, is_held
from geopatch.indexing.settings import IndexReport, IndexSettings, Listener
from geopatch.indexing.survey import OVERLAP, Reader, Survey, audio_of, survey_files
from geopatch.indexing.taking import Taker
from geopatch.memory import give_back
from geopatch.read_options import ReadOptions

if TYPE_CHECKING:
    from distributed import Client

    from geopatch.estimator import GeoPatch

SUFFIX = ".gallery"  # of the place beside a folder, where none is given


def index(
    paths: Any,
    place: Place | None = None,
    *,
    window_s: float | None = None,
    shortest_s: float | None = None,
    longest_s: float | None = None,
    whole: bool = False,
    overlap: float | None = None,
    band_hz: tuple[float, float] | None = None,
    anchors: str | None = None,
    metadata: str | Path | None = None,
    metadata_from_path: str | None = None,
    labels: str | None = None,
    time: str | None = None,
    id: str | None = None,
    channels: Sequence[str] | None = None,
    units: Mapping[str, str] | Sequence[str] | None = None,
    rate_hz: float | None = None,
    prune: bool = False,
    cluster: str | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Gallery:
    """Make a gallery of the recordings in files, or bring one to what is new or changed in them.

    A model is fitted on a sample of the windows, without labels, when the gallery is made. Given again, only files
    that are new or have other bytes are read; an interrupted call is taken up where it stopped.

    Parameters
    ----------
    paths : path, sequence of paths, frame, Collection or signals
        A folder with everything below it, or files; `docs/data.md` lists the formats. Or recordings in memory: a frame
        as `geopatch.read` takes it, what it returns, or signals.
    place : path or str, optional
        The gallery, as in `Gallery.create`; by default beside the folder, its name with ``.gallery`` behind it.
    window_s : float, optional
        Seconds of a window; by default a length that the data suggest, and then as the gallery has it.
    shortest_s, longest_s : float, optional
        Seconds of the shortest and of the longest windows: between them there are windows at several lengths, so that
        what is searched may be as short and as long. By default all windows have one length.
    whole : bool, default=False
        Whether each recording is one window.
    overlap : float, optional
        The share of a window that the next one repeats; by default 0.5, and then as the gallery has it.
    band_hz : tuple of float, optional
        Low and high end of the band that recordings, and queries, are filtered to.
    anchors : {"annotated", "detected", "auto", "none"}, optional
        Where the marks of a clock come from, by which rhythm counts beside shape: those that files bring (the default,
        or as the gallery has it), or beats, onsets and peaks that are detected, with "auto" where a file brings none.
    metadata : path, optional
        A table with a row for each recording, found by the recording's name or its file's.
    metadata_from_path : str, optional
        Fields in the names of folders and files, such as ``"{site}/{subject}/*"``.
    labels : str, optional
        The metadata that says what is alike: a half that is trained on it comes beside the fixed kernels.
    time : str, optional
        The column of times, where its name does not say so; "none": there is no such.
    id : str, optional
        The column that names the recording of each row; "none": there is no such.
    channels : sequence of str, optional
        The channels to read, in this order; by default all.
    units : mapping or sequence of str, optional
        The unit of each channel, and of the time column.
    rate_hz : float, optional
        Samples a second, for files that do not say it.
    prune : bool, default=False
        Whether to remove the windows of files that are gone.
    cluster : str, optional
        The address of a Dask scheduler, such as ``tcp://host:8786``: its workers read the files, where this process
        does, and encode them; this process fits and writes. The gallery is the same. By default this process does all.
    device : str, default="auto"
        Where to fit and encode: "cpu", "cuda", "cuda:N", or "auto".
    progress : bool, default=False
        Whether to say on stderr what was understood and how it goes.

    Returns
    -------
    Gallery
        Open for reading; `Gallery.open(place)` opens it for changes.

    Raises
    ------
    DataError
        When no file can be used. With `progress`, single files that cannot are named on stderr; the others are taken.
    ConfigError
        When settings contradict each other or the gallery that is there.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     walks = Path(folder, "walks")
    ...     walks.mkdir()
    ...     for n in range(3):
    ...         rows = "\\n".join(f"{t / 50:.2f},{np.sin(t / 5 + n):.4f}" for t in range(600))
    ...         _ = (walks / f"walk{n}.csv").write_text(f"time,x\\n{rows}\\n")
    ...     with index(walks, window_s=2) as gallery:
    ...         len(gallery), len(gallery.search(gallery.span("walk1", 3.0, 5.0), k=3))
    (33, 3)
    """
    from geopatch.progress import indexing_bar

    settings = IndexSettings(
        reading=ReadOptions(time, id, channels and tuple(channels), units, rate_hz),  # type: ignore[arg-type]
        window_s=window_s,
        shortest_s=shortest_s,
        longest_s=longest_s,
        whole=whole,
        overlap=overlap,
        band_hz=band_hz,
        anchors=anchors,
        table=None if metadata is None else MetadataTable.read(metadata),
        pattern=None if metadata_from_path is None else PathPattern(metadata_from_path),
        labels=labels,
        prune=prune,
        device=device,
        cluster=cluster,
    )
    target = place if place is not None else _beside(paths)
    with indexing_bar(quiet=not progress) as bar:
        index_files(paths, target, settings, Listener(bar.say, bar.say, bar.update), progress=progress)
    return Gallery.open(target, read_only=True, device=device)


def index_files(
    paths: Any, place: Place, settings: IndexSettings, listener: Listener, *, progress: bool = False
) -> IndexReport:
    """Bring a gallery to what files hold, and say what became of each."""
    report = IndexReport(str(place))

    def refuse(line: str) -> None:
        report.refused.append(line)
        listener.refuse(line)

    telling = replace(listener, refuse=refuse)
    if is_held(paths):
        files = held_files(paths, settings.reading)
    else:
        files = list_files(paths, lambda _file, error: refuse(str(error)))
    if not files:
        raise DataError("there is no file to index; give a folder of recordings")
    reader = Reader(settings, audio_of(files))
    with _connected(settings.cluster) as client, _opened(place, files, reader, telling, progress) as gallery:
        front = _front_end(gallery)
        _check_settings(settings, front)
        reader.audio = front.audio
        taker = _taker(client, gallery, reader, front, telling, report)
        known = _known(gallery)
        taker.take(files, known)
        _prune(gallery, known, files, settings.prune, telling, report)
        if report.written or report.removed:
            _optimize(gallery, telling)
        report.windows = len(gallery)
    return report


def _connected(cluster: str | None) -> AbstractContextManager[Client | None]:
    """A client of the cluster, before there is any work; None where there is none."""
    if cluster is None:
        return nullcontext()
    from geopatch.indexing.cluster import connected

    return connected(cluster)


def _taker(
    client: Client | None, gallery: Gallery, reader: Reader, front: FrontEnd, listener: Listener, report: IndexReport
) -> Taker:
    if client is None:
        return Taker(gallery, reader, front, listener, report)
    from geopatch.indexing.cluster import ClusterTaker

    reader.kept.clear()  # workers read files again
    return ClusterTaker(gallery, reader, front, listener, report, client=client)


def _beside(paths: Any) -> Path:
    if isinstance(paths, (str, Path)) and Path(paths).is_dir():
        return Path(paths).resolve().with_name(f"{Path(paths).resolve().name}{SUFFIX}")
    raise ConfigError("say where the gallery goes: a place is only chosen for one folder")


def _opened(place: Place, files: Sequence[InputFile], reader: Reader, listener: Listener, progress: bool) -> Gallery:
    """The gallery that is there, or a new one with a model that is fitted on a sample of the files."""
    try:
        return Gallery.open(place, device=reader.settings.device)
    except NotFoundError:
        survey = survey_files(files, reader, listener)
    return Gallery.create(place, _fitted(survey, reader.settings, listener, progress))


def _fitted(survey: Survey, settings: IndexSettings, listener: Listener, progress: bool) -> GeoPatch:
    from geopatch.estimator import GeoPatch

    kind = "default, on labels," if settings.labels else "instant"
    listener.say(f"fitting {kind} on {len(survey.windows)} windows")
    preset = "default" if settings.labels else "instant"
    amplitude = _amplitude(survey.front_end, settings)
    model = GeoPatch(preset, amplitude=amplitude, device=settings.device, progress=progress)
    model.fit(survey.windows, survey.labels)
    give_back()  # a fit takes more than what follows
    data = {**model.card_.data, CARD_FIELD: survey.front_end.as_dict()}
    model.card_ = replace(model.card_, data=data)
    return model


def _amplitude(front: FrontEnd, settings: IndexSettings) -> str | None:
    """Each window at mean 0 and spread 1 where there are several lengths: the level of a short one says little.

    None leaves it to the preset. Sound is normalised already.
    """
    return "zscore" if len(front.levels_s) > 1 and front.audio is None and settings.labels is None else None


def _front_end(gallery: Gallery) -> FrontEnd:
    """That of its model; where it has none, windows as long as those that the model was fitted on."""
    card = gallery.model_card()
    if card is None:
        raise ConfigError("the gallery holds no model to encode recordings with; index into a new one")
    fields = card.get(CARD_FIELD)
    about = gallery.about
    return FrontEnd(about.length / about.clock_hz) if fields is None else FrontEnd.from_dict(fields)


def _check_settings(settings: IndexSettings, front: FrontEnd) -> None:
    """Refuse settings that the gallery was not made with."""
    has = {
        "window_s": front.window_s,
        "shortest_s": front.shortest_s or front.window_s,
        "longest_s": front.longest_s or front.window_s,
        "overlap": front.overlap or OVERLAP,
        "band_hz": front.band_hz,
        "anchors": front.anchors,
    }
    for name, value in has.items():
        wanted = getattr(settings, name)
        if wanted is not None and wanted != value:
            raise ConfigError(f"{name} is {value} in this gallery, got {wanted}; leave it out, or make another gallery")
    if settings.whole and front.window_s is not None:
        raise ConfigError(f"this gallery has windows of {front.window_s:g} s; leave out whole, or make another gallery")


def _known(gallery: Gallery) -> dict[str, FileFacts]:
    return {name: FileFacts.from_text(text) for name, text in gallery.engine.documents(FILE).items()}


def _prune(
    gallery: Gallery,
    known: Mapping[str, FileFacts],
    files: Sequence[InputFile],
    prune: bool,
    listener: Listener,
    report: IndexReport,
) -> None:
    """Remove what came from files that are not there any more, or say that they are gone."""
    there = {file.id for file in files}
    gone = [name for name, facts in known.items() if name not in there and not Path(facts.path).exists()]
    report.gone = gone
    if not prune:
        if gone:
            plural = "s that the gallery was made of are" if len(gone) > 1 else " that the gallery was made of is"
            listener.say(f"{len(gone)} file{plural} gone ({', '.join(gone[:3])}); --prune removes what came from there")
        return
    for name in gone:
        report.removed += gallery.remove(record=list(known[name].records), missing="ignore")
        gallery.engine.write_documents(FILE, {name: None})


def _optimize(gallery: Gallery, listener: Listener) -> None:
    try:
        gallery.optimize()
    except MissingExtraError as error:
        listener.say(f"no index was built, searches compare all windows: {error}")
