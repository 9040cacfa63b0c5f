"""Where learners run, and at which ports."""

from __future__ import annotations

import os
import socket

import pytest

from lamarckian.cluster.interface import Machine
from lamarckian.errors import MisuseError
from lamarckian.evaluate.places import Seat, addresses, ports, seats
from lamarckian.evaluate.posts import Addresses, Post

HOME, OTHER, THIRD = Machine("home", "10.0.0.1", 8), Machine("other", "10.0.0.2", 8), Machine("third", "10.0.0.3", 8)


def with_gpus(machine: Machine, gpus: int) -> Machine:
    return Machine(machine.name, machine.address, machine.cores, gpus)


def test_the_first_learner_is_where_the_run_is_and_the_others_have_machines_of_their_own():
    assert seats([HOME, OTHER, THIRD], 3) == [Seat(HOME, None), Seat(OTHER, None), Seat(THIRD, None)]
    assert seats([HOME, OTHER, THIRD], 4)[3] == Seat(OTHER, None)
    assert seats([HOME], 3) == [Seat(HOME, None)] * 3


def test_learners_go_to_gpus_first():
    home, other = with_gpus(HOME, 2), with_gpus(OTHER, 1)
    assert seats([home, THIRD, other], 3) == [Seat(home, 0), Seat(home, 1), Seat(other, 0)]


@pytest.mark.parametrize("machines", [[with_gpus(HOME, 1), OTHER], [HOME, with_gpus(OTHER, 1)]], ids=["first", "second"])
def test_where_one_learner_has_no_gpu_none_learns_on_one(machines):
    assert [seat.gpu for seat in seats(machines, 2)] == [None, None]


@pytest.mark.parametrize(("shown", "gpu", "left"), [(None, 1, "1"), ("3,5", 1, "5"), ("3", 0, "3"), ("3,5", None, "3,5")])
def test_a_learner_sees_its_own_gpu_of_those_that_are_shown(shown, gpu, left, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    Post(0, {}, Addresses("", "", "", "", [], 0), gpu).show_gpu()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


def test_more_learners_than_gpus_learn_on_processors():
    assert [seat.gpu for seat in seats([with_gpus(HOME, 2)], 3)] == [None, None, None]


def test_pools_are_beside_their_learners_and_all_else_beside_the_first():
    where = addresses("192.168.0.9", 7000, seats([HOME, OTHER], 3), fixed=True)
    assert where.pools == ["tcp://192.168.0.9:7005", "tcp://10.0.0.2:7006", "tcp://10.0.0.2:7007"]
    assert [where.desk, where.root, where.children, where.ring] == [f"tcp://192.168.0.9:{port}" for port in range(7000, 7004)]
    assert where.relay_port == 7004 and where.network
    assert addresses("127.0.0.1", 7000, seats([HOME], 1), fixed=False).relay_port == 0


def test_ports_are_free_ones():
    first = ports("127.0.0.1", 0)
    assert ports("127.0.0.1", first) == first
    with (
        socket.create_server(("127.0.0.1", first + 3)),
        pytest.raises(MisuseError, match=rf"cluster\.port: .* from {first} on, some are taken"),
    ):
        ports("127.0.0.1", first)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(MisuseError, match=r"cluster\.host: this machine has no address 192\.0\.2\.77"):
        ports("192.0.2.77", 0)
