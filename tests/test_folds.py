"""Folds that leave groups out: what is judged was not trained on."""

from __future__ import annotations

import pytest
import torch

from geopatch.train.folds import class_mean, group_folds, unseen_folds

GROUPS = torch.arange(8).repeat_interleave(20)


@pytest.mark.parametrize("seed", range(3))
def test_unseen_groups_ask_and_are_searched(seed: int) -> None:
    labels = torch.arange(160) % 3
    folds = list(unseen_folds(labels, GROUPS, seed))
    asking = torch.cat([fold.queries for fold in folds])
    assert (GROUPS[asking].bincount() > 0).all(), "every group asks"
    for fold in folds:
        searched = torch.cat([fold.queries, fold.candidates])
        assert not torch.isin(GROUPS[searched], GROUPS[fold.fitting]).any()
        assert torch.isin(fold.train, fold.fitting).all()
        assert not (fold.allowed & (GROUPS[fold.queries][:, None] == GROUPS[fold.candidates])).any()
        assert (fold.right <= fold.allowed).all()
        assert fold.right.any(1).all()


def test_rare_classes_ask_as_often_as_others() -> None:
    labels = (torch.arange(160) % 10 == 0).long()
    for fold in unseen_folds(labels, GROUPS, 0):
        assert (labels[fold.queries] == 1).sum() == (labels[~torch.isin(GROUPS, GROUPS[fold.fitting])] == 1).sum()


def test_of_three_groups_each_is_left_out_once() -> None:
    groups, labels = GROUPS[:60], torch.arange(60) % 2
    folds = list(unseen_folds(labels, groups, 0))
    assert sorted(int(groups[fold.queries].unique()) for fold in folds) == [0, 1, 2]
    for fold in folds:
        assert not torch.isin(groups[fold.queries], groups[fold.fitting]).any()
    assert not list(unseen_folds(labels[:20], groups[:20], 0))
    assert not list(group_folds(labels[:20], groups[:20], 0))


def test_groups_with_labels_of_their_own_are_searched_together() -> None:
    for fold in unseen_folds(GROUPS, GROUPS, 0):
        assert not fold.across
        assert (fold.right.sum(1) == 19).all(), "the other windows of the group"


def test_classes_with_hardly_a_query_are_not_heard() -> None:
    hits, labels = torch.tensor([1, 1, 0, 1, 0]), torch.tensor([0, 0, 0, 0, 1])
    assert class_mean(hits, labels) == pytest.approx((0.75 + 0) / 2)
    assert class_mean(hits, labels, least=2) == pytest.approx(0.75)
    assert class_mean(hits, labels, least=9) == pytest.approx((0.75 + 0) / 2)
