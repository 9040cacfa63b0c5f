"""The section `cluster` of a training: which machines take part, and how data walks between them. Without it, one machine does all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from lamarckian.errors import RecipeError
from lamarckian.recipe.document import Auto, Count, Keys, Seconds
from lamarckian.recipe.sizes import Size

PORTS = 32
"""How many ports, one behind the other, the learner's machine may listen at."""


def _address(given: str) -> str:
    if given not in ("auto", "local") and not re.fullmatch(r"[\w.-]+:\d{1,5}", given):
        raise ValueError("auto, local, or HOST:PORT of a Ray cluster")
    return given


class Pool(Keys):
    """The memory pool beside each learner."""

    size: Size | Auto = "auto"
    """How much memory the fragments of one pool may take; auto: that of a batch, for what waits longer only grows old."""
    sampling: Literal["fifo", "newest", "uniform"] = "fifo"
    """Which of the fragments that wait is learned from next; each is once."""
    max_age_s: Seconds | None = None
    """Fragments that were filled longer ago are left out."""
    when_full: Literal["wait", "overwrite"] = "wait"
    """Whether actors wait until there is room, or the fragment that has waited longest gives way."""


class Cluster(Keys):
    address: Annotated[str, AfterValidator(_address)] = "auto"
    """auto: the Ray cluster that this machine belongs to, or a new one on it; HOST:PORT: that Ray cluster; local: no Ray, one machine."""
    machines: Count = 1
    """With `local`: as how many machines this one passes."""
    host: str | None = None
    """The address by which other machines reach this one. By default the one by which Ray knows it."""
    port: Annotated[int, Field(ge=0, le=65535 - PORTS)] = 0
    """The first of a few ports, one behind the other, at which the learner's machine listens; 0: ports that are free."""
    keys: str | None = None
    """A file made by `lamarckian keys`, at the same path on each machine: whoever does not hold it is not spoken to."""
    learners: Annotated[int, Field(ge=1, le=24)] = 1
    """Learners, each with a part of the batch and a memory pool of its own; their gradients are averaged."""
    broadcast: Literal["flat", "tree", "pipeline"] = "pipeline"
    """Who hands versions to whom."""
    wire: Literal["float32", "bfloat16"] = "float32"
    """How the parameters of a version travel."""
    packing: Literal["auto", "none", "lz4"] = "auto"
    """How fragments are compressed on their way; auto: where it pays."""
    hold: Size | Auto = "auto"
    """How much a machine's dispatch may hold of what no pool has taken in yet; auto: one fragment."""
    pool: Pool = Pool()

    @model_validator(mode="after")
    def _fits(self) -> Cluster:
        if self.machines > 1 and self.address != "local":
            raise ValueError(
                f"machines: given {self.machines}; with address: {self.address} machines are those that are there; leave it out, or give 1"
            )
        return self


def complete_cluster(cluster: Cluster | None) -> Cluster | None:
    """The section with its path absolute. Raises RecipeError where the file of keys is not there."""
    if cluster is None or cluster.keys is None:
        return cluster
    path = Path(cluster.keys).resolve()
    if not path.is_file():
        raise RecipeError(f"cluster.keys: there is no file {path}; `lamarckian keys {cluster.keys}` makes one")
    return cluster.model_copy(update={"keys": str(path)})


def refuse_impossible(cluster: Cluster, recipe: Any, algorithm: Any) -> None:
    """Raises RecipeError where a training cannot be done by many machines, or by so many learners."""
    if hasattr(algorithm, "validate"):
        raise RecipeError(f"cluster: given; {recipe.algorithm.name} learns from recorded matches, on one machine: leave the section out")
    if recipe.mode == "serial":
        raise RecipeError("cluster: given; in serial mode one process does all: allowed here: no section `cluster`, or mode=parallel")
    if recipe.learner.slots != "auto":
        raise RecipeError(f"learner.slots: given {recipe.learner.slots}; in a cluster, cluster.pool.size says how much waits: leave it out")
    if cluster.learners == 1:
        return
    if getattr(algorithm, "from_gradients", False) or not hasattr(algorithm, "peers"):
        raise RecipeError(f"cluster.learners: given {cluster.learners}; {recipe.algorithm.name} learns alone: allowed: 1")
    if getattr(algorithm, "consecutive", False):
        raise RecipeError(
            f"cluster.learners: given {cluster.learners}; {recipe.algorithm.name} learns from whole episodes, "
            "all of whose fragments must come to one learner: allowed: 1"
        )
    samples, batch = recipe.fragment_samples, recipe.learner.batch
    if batch % (samples * cluster.learners):
        raise RecipeError(
            f"learner.batch: given {batch}; it is shared by {cluster.learners} learners, each with whole fragments of {samples} samples: "
            f"allowed: multiples of {samples * cluster.learners}"
        )
