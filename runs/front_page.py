"""The tables of README.md and docs/gallery.md, made from the rows in results/; `runs/report.py` writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from voices import DEVELOPMENT, VOICES

from geopatch.evaluate.rows import CLASS_MEAN, Row, Summary, read_rows, summarise
from geopatch_lab.study.ablations import FULL, INSTANT
from geopatch_lab.study.compare import difference
from geopatch_lab.study.leads import LEADER
from geopatch_lab.study.scores import WARPED, StudyScores
from geopatch_lab.study.sets import UNSEEN
from geopatch_lab.study.tables import POOL_CONTESTANTS, markdown, plain, wide

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
R1 = "recall@1"
STRESSES = ("clean", "warped queries")


@dataclass(frozen=True)
class Line:
    """A line of the first table: what is searched, who trained, and which rows it is made from."""

    what: str
    trained: str
    rows: Mapping[str, object]
    methods: Sequence[str] = ("default",)  # of several, each cell shows the best
    scorer: str = "fused"


ARCTIC = {"data": "arctic", "target": "prompt", "protocol": "standard"}
MITDB: dict[str, object] = {"data": "mitdb"}
DS1 = "22 other records (DS1); the patient of record 202 trained as 201"
HEADLINES = (
    Line(
        "**same sentence, other voice**: 296 utterances of 148 sentences that did not train (CMU ARCTIC)",
        "the same two voices, in 445 other sentences",
        ARCTIC,
    ),
    Line("- DTW, no band", "nobody: nothing is learned", ARCTIC, ("dtw, keep", "dtw, zscore"), "own"),
    Line("- DTW, 10 % band", "nobody", ARCTIC, ("dtw-10, keep", "dtw-10, zscore"), "own"),
    Line(
        "- MiniRocket + ridge",
        "as GeoPatch, without warped copies",
        ARCTIC,
        ("minirocket-ridge, keep", "minirocket-ridge, zscore"),
        "own",
    ),
    Line(
        "**same patient**, of 22 (MITDB, records of DS2, windows of 2 s)",
        DS1,
        {**MITDB, "target": "subject", "protocol": "standard"},
    ),
    Line(
        "**same kind of beat**, in any record",
        "the same 22 records",
        {**MITDB, "target": "beat", "protocol": "standard"},
    ),
    Line(
        "**same kind of beat, in another patient's record**",
        "the same 22 records",
        {**MITDB, "target": "beat", "protocol": "strict-cross-record"},
    ),
)


def of(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def headline_table(rows: Sequence[Row]) -> str:
    """R@1 of each line; where classes are imbalanced the mean over classes, behind it that over queries."""
    lines = [[line.what, line.trained, *(_best(rows, line, stress) for stress in STRESSES)] for line in HEADLINES]
    return markdown(["first hit right (R@1)", "who trained", "clean", "warped"], lines)


def _best(rows: Sequence[Row], line: Line, stress: str) -> str:
    summaries = [
        summary
        for method in line.methods
        for summary in summarise(of(rows, **line.rows, preset=method, scorer=line.scorer, stress=stress))
    ]
    if not summaries:
        raise LookupError(f"no rows for {line.what!r}, {stress}: {line.methods}, {dict(line.rows)}")
    return headline(max(summaries, key=lambda summary: summary.scores[R1]))


def headline(summary: Summary) -> str:
    over_queries = share(summary.scores[R1])
    if not summary.imbalanced:
        return over_queries
    return f"{share(summary.scores[f'{CLASS_MEAN}{R1}'])} ({over_queries})"


def share(value: float) -> str:
    """.963, and 1.000."""
    return f"{value:.3f}".removeprefix("0")


def class_sentence(rows: Sequence[Row]) -> str:
    """R@1 of each class of beat across records."""
    wanted = {**HEADLINES[-1].rows, "preset": "default", "scorer": "fused", "stress": "clean"}
    (summary,) = summarise(of(rows, **wanted))
    classes = [f"{label} {share(values[R1])} ({values['queries']:.0f})" for label, values in summary.per_class.items()]
    return f"In another patient's record, by class (windows searched by): {', '.join(classes)}."


RIVALS = {"minirocket-ridge": "MiniRocket + ridge", "dtw-10": "DTW, 10 % band", "euclidean": "Euclidean"}


TOGETHER = (  # title, needs labels, method of the study, scorer
    ("**GeoPatch, no labels**", "", INSTANT, "fused"),
    ("DTW, no band", "", "dtw", "own"),
    ("DTW, 10 % band", "", "dtw-10", "own"),
    ("MiniRocket features", "", "minirocket", "own"),
    ("**GeoPatch, labels**", "yes", LEADER, "fused"),
    ("MiniRocket + ridge", "yes", "minirocket-ridge", "own"),
    ("InceptionTime", "yes", "inceptiontime", "own"),
)
COLUMNS = {
    "UEA mean": "12 archive sets, mean",
    "mitdb": "same patient, of 22 (MITDB)",
    "nsrdb": "same subject, of 18 (NSRDB)",
}
VOICE = "same sentence, by a voice never heard"
VOICE_ROWS = {  # method of the study: what the rows of voices call it, and their scorer
    INSTANT: ("no labels", "aligned"),
    LEADER: ("labels", "aligned"),
    "dtw": ("dtw, normalised", "own"),
}


def together_table(rows: Sequence[Row], voices: Sequence[Row]) -> str:
    """R@1 of ours and of what a user would pick instead, clean / warped, as the study and the voices have them."""
    scores = StudyScores.of(rows)
    lines = []
    for title, labels, method, scorer in TOGETHER:
        pairs = [
            [scores.column(column, method, scorer=scorer, stress=stress) for stress in ("clean", WARPED)]
            for column in COLUMNS
        ]
        pairs.append([never_heard(voices, *VOICE_ROWS.get(method, ("", "")), stress) for stress in STRESSES])
        lines.append(
            [title, labels, *(" / ".join("-" if one is None else share(one) for one in pair) for pair in pairs)]
        )
    return markdown(["first hit right (R@1), clean / warped", "labels", *COLUMNS.values(), VOICE], lines)


def never_heard(rows: Sequence[Row], preset: str, scorer: str, stress: str) -> float | None:
    """R@1, mean over the voices that neither trained nor were looked at while choosing."""
    chosen = of(rows, preset=preset, scorer=scorer, stress=stress)
    names = {f"test {voice} among others" for voice in VOICES if voice not in DEVELOPMENT}
    by_voice = [[row.scores[R1] for row in chosen if row.data == name] for name in sorted(names)]
    return mean(mean(values) for values in by_voice) if all(by_voice) else None


def difference_table(rows: Sequence[Row]) -> str:
    """The learned half, fused, less each rival over the pool, in points of R@1."""
    scores = StudyScores.of(rows)
    tables = [wide(scores, UNSEEN, POOL_CONTESTANTS, stress) for stress in ("clean", WARPED)]
    lines = [[name, *(_points(table, rival) for table in tables)] for rival, name in RIVALS.items()]
    return markdown(["R@1 of the learned half (fused) less that of", "clean", "warped"], lines)


def _points(table: Mapping[str, Mapping[str, float]], rival: str) -> str:
    duel = difference(table, plain(FULL, "fused"), rival)
    assert duel is not None, rival
    return f"{100 * duel.mean:+.1f} points [{100 * duel.low:+.1f}, {100 * duel.high:+.1f}]"


def short_training(rows: Sequence[Row]) -> str:
    """GeoPatch and DTW without a band on ARCTIC, as the study has them."""
    cells = {
        (name, stress): share(summarise(of(rows, **ARCTIC, preset=preset, scorer=scorer, stress=stress))[0].scores[R1])
        for name, preset, scorer in (("ours", FULL, "fused"), ("dtw", "dtw, zscore", "own"))
        for stress in STRESSES
    }
    ours, dtw = ([cells[name, stress] for stress in STRESSES] for name in ("ours", "dtw"))
    return (
        f"On ARCTIC (that training, 150 sentences of both voices, 50 frames a second) the learned half has {ours[0]} "
        f"clean and {ours[1]} warped, DTW without a band {dtw[0]} and {dtw[1]}."
    )


TEMPOS = "fused, `--tempos`"


@dataclass(frozen=True)
class GalleryScores:
    """R@1 in a gallery of all windows: by protocol, stress and scorer."""

    cells: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> GalleryScores:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = cls()
        for row in rows:
            if row["part"] == "search":
                column = TEMPOS if row.get("tempos") else row["scorer"]
                found.cells[row["protocol"], row["stress"], column] = row
        return found

    def table(self) -> str:
        """A line for each protocol and stress: the mean over classes, behind it that over queries."""
        columns = list(dict.fromkeys(column for _, _, column in self.cells))
        lines = []
        for protocol in dict.fromkeys(protocol for protocol, _, _ in self.cells):
            for stress, name in zip(STRESSES, ("clean", "warped"), strict=True):
                rows = [self.cells[protocol, stress, column] for column in columns]
                cells = [f"{share(row[f'{CLASS_MEAN}{R1}'])} ({share(_exact(row))})" for row in rows]
                lines.append([protocol if name == "clean" else "", name, *cells])
        return markdown(["protocol", "queries", *columns], lines)

    def tempo_sentence(self) -> str:
        """What a warp costs and what searching at other tempos brings back: fused, in means over classes."""
        kept = []
        for protocol in ("standard", "strict-cross-record"):
            clean, warped, tempos = (
                self.cells[protocol, stress, column][f"{CLASS_MEAN}{R1}"]
                for stress, column in ((STRESSES[0], "fused"), (STRESSES[1], "fused"), (STRESSES[1], TEMPOS))
            )
            kept.append((f"{100 * warped / clean:.0f} %", f"{100 * tempos / clean:.0f} %"))
        (warped, tempos), (warped_across, tempos_across) = kept
        return (
            f"By `fused`, warped queries keep {warped} of the clean class mean ({warped_across} across records), and "
            f"{tempos} when searched at other tempos too ({tempos_across})."
        )


def _exact(row: Mapping[str, Any]) -> float:
    """R@1, which the rows keep to four digits, from the whole number of queries that were right."""
    return float(round(row[R1] * row["queries"]) / row["queries"])


def parts() -> dict[str, str]:
    """What stands between the marks of each name."""
    study = read_rows(RESULTS / "study.jsonl.gz")
    gallery = GalleryScores.read(RESULTS / "gallery.jsonl")
    return {
        "together": together_table(study, read_rows(RESULTS / "voices.jsonl.gz")),
        "differences": f"{difference_table(study)}\n\n{short_training(study)}",
        "gallery": f"{gallery.table()}\n\n{gallery.tempo_sentence()}",
    }


MARKED = re.compile(r"(<!-- (\w+):begin[^>]*-->\n).*?(\n<!-- \2:end -->)", re.DOTALL)


def filled(text: str, made: Mapping[str, str]) -> str:
    """A page with the tables between its marks made anew."""
    return MARKED.sub(lambda mark: f"{mark[1]}{made[mark[2]]}{mark[3]}", text)


PAGES = (ROOT / "README.md", ROOT / "docs" / "gallery.md")


def write_pages() -> None:
    made = parts()
    for path in PAGES:
        path.write_text(filled(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
