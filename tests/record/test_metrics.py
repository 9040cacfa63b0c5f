import json
import math

import numpy as np
import pytest

from lamarckian.errors import RunFolderError
from lamarckian.record.metrics import Metrics, read, show
from lamarckian.record.run import Run


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def events(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(run.folder))
    accumulator.Reload()
    return {tag: [(event.step, round(event.value, 4)) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_a_line_is_in_both_files_as_soon_as_it_is_written(run):
    with Metrics(run) as metrics:
        metrics.write({"steps": 10, "score": np.float32(0.5), "loss/policy": 0.25, "note": "warm-up"})
        metrics.write({"steps": np.int64(20), "score": 0.75, "return": None})
        assert read(run) == [
            {"steps": 10, "score": 0.5, "loss/policy": 0.25, "note": "warm-up"},
            {"steps": 20, "score": 0.75, "return": None},
        ]
        assert events(run) == {"score": [(10, 0.5), (20, 0.75)], "loss/policy": [(10, 0.25)]}


def test_pictures_are_shown_beside_the_numbers(run, tmp_path):
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Metrics(run) as metrics:
        metrics.write({"steps": 10, "score": 0.5})
    Image.new("RGB", (4, 3), "red").save(tmp_path / "front.png")
    show(run, {"front": tmp_path / "front.png"}, 10)
    assert events(run) == {"score": [(10, 0.5)]}
    accumulator = EventAccumulator(str(run.folder))
    accumulator.Reload()
    [image] = accumulator.Images("front")
    assert (image.step, image.width, image.height) == (10, 4, 3)
    assert image.encoded_image_string == (tmp_path / "front.png").read_bytes()


def test_numbers_that_are_not_finite_stay_json(run):
    with Metrics(run) as metrics:
        metrics.write({"steps": 1, "score": math.nan, "loss/value": math.inf})
    assert run.metrics_path.read_text() == '{"steps": 1, "score": null, "loss/value": null}\n'
    assert events(run) == {}


def test_on_resume_what_the_checkpoint_does_not_know_is_cut(run):
    with Metrics(run) as metrics:
        for steps in (10, 20, 30, 40):
            metrics.write({"steps": steps, "score": steps / 100})
    with run.metrics_path.open("a") as file:
        file.write('{"steps": 50, "sco')
    with Metrics(run, resume_steps=20) as metrics:
        metrics.write({"steps": 30, "score": 0.31})
    assert [(line["steps"], line["score"]) for line in read(run)] == [(10, 0.1), (20, 0.2), (30, 0.31)]
    assert events(run)["score"] == [(10, 0.1), (20, 0.2), (30, 0.31)]


def test_a_foreign_line_in_the_middle_is_refused(run):
    run.metrics_path.write_text('{"steps": 1}\nhello\n{"steps": 2}\n')
    with pytest.raises(RunFolderError, match="line 2"):
        read(run)


def test_a_full_disk_is_said_so(run, monkeypatch):
    with Metrics(run) as metrics, open("/dev/full", "ab", buffering=0) as full:
        metrics.write({"steps": 1})
        monkeypatch.setattr(metrics, "_file", full)
        with pytest.raises(RunFolderError, match="disk is full"):
            metrics.write({"steps": 2})
    assert read(run) == [{"steps": 1}]


def test_a_line_is_one_json_object(run):
    with Metrics(run) as metrics:
        metrics.write({"steps": 1, "alive": True, "text": "a\nb"})
    [line] = run.metrics_path.read_text().splitlines()
    assert json.loads(line) == {"steps": 1, "alive": True, "text": "a\nb"}
