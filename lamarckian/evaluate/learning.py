"""A learner in a process of its own, as one of several parts of a training on many machines."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from lamarckian.evaluate.changes import waiting
from lamarckian.evaluate.distant import DistantFleet
from lamarckian.evaluate.plan import build_learning, plan
from lamarckian.evaluate.posts import Post, Teller
from lamarckian.evaluate.training import Training
from lamarckian.learner.learner import follow as learn_with
from lamarckian.recipe import load
from lamarckian.record import checkpoint
from lamarckian.record.run import Run
from lamarckian.rl.algorithm import publication

_LOG = logging.getLogger(__name__)


def main(config: dict[str, Any]) -> None:
    """Learns until the training is over; `config` is a `Post`."""
    post = msgspec.convert(config, Post)
    post.show_gpu()
    if post.rank:
        follow(post)
    else:
        lead(post)


def follow(post: Post) -> None:
    """Another learner: it learns what the first does, from a part of what is played, and leaves all else to that."""
    recipe = post.resolved()
    parts = plan(recipe, opponents=False)
    algorithm = build_learning(parts)
    with post.join(parts.device) as ring:
        assert ring is not None
        fleet = DistantFleet(parts, post, 0, publication(algorithm), _LOG.warning)
        try:
            learn_with(algorithm, fleet, ring)
        finally:
            fleet.close()


def lead(post: Post) -> None:
    """The first learner: a training like any other, but for where its batches come from and who shows its progress."""
    run, recipe, taken = Run(Path(post.folder)), post.resolved(), post.taken
    resume = post.resume and bool(checkpoint.saved(run))
    if post.resume and taken is None:  # a learner before this one died; reward weights may have been asked for meanwhile
        asked, taken = waiting(run.folder)
        recipe = load(run.recipe_path, [*asked, f"learner.device={recipe.learner.device}"])  # the device is all learners' own affair
        if not resume:
            run.metrics_path.unlink(missing_ok=True)
    teller = Teller(post.told)
    teller.end(Training(recipe, run, teller, resume, taken, post).run())
