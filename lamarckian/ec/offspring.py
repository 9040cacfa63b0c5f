"""From proposals and their evaluations to offspring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.genome import Genes
from lamarckian.ec.population import EVALUATED, FAILED, Evaluation, Population

PENALTY = 1e100
"""The violation of a candidate that is penalised for not having been judged."""


def gather(arrived: Sequence[tuple[Proposals, Genes, Evaluation]], objectives: int, minimise: bool) -> Population:
    """The offspring that came back, in that order, with `objectives` M. Failed ones have objectives that are no numbers."""
    proposals, evaluations = [entry[0] for entry in arrived], [entry[2] for entry in arrived]
    ids = _join([proposal.ids for proposal in proposals])
    raw = _join([_widen(evaluation.raw, objectives) for evaluation in evaluations])
    violation = _join([evaluation.violation for evaluation in evaluations])
    fitness = -raw if minimise else raw.copy()
    state = np.full(len(ids), EVALUATED, np.uint8)
    failed, start = [], 0
    for proposal, evaluation in zip(proposals, evaluations, strict=True):
        failed += [start + row for row in evaluation.faults]
        start += len(proposal)
    if failed:
        state[failed], fitness[failed], raw[failed], violation[failed] = FAILED, np.nan, np.nan, 0.0
    return Population(
        genes={name: _join([genes[name] for _, genes, _ in arrived]) for name in arrived[0][1]},
        ids=ids,
        parents=_join([proposal.parents for proposal in proposals]),
        age=np.zeros(len(ids), np.int64),
        state=state,
        fitness=fitness,
        raw=raw,
        violation=violation,
    )


def join_proposals(proposals: Sequence[Proposals]) -> list[Proposals]:
    """The same candidates in as few objects as their kinds allow."""
    kinds: dict[tuple, list[Proposals]] = {}
    for proposal in proposals:
        kinds.setdefault((proposal.version, *proposal.arrays), []).append(proposal)
    return [
        Proposals(
            np.concatenate([proposal.ids for proposal in group]),
            np.concatenate([proposal.parents for proposal in group]),
            {name: np.concatenate([proposal.arrays[name] for proposal in group]) for name in group[0].arrays},
            group[0].shared,
            group[0].version,
        )
        for group in kinds.values()
    ]


def _widen(raw: np.ndarray, objectives: int) -> np.ndarray:
    return raw if raw.shape[1] == objectives else np.full((len(raw), objectives), np.nan)


def _join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
