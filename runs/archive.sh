#!/usr/bin/env bash
# Retrieval on seven archive sets: train on the train split, seeds 0-2, every test window a query against the test split.
# Usage: GEOPATCH_DATA=folder-with-uea-and-ucr runs/archive.sh [preset] [device] [seeds]
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/geopatch evaluate UWaveGestureLibrary Handwriting NATOPS OSULeaf ArticularyWordRecognition Epilepsy BasicMotions \
  --preset "${1:-default}" --device "${2:-cpu}" --seeds "${3:-0-2}" --rows results/archive.jsonl
.venv/bin/python runs/report.py
