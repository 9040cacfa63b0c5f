import json
import os
import subprocess
import sys

import pytest

from lamarckian.errors import RunFolderError
from lamarckian.plugins import Section
from lamarckian.recipe import Player, Recipe
from lamarckian.record.run import create, default_folder, open_run, write

RECIPE = Recipe(
    game=Section(name="pong", rounds=3), roles={"left": Player(agent="learner"), "right": Player(agent="tracker", error_px=4.0)}, seed=7
)


def test_a_new_run_says_what_it_was_made_with(tmp_path):
    with create(tmp_path / "a" / "run", RECIPE) as run:
        versions = json.loads(run.versions_path.read_text())
        assert versions["seed"] == 7
        assert versions["packages"]["numpy"]
        assert versions["machine"]["cpus"] == os.cpu_count()
        assert run.recipe_path.read_text() == RECIPE.dump()
    assert open_run(tmp_path / "a" / "run").recipe_path.exists()


def test_an_existing_run_gives_way_only_when_told_to(tmp_path):
    create(tmp_path, RECIPE).close()
    (tmp_path / "metrics.jsonl").write_text("{}")
    (tmp_path / "checkpoints" / "10").mkdir()
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(RunFolderError, match=r"lamarckian resume .*--overwrite"):
        create(tmp_path, RECIPE)
    assert (tmp_path / "checkpoints" / "10").exists()
    with create(tmp_path, RECIPE, overwrite=True) as run:
        assert list(run.checkpoints_path.iterdir()) == []
    assert not (tmp_path / "metrics.jsonl").exists()
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_that_are_no_run_are_never_touched(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="not a run"):
        create(tmp_path, RECIPE, overwrite)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        create(tmp_path / "file", RECIPE)
    with pytest.raises(RunFolderError, match=r"cannot write to .*another folder"):
        create(tmp_path / "file" / "run", RECIPE)
    with pytest.raises(RunFolderError, match="cannot write"):
        create("/proc/run", RECIPE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderError, match="Permission denied"):
        create(tmp_path / "run", RECIPE)


def test_what_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(RunFolderError, match="is not there"):
        open_run(tmp_path / "none")
    with pytest.raises(RunFolderError, match=r"no recipe\.yaml"):
        open_run(tmp_path)


def test_two_processes_never_train_in_one_run(tmp_path):
    script = (
        "import sys; from lamarckian.record.run import create; from tests_recipe import RECIPE\n"
        "run = create(sys.argv[1], RECIPE); print('locked', flush=True); input()"
    )
    (tmp_path / "tests_recipe.py").write_text(
        "from lamarckian.plugins import Section\nfrom lamarckian.recipe import Recipe\nRECIPE = Recipe(game=Section(name='pong'))\n",
    )
    folder = tmp_path / "run"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(RunFolderError, match=f"pid {other.pid}"):
            create(folder, RECIPE, overwrite=True)
        assert (folder / "recipe.yaml").exists()
    finally:
        other.kill()
        other.communicate()
    create(folder, RECIPE, overwrite=True).close()  # the lock died with its holder


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write(tmp_path / "file", "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "file", "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("recipe", "prefix"),
    [("pong/ppo", "pong-ppo-"), ("my.yaml", "my-"), ("/home/me/games/my.yaml", "my-"), ("../x/my.yml", "my-")],
)
def test_the_default_folder_is_named_by_recipe_and_time(recipe, prefix):
    folder = default_folder(recipe)
    assert folder.parent.name == "runs"
    assert folder.name.startswith(prefix)
