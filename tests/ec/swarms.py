"""A swarm, begun and moved on."""

from __future__ import annotations

from lamarckian.ec.genome import Genome, Real

from .judging import judged, sphere

BOX = Genome({"x": Real(-5.12, 5.12, 10)})


def begin(kind, genome=BOX, seed=1, first=None, **settings):
    swarm = kind(**settings)
    swarm.begin(genome, 1, seed, first)
    return swarm


def advance(swarm, count=None, function=sphere, **judgement):
    """Proposals and what they stood for."""
    proposals = swarm.propose(count or swarm.size)
    genes = swarm.realise(proposals)
    swarm.tell(judged(proposals, genes, -function(genes["x"]), **judgement))
    return proposals, genes["x"]
