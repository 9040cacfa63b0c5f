"""How a run says that it stands, and how that is shown."""

from __future__ import annotations

import json
import os

import pytest

from lamarckian.errors import RunFolderError
from lamarckian.record.run import Run
from lamarckian.record.status import MachineStatus, Processes, pictures, read_status, write_status


def test_what_is_written_is_read_and_shown(tmp_path):
    run = Run(tmp_path)
    here = Processes().machine("learner", "home", 2, {"learner": (os.getpid(), 2), "gone": (2**22 + 1, 0)}, 7, 3, {"pool waiting": 5})
    assert [process.name for process in here.processes] == ["learner"] and here.processes[0].memory_bytes > 1e6
    write_status(run, {"steps": 12_345, "score": 0.5, "pool/used": 9.0, "loss/policy": 1.0}, [here])
    assert read_status(run).machines == [here]
    [shown] = pictures(run, as_json=False, watch=True)  # nobody is at work, so that there is nothing to watch
    assert shown.startswith("not at work") and "12,345" in shown and "pool/used" in shown and "loss/policy" not in shown
    assert "3 actors, version 7" in shown and "pool waiting" in shown and "started anew 2 times" in shown
    [told] = pictures(run, as_json=True, watch=False)
    assert json.loads(told)["machines"][0]["queues"] == {"pool waiting": 5}


def test_a_run_that_has_said_nothing_yet_is_told_from_one_that_says_nonsense(tmp_path):
    with pytest.raises(RunFolderError, match="has not said yet how it stands"):
        read_status(Run(tmp_path))
    (tmp_path / "status.json").write_text('{"time_s": "noon"}')
    with pytest.raises(RunFolderError, match=r"status\.json is not what a run says of itself"):
        read_status(Run(tmp_path))


def test_a_machine_cannot_say_what_no_machine_is():
    import msgspec

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(
            b'{"name":"a","address":"b","cores":-1,"cpu":0,"memory":0,"version":0,"actors":0,"processes":[]}', type=MachineStatus
        )
