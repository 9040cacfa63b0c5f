"""Learners with each other: all begin as rank 0, wait for each other, learn as it says, and it counts for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from lamarckian.data.fragment import layout
from lamarckian.data.pool import MatchResult, PoolStatistics
from lamarckian.errors import RecipeError, RingError
from lamarckian.learner.batches import Batch
from lamarckian.learner.learner import Learner, follow
from lamarckian.learner.together import Intent, Report, begin, tell
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.nets import Policy, QNetwork, build
from lamarckian.rl import A3C, DQN, PG, PPO, Imitation
from tests.peers import together

ROLE = Role({"x": Vector(2)}, {"a": Discrete(3)}, ("score", "style"))
T, B = 4, 3


class Fleet:
    """Brings what it is given, in turn: batches, and None where there is none yet; then none any more."""

    actors = 1

    def __init__(self, batches: Sequence[Batch | None]) -> None:
        self.published: dict[int, np.ndarray] = {}
        self.recycled: list[Batch] = []
        self._batches = list(batches)
        self._held: Batch | None = None

    def get(self) -> Batch | None:
        if self._held is None and self._batches:
            self._held = self._batches.pop(0)
        return self._held

    def recycle(self, batch: Batch) -> None:
        self._held = None
        self.recycled.append(batch)

    def publish(self, version: int, publication: np.ndarray) -> None:
        self.published[version] = publication.copy()

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(*[0] * len(PoolStatistics.__struct_fields__))


class Watched(PPO):
    """Notes what it is called with."""

    def update(self, batch, version, progress):
        self.seen.append((version, progress, self.reward_weights))
        return super().update(batch, version, progress)


def ppo(seed: int, kind: type[PPO] = PPO, hidden: int = 4, **settings) -> PPO:
    algorithm = kind(build(Policy, ROLE, seed, hidden=(hidden,)), ROLE, PPO.Settings(**settings), dtype="float32", seed=seed)
    algorithm.seen = []
    return algorithm


def batch_of(seed: int) -> Batch:
    arrays = layout(ROLE, T, B).empty()
    random = np.random.default_rng(seed)
    for name, array in arrays.items():
        array[...] = random.normal(size=array.shape) if array.dtype == np.float32 else name == "learn"
    arrays["log_prob.a"][...] = -1.1
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Batch(arrays, tensors, [MatchResult("left", seed, "win", 5, [1.0, 0.0])], {"environment_s": 1.0}, T * B, {"extra": float(seed)})


def flat(algorithm) -> torch.Tensor:
    return algorithm.parameters.parameter.detach().clone()


def test_all_learn_with_the_first_and_it_counts_for_all():
    batches = [[batch_of(10 * rank + n) for n in range(3)] for rank in range(3)]
    late = {1: [None, None, *batches[1]], 2: [batches[2][0], None, *batches[2][1:]]}
    fleets = [Fleet([None, *batches[0]]), Fleet(late[1]), Fleet(late[2])]
    algorithms = [ppo(rank, Watched, learning_rate=0.01) for rank in range(3)]
    algorithms[0].update(batch_of(99).tensors, 0, 0.0)  # what the others have not seen
    algorithms[0].seen.clear()

    def work(ring):
        if ring.rank:
            return follow(algorithms[ring.rank], fleets[ring.rank], ring)
        learner = Learner(algorithms[0], fleets[0], 7, lambda batch: {"measured": 1.0}, ring)
        counts = []
        while learner.version < 10:
            if learner.version == 8:
                algorithms[0].set_reward_weights({"style": 0.25})
            counts.append(learner.update(learner.version / 10))
        learner.end()
        return counts, learner.meter.take()

    (counts, line), *rest = together(3, work)
    assert rest == [None, None]
    learned = [count for count in counts if count is not None]
    assert counts[:2] == [None, None] and len(learned) == 3  # rank 1 has its first batch at the third call
    assert [steps for steps, _ in learned] == [3 * T * B] * 3
    assert [[result.score for result in results] for _, results in learned] == [[n, 10 + n, 20 + n] for n in range(3)]
    plain, weighed = {"score": 1.0, "style": 1.0}, {"score": 1.0, "style": 0.25}
    for algorithm, fleet, given in zip(algorithms, fleets, batches, strict=True):
        assert algorithm.seen == [(7, 0.7, plain), (8, 0.8, weighed), (9, 0.9, weighed)]
        assert torch.equal(flat(algorithm), flat(algorithms[0]))
        assert list(fleet.published) == [8, 9, 10] and fleet.recycled == given
        np.testing.assert_array_equal(fleet.published[10], flat(algorithms[0]).numpy())
    assert line["match/won"] == 1.0 and line["match/length"] == 5 and line["actor/environment"] == 1.0
    assert line["extra"] == pytest.approx(np.mean([10 * rank + n for rank in range(3) for n in range(3)]))
    assert line["measured"] == 1.0 and line["time/ring"] > 0 and line["time/forward"] > 0


def test_learners_end_before_they_have_begun():
    def work(ring):
        algorithm = algorithms[ring.rank]
        if ring.rank:
            return follow(algorithm, Fleet([batch_of(0)]), ring)
        Learner(algorithm, Fleet([]), 0, ring=ring).end()
        return flat(algorithm)

    algorithms = [ppo(rank, reward_weights={"style": 0.5}) for rank in range(2)]
    first, ended = together(2, work)
    assert ended is None and torch.equal(flat(algorithms[1]), first)
    assert algorithms[1].reward_weights["style"] == 0.5


def trained(kind: str, seed: int, updates: int):
    """An algorithm whose state has numbers of many kinds and, after updates, arrays of other sizes than at first."""
    if kind == "pg":
        algorithm = PG(build(Policy, ROLE, seed, hidden=(4,)), ROLE, PG.Settings(optimizer="rmsprop"), seed=seed)
    else:
        settings = DQN.Settings(learning_starts=1, replay_size="1MB", minibatch=4)
        algorithm = DQN(build(QNetwork, ROLE, seed, hidden=(4,)), ROLE, settings, seed=seed)
    for version in range(updates):
        batch = batch_of(version).tensors
        batch["terminated"][-2] = True
        algorithm.update(batch, version, 0.0)
    return algorithm


@pytest.mark.parametrize("kind", ["pg", "dqn"])
def test_the_state_of_the_first_is_that_of_all(kind):
    algorithms = [trained(kind, rank, 3 * (rank == 0)) for rank in range(3)]
    expected = algorithms[0].state_dict()
    assert together(3, lambda ring: begin(algorithms[ring.rank], ring, 3 * (ring.rank == 0))) == [3] * 3
    for algorithm in algorithms:
        state = algorithm.state_dict()
        assert state.keys() == expected.keys() and algorithm.peers.size == 3
        assert all(torch.equal(state[name], x) and state[name].dtype == x.dtype for name, x in expected.items())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda rank: ppo(0, hidden=4 + rank), "parameters of learner 0: .* of 1: .* the same recipe"),
        (lambda rank: ppo(0, kind=(PPO, Watched)[rank]), "algorithm of learner 0: PPO; of 1: Watched"),
    ],
    ids=["network", "algorithm"],
)
def test_learners_that_do_not_fit_are_refused_at_all(make, what):
    def work(ring):
        with pytest.raises(RecipeError, match=what):
            begin(algorithms[ring.rank], ring, 0)

    algorithms = [make(rank) for rank in range(2)]
    assert together(2, work) == [None, None]


@pytest.mark.parametrize(("kind", "settings"), [(A3C, {}), (Imitation, {"data": "recordings"})], ids=["a3c", "imitation"])
def test_who_learns_alone_is_refused(kind, settings):
    algorithm = kind(build(Policy, ROLE, 0, hidden=(4,)), ROLE, kind.Settings(**settings))

    def work(ring):
        with pytest.raises(RecipeError, match=f"{kind.__name__} learns alone; train with one learner"):
            Learner(algorithm, Fleet([]), 0, ring=ring)

    assert together(1, work) == [None]


def test_what_is_not_understood_is_said():
    def work(ring):
        with pytest.raises(RingError, match="install the same version everywhere"):
            tell(ring, Intent(True) if ring.rank else Report(1, [], {}, {}))

    assert together(2, work) == [None, None]
