"""Write docs/scores.md and its figures, and the tables of README.md and docs/gallery.md, from the rows in results/."""

from __future__ import annotations

from collections.abc import Sequence

from distortions import DEVELOPMENT, table
from front_page import ROOT, class_sentence, headline_table, of, write_pages
from voices_train import table as voice_table

from geopatch import plot
from geopatch.data.recording import TARGETS
from geopatch.evaluate.rows import Row, Summary, read_rows
from geopatch.protocol import MEANING
from geopatch_lab.plot import noise_curve
from geopatch_lab.score_tables import class_table, method_table, provenance, results_page, scorer_table

DOCS = ROOT / "docs"
PROTOCOLS = tuple(MEANING)
SNR_DB = (24, 18, 12, 6, 0, -6)

INTRODUCTION = """# Results

Made by `runs/report.py` from the rows in `results/`; each row has its protocol, config, seed and versions. *Warped*:
queries are read at t + 0.1 T sin(2 pi t / T), the gallery stays as it is. That is one fixed warp, of the family from
which GeoPatch's training draws its views; the baselines see none. *Fused*: the 50 best by cosine, ranked again by
cosine + the mean of MaxSim both ways; *maxsim* and *bridge* rank the same 50. Means over seeds.
"""

LEARNED = """## The learned half in one table

Fused, means over three seeds. In brackets, where classes are imbalanced: the mean over windows, most of which are
normal beats; the number before it is the mean over classes, and the one to look at. Both voices of ARCTIC trained.
"""

ARCHIVE = """## Archive sets

`runs/archive.sh`. Each encoder is trained on the archive's train split; every window of the test split is a query
against that split, itself left out. Fit is the mean wall time of one training: for `default` one thread on two shared
cores that had other work to do as well, for `paper` one of 14 trainings side by side on one GPU.

Read these as development figures. The architecture and the losses were chosen by cross-validation inside train splits
(see method.md), but the number of steps was not: these test splits were scored at 400 and at 800 steps, two sets fell
short of the mAP aimed at, and the default was then raised to 1200. A cross-validation made afterwards finds no use in
that (method.md has it): 800 steps were better there by 0.4 points. Both scorers are shown; neither was picked for a
set.
"""

ECG = """## ECG

`runs/ecg.py`, on a GPU. MITDB: trained on the 22 records of DS1 (600 windows of 2 s each), tested on 200 windows of
each of the 22 records of DS2, spread evenly, so that none overlap. Nothing was chosen on DS2. (Record 201 in DS1 and
202 in DS2 are of one patient, as in the lists that the field uses: of the 22 patients searched one has trained. Record
114 of DS1 has its leads in the other order, V5 first, and trained so.) Where classes are imbalanced, the mean over
classes stands below the mean over queries; 81 % of the windows have only normal beats, so that mean is the one to
look at: across records it says that supraventricular and fusion beats of another patient are not found.
"""

PENALISED = """**Strict and penalised.** The paper's Strict keeps the candidates of the query's own record in the
ranking and counts them as wrong. Under that reading the first hit is nearly always "wrong" for any scorer that works,
because the nearest windows of a heart are its own: R@1 falls to a few percent and says how strongly a scorer prefers
the same record, not whether it finds the same beat in another patient. Our *strict-cross-record* removes those
candidates and asks the second question; our *penalised-cross-record* is the paper's reading. MaxSim does not collapse
when same-record windows are removed; it does when they are counted as wrong, and so does cosine.
"""

NSTDB = """### Noise

NSTDB: noisy windows of patients 118 and 119 look for their patient among clean windows of 24 patients, none of which
trained (training: DS1 without 118 and 119). The clean copy of the query's own stretch is no candidate. Signals are
band-passed to 0.5-40 Hz, because the level of NSTDB is not that of MITDB: its converter has another zero. (A first run
without the filter showed it: R@1 of 119 was .03 at 24 dB; the band was set once and not tuned.) At 0 dB the electrode
noise is as strong as the heart, and what remains is chance (1 of 24).

![R@1 and mAP over the signal-to-noise ratio](nstdb.png)
"""

NSRDB = """### Healthy hearts

NSRDB, 18 subjects, of which our copy has the first minute of one lead: the first half minute of each trains, the second
is searched. Windows overlap by half, so *standard* may find the query's own second half.
"""

SPEECH = """## Speech

CMU ARCTIC, two speakers, 593 prompts, 40 log-mel bands a hundred times a second (`runs/speech.py`). *prompt*: find the
sentence among 296 utterances as the other speaker says it; the 148 test prompts were in no training, but both speakers
were; what another voice gets stands below. *speaker*: find the voice. The baselines search by prompt on
the same frames, with amplitude kept and z-scored: DTW without a band and in a band of 10 % (which just holds the warp),
MiniRocket's features as they are, and as ridge scores of the training prompts.
"""

VOICES = """## A voice never heard

`runs/voices.py` and `runs/voices_train.py`, on a GPU. 148 sentences of CMU ARCTIC that did not train, each asked for by
one voice: the two real ones (bdl, slt) and nine synthesised ones, none of which trained. R@1, clean / warped, every
candidate scored; 64 tokens, 50 frames a second, frames normalised over the utterance. *Labels*: trained on the other
445 sentences by both real voices, or by one of them alone ("bdl alone": then slt is a voice never heard, and the other
way round). *No labels*: nothing is trained. *Learned tokens*: ranked by what the network makes of each patch, not by
the fixed tokens that sound has. *DTW*: distance over the root of both lengths, without a band; *normalised* and
*decibels* are its frames, normalised being the best of three on the sentences of validation; in a band of 10 % it was
run on three voices alone. espeak-us-f2, flite-kal16 and festival-slt (a copy of slt) were looked at while choosing.
"""

