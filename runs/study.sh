#!/usr/bin/env bash
# The whole study: trainings, DTW and theorems on one GPU, what needs aeon (catch22, MultiRocket-Hydra) on a CPU, then the
# page.
# The GPU machine needs numpy, torch and scikit-learn alone; give it cache/study and study/jobs.jsonl.
# Every step can be given again after a kill: it goes on where it stood.
set -euo pipefail

case "${1:?expected prepare, gpu, cpu, stability or report}" in
  prepare)  # writes the sets (40 MB) and the list of jobs
    geopatch reproduce --prepare --out study
    ;;
  gpu)  # on the GPU machine; the theorems are among its jobs
    PYTHONPATH=src python3 -m geopatch_lab.study.run --folder study/gpu --packs cache/study --jobs study/jobs.jsonl \
      --needs torch --device cuda --workers "${WORKERS:-14}" ${MINUTES:+--minutes "$MINUTES"}
    ;;
  cpu)
    python -m geopatch_lab.study.run --folder study/cpu --packs cache/study --jobs study/jobs.jsonl \
      --needs aeon --device cpu --workers "${WORKERS:-2}" ${MINUTES:+--minutes "$MINUTES"}
    ;;
  stability)  # the theorems alone, on whatever this machine has
    PYTHONPATH=src python3 -m geopatch_lab.study.run --folder study/stability --packs cache/study --jobs study/jobs.jsonl \
      --part stability --device auto --workers "${WORKERS:-2}" ${MINUTES:+--minutes "$MINUTES"}
    ;;
  report)  # costs are measured here; docs/RESULTS.md is made from the committed rows alone
    geopatch reproduce --part complexity --merge study/gpu --merge study/cpu --out study
    cp study/study.jsonl.gz study/study-cost.json study/stability.jsonl results/
    python -m geopatch_lab.study.report --rows results/study.jsonl.gz --cost results/study-cost.json \
      --stability results/stability.jsonl --page docs/RESULTS.md
    ;;
  *)
    echo "expected prepare, gpu, cpu, stability or report, got $1" >&2
    exit 2
    ;;
esac
