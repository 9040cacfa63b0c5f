import os
import stat

import numpy as np
import pytest
from PIL import Image

from lamarckian.errors import MisuseError, RunFolderError
from lamarckian.record.metrics import Metrics
from lamarckian.record.plots import plot_curve, smooth
from lamarckian.record.run import Run
from lamarckian.record.video import write_video


def frames(count=4, height=31, width=40):
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[index * 5 : index * 5 + 5] = (255, 128, 0)
        yield frame


def test_a_curve_is_drawn_from_the_metrics(tmp_path):
    run = Run(tmp_path)
    with Metrics(run) as metrics:
        metrics.write({"steps": 0, "minutes": 0.0, "score": None})
        for step in range(1, 40):
            metrics.write({"steps": step * 1000, "minutes": step / 10, "score": step / 40, "return": step - 20.0})
    assert plot_curve(run) == tmp_path / "curve.png"
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.width > 1000


def test_without_a_finished_match_there_is_no_curve(tmp_path):
    run = Run(tmp_path)
    with pytest.raises(RunFolderError, match="no finished match"):
        plot_curve(run)


def test_smoothing_neither_shifts_nor_bends_a_straight_line():
    line = np.linspace(-3, 5, 30)
    assert np.allclose(smooth(line), line)
    assert np.allclose(smooth(np.array([0.0, 3.0, 0.0, 3.0, 0.0]), 3), [0, 1, 2, 1, 0])
    assert np.allclose(smooth(np.array([4.0])), [4])


def test_a_gif_has_every_frame(tmp_path):
    path = write_video(tmp_path / "new" / "match.gif", frames(), rate_hz=20)
    with Image.open(path) as picture:
        assert (picture.n_frames, picture.size, picture.info["duration"]) == (4, (40, 31), 50)
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 128, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["match.gif"]


def test_a_name_of_another_kind_is_refused(tmp_path):
    with pytest.raises(MisuseError, match=r"\.gif or \.mp4"):
        write_video(tmp_path / "match.avi", frames())


def test_without_frames_there_is_no_video(tmp_path):
    with pytest.raises(MisuseError, match="no frames"):
        write_video(tmp_path / "match.gif", iter(()))


def test_without_ffmpeg_there_is_no_mp4(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MisuseError, match="not on PATH"):
        write_video(tmp_path / "match.mp4", frames())


def fake_ffmpeg(folder, monkeypatch, script):
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_ffmpeg_gets_the_raw_frames(tmp_path, monkeypatch):
    fake_ffmpeg(tmp_path, monkeypatch, 'for last; do :; done; cat > "$last"')
    path = write_video(tmp_path / "match.mp4", frames())
    assert path.stat().st_size == 4 * 31 * 40 * 3


def test_what_ffmpeg_says_against_it_is_passed_on(tmp_path, monkeypatch):
    fake_ffmpeg(tmp_path, monkeypatch, "echo no such codec >&2; exit 1")
    with pytest.raises(MisuseError, match="ffmpeg failed: no such codec"):
        write_video(tmp_path / "match.mp4", frames(40, 400, 400))
    assert [entry.name for entry in tmp_path.iterdir()] == ["ffmpeg"]


def test_a_folder_that_cannot_be_written_to_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        write_video(tmp_path / "file" / "match.gif", frames())