AMONG = {
    "others": "Among the same sentences by the real voices other than the query's (296; 148 for a real voice):",
    "all": "With the query's own voice among them, where the same voice tempts and the same sentence is right:",
}
SHOWN_VOICES = (
    *(("no labels", "aligned"), ("no labels, bdl alone", "aligned"), ("no labels, slt alone", "aligned")),
    *(("labels", "aligned"), ("labels, bdl alone", "aligned"), ("labels, slt alone", "aligned")),
    *(("labels, learned tokens", "aligned"), ("labels", "cosine"), ("labels, frames of version 0.1", "fused")),
    *(("dtw, normalised", "own"), ("dtw, decibels", "own")),
)

DISTORTIONS = """## Under distortions of the query

`runs/distortions.py`: R@1 / mAP on 16 development sets, three seeds, the whole test split each; the gallery stays
clean. *instant* is fitted without labels, *default* with them. Choices were made on train splits, but an early
prototype looked at these test splits, so read this as development figures. Columns: the fixed warp of above; six
random speeds; a random 80 % of the window stretched to its length; the window in 80 % of its time; a shift by a tenth;
white noise of a fifth of the spread; half a spread of slow sine; gain .6 to 1.6; 15 % of the window bridged by a line.
"""

PEER = """DTW without a band, each of its two treatments of amplitude and the better one by set, beside ours on the same
sets:
"""
BAND = """DTW in a band of 10 %, on the sets on which it was run:
"""


def distortion_part(rows: Sequence[Row]) -> list[str]:
    """All development sets; then those that DTW has, with it."""
    ours = [row for row in rows if not row.preset.startswith("dtw")]
    parts = [DISTORTIONS, table(ours, DEVELOPMENT)]
    for name, text in (("dtw", PEER), ("dtw-10", BAND)):
        shared = [data for data in DEVELOPMENT if of(rows, data=data, preset=f"{name}, keep")]
        peers = [row for row in rows if row.preset.startswith(f"{name},")]
        parts += [text, table([row for row in ours if row.scorer == "fused"] + peers, shared)]
    return parts


def voices_part(rows: Sequence[Row]) -> list[str]:
    """By voice: among other voices, and with the query's own."""
    shown = [row for preset, scorer in SHOWN_VOICES for row in of(rows, preset=preset, scorer=scorer)]
    tables = [[text, voice_table(shown, "test", among)] for among, text in AMONG.items()]
    return [VOICES, *(part for pair in tables for part in pair)]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """By target and protocol, as they are listed."""
    return sorted(rows, key=lambda row: (row.preset, TARGETS.index(row.target), PROTOCOLS.index(row.protocol)))


def ecg_part(rows: Sequence[Row]) -> list[str]:
    mitdb = ordered(of(rows, data="mitdb"))
    default = of(mitdb, preset="default")
    beats = [row for row in of(default, target="beat", stress="clean", scorer="cosine") if row.protocol in SHOWN]
    clocks = [row for row in of(mitdb, stress="clean") if row.target in ("subject", "beat") and row.protocol in SHOWN]
    return [
        ECG,
        scorer_table(of(default, stress="clean"), "target, protocol: R@1 / mAP", target_and_protocol),
        PENALISED,
        "Beats by class:",
        class_table(beats),
        "Warped queries, clean gallery:",
        scorer_table(of(default, stress="warped queries"), "target, protocol: R@1 / mAP", target_and_protocol),
        "Geometry from the signal (`default`) and from the clock of the annotated beats:",
        scorer_table(clocks, "geometry, target, protocol", lambda line: f"{line.preset}: {target_and_protocol(line)}"),
        NSTDB,
        scorer_table([row for row in rows if row.data.startswith("nstdb")], "queries", lambda line: line.data),
        NSRDB,
        scorer_table(of(rows, data="nsrdb"), "protocol, queries", lambda line: f"{line.protocol}, {line.stress}"),
        provenance(rows),
    ]


SHOWN = ("standard", "strict-cross-record")


def target_and_protocol(line: Summary) -> str:
    return f"{line.target}, {line.protocol}"


def noise_figure(rows: Sequence[Row]) -> None:
    by_snr = {float(snr): of(rows, data=f"nstdb, {snr} dB") for snr in SNR_DB}
    title = "A patient under noise, looked for among clean windows of 24 (dashed: no noise; bands: seeds)"
    plot.save_all(noise_curve(by_snr, of(rows, data="nstdb, no noise"), title), DOCS / "nstdb")


if __name__ == "__main__":
    archive, ecg, speech = (read_rows(ROOT / "results" / f"{name}.jsonl") for name in ("archive", "ecg", "speech"))
    noise_figure(ecg)
    prompts, voices = of(speech, target="prompt"), of(speech, target="speaker")
    spoken = ["By prompt:", method_table(prompts), "By speaker:", method_table(voices)]
    distorted = distortion_part(read_rows(ROOT / "results" / "distortions.jsonl.gz"))
    learned = [LEARNED, headline_table([*speech, *ecg]), class_sentence(ecg)]
    parts = [INTRODUCTION, *distorted, *learned, ARCHIVE, results_page(archive), *ecg_part(ecg)]
    parts += [SPEECH, *spoken, provenance(speech)]
    parts += voices_part(read_rows(ROOT / "results" / "voices.jsonl.gz"))
    (DOCS / "scores.md").write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    write_pages()
