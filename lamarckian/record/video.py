"""Videos of matches: GIF always, MP4 where ffmpeg is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from lamarckian.errors import MisuseError
from lamarckian.record.run import writing

SUFFIXES = (".gif", ".mp4")


def check_video(path: Path) -> None:
    """Raises MisuseError where no video can be written to a path of this name."""
    if path.suffix not in SUFFIXES:
        raise MisuseError(f"cannot write a video to {path}; allowed: a name that ends in {' or '.join(SUFFIXES)}")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise MisuseError("an MP4 needs the program ffmpeg, which is not on PATH; install it, or give --out a name that ends in .gif")


def write_video(path: Path, frames: Iterable[np.ndarray], rate_hz: float = 30.0) -> Path:
    """Writes frames, RGB uint8 `[height, width, 3]`, to `path`, a GIF or MP4 by its name; gives the path.

    Raises MisuseError where the name is neither, ffmpeg is missing or fails, or there are no frames; RunFolderError
    where the file cannot be written.
    """
    check_video(path)
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise MisuseError("there are no frames to make a video of: the game cannot be drawn")
    part = path.with_name(f".part-{path.name}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with writing(path):
            (_gif if path.suffix == ".gif" else _mp4)(part, first, frames, rate_hz)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _gif(path: Path, first: np.ndarray, rest: Iterator[np.ndarray], rate_hz: float) -> None:
    from PIL import Image

    pictures = (Image.fromarray(frame).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE) for frame in chain([first], rest))
    duration_ms = max(round(1000 / rate_hz, -1), 20)  # GIF counts in hundredths; browsers slow down what is below 2 of them
    next(pictures).save(path, save_all=True, append_images=pictures, duration=duration_ms, loop=0)


def _mp4(path: Path, first: np.ndarray, rest: Iterator[np.ndarray], rate_hz: float) -> None:
    height, width = first.shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate_hz:g}", "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]  # what players can show
    command = ["ffmpeg", "-loglevel", "error", "-y", *raw, *even, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        try:
            for frame in chain([first], rest):
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # its own message, below, says why
        fault = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise MisuseError(f"ffmpeg failed: {fault}")
