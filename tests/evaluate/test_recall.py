"""A memory task: a sign out of four that was shown thirty steps ago."""

from pathlib import Path

from lamarckian.evaluate.training import Summary, train
from lamarckian.recipe import load
from lamarckian.record.progress import Progress
from lamarckian.record.run import create

RECALL = Path(__file__).parents[2] / "examples" / "recall.yaml"


def trained(folder: Path, *more: str) -> Summary:
    recipe = load(RECALL, ["mode=serial", *more])
    with create(folder, recipe) as run:
        return train(recipe, run, Progress("", recipe.stop, quiet=True))


def test_only_who_remembers_can_answer(tmp_path):
    recurrent = trained(tmp_path / "recurrent", "stop={steps: 400_000, score: 0.9, score_matches: 300}")
    feed_forward = trained(tmp_path / "feed-forward", "network.memory=null", "stop.steps=60_000")
    assert recurrent.score is not None and recurrent.score >= 0.9
    assert feed_forward.score is not None and feed_forward.score < 0.45
