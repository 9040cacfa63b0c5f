"""A learner in a process of its own, as one of several parts of a training on many machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lamarckian.evaluate.changes import waiting
from lamarckian.evaluate.posts import Ended, Post, Teller
from lamarckian.evaluate.training import Training
from lamarckian.recipe import load
from lamarckian.record import checkpoint
from lamarckian.record.run import Run


def main(config: dict[str, Any]) -> None:
    """Learns until the training is over; `config` is a `Post`."""
    post = msgspec.convert(config, Post)
    if post.rank:
        follow(post)
    else:
        lead(post)


def lead(post: Post) -> None:
    """The first learner: a training like any other, but for where its batches come from and who shows its progress."""
    run, recipe, taken = Run(Path(post.folder)), post.resolved(), post.taken
    resume = post.resume and bool(checkpoint.saved(run))
    if post.resume and taken is None:  # a learner before this one died; reward weights may have been asked for meanwhile
        asked, taken = waiting(run.folder)
        recipe = load(run.recipe_path, asked)
        if not resume:
            run.metrics_path.unlink(missing_ok=True)
    teller = Teller(post.told)
    summary = Training(recipe, run, teller, resume, taken, post).run()
    teller.end(
        Ended(
            **{name: getattr(summary, name) for name in Ended.__struct_fields__ if name != "checkpoint"}, checkpoint=str(summary.checkpoint)
        )
    )
