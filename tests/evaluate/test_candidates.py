"""What travels between who drives an evolution and its workers."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lamarckian.ec.algorithm import Algorithm, Proposals, algorithm_seed
from lamarckian.ec.cmaes import CMAES
from lamarckian.ec.es import OpenAIES
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.nsga2 import NSGA2
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.ec.problems import ZDT1, Sphere
from lamarckian.ec.sep_cmaes import SepCMAES
from lamarckian.ec.workers import Bench, Result, one_row
from lamarckian.evaluate.candidates import Done, Task, done, proposal, result, task, unpack
from lamarckian.evaluate.worker import _work


def begun(algorithm: Algorithm, problem: object) -> tuple[Algorithm, Bench]:
    evaluator = as_evaluator(problem)
    algorithm.begin(evaluator.describe(), evaluator.objectives, algorithm_seed(0))
    return algorithm, Bench(algorithm, evaluator, evaluator.describe())


def sent(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def assert_same(left: Proposals, right: Proposals) -> None:
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_array_equal(left.parents, right.parents)
    assert left.version == right.version
    for one, other in ((left.arrays, right.arrays), (left.shared, right.shared)):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])
            assert array.dtype == other[name].dtype


@pytest.mark.parametrize(
    ("algorithm", "problem"), [(NSGA2(8), ZDT1(6)), (CMAES(), Sphere(5)), (OpenAIES(8), Sphere(5))], ids=["nsga2", "cmaes", "openai-es"]
)
def test_a_candidate_travels_and_is_made_elsewhere_as_here(algorithm, problem):
    here, bench = begun(algorithm, problem)
    _, elsewhere = begun(type(algorithm)(population=8), problem)
    for one in one_row(here.propose(8)):
        message = msgspec.msgpack.decode(sent(task(one, shared=True)), type=Task)
        assert_same(proposal(message, unpack(message.shared or {})), one)
        genes, evaluation = bench.work(one)
        there_genes, there = elsewhere.work(proposal(message, unpack(message.shared or {})))
        np.testing.assert_array_equal(there_genes["x"], genes["x"])
        np.testing.assert_array_equal(there.raw, evaluation.raw)


def test_what_all_candidates_share_travels_only_where_it_is_asked_for():
    algorithm, _ = begun(OpenAIES(8), Sphere(1000))
    one = one_row(algorithm.propose(8))[0]
    assert task(one, shared=False).shared is None
    assert len(sent(task(one, shared=False))) < 1000 < 8000 < len(sent(task(one, shared=True)))


@pytest.mark.parametrize("algorithm", [OpenAIES(8), SepCMAES(population=8)], ids=["openai-es", "sep-cmaes"])
def test_a_large_genome_does_not_come_back(algorithm):
    algorithm, bench = begun(algorithm, Sphere(100_000))
    one = one_row(algorithm.propose(8))[0]
    message = task(one, shared=True)
    answer = _work(bench, message, unpack(message.shared or {}), attempt=0)
    assert answer.genes is None
    assert len(sent(answer)) < 4096


def test_a_result_comes_back_as_it_was():
    evaluation = Evaluation(np.array([[1.5, np.nan]]), np.array([0.25]), {0: Fault("timeout", "too slow")})
    genes = {"x": np.array([[1.0, 2.0]]), "net": np.ones((1, 3), np.float32), "order": np.array([[1, 0]])}
    message = msgspec.msgpack.decode(sent(done(4, Result(7, genes, evaluation, 0.5), genes=True)), type=Done)
    back = result(message)
    assert (message.attempt, back.id, back.seconds) == (4, 7, 0.5)
    assert back.evaluation.faults == {0: Fault("timeout", "too slow")}
    np.testing.assert_array_equal(back.evaluation.raw, evaluation.raw)
    np.testing.assert_array_equal(back.evaluation.violation, evaluation.violation)
    for name, array in genes.items():
        np.testing.assert_array_equal(back.genes[name], array)
        assert back.genes[name].dtype == array.dtype
        assert back.genes[name].flags.writeable
    assert result(done(4, Result(7, genes, evaluation, 0.5), genes=False)).genes == {}
