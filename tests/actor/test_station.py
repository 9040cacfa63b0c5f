from lamarckian.actor.station import packing
from lamarckian.cluster.interface import Machine

HERE = Machine("machine", "10.0.0.1", 2)


def test_what_stays_on_its_machine_is_not_packed_unless_that_is_wanted():
    here, there = "tcp://10.0.0.1:7003", "tcp://10.0.0.11:7003"
    assert packing("auto", HERE, [here]) == "none"
    assert packing("auto", HERE, [there]) == packing("auto", HERE, [here, there]) == "auto"
    assert packing("lz4", HERE, [here]) == "lz4"
