"""The command line. Each command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lamarckian.errors import LamarckianError, MisuseError

if TYPE_CHECKING:
    from lamarckian.recipe import EvolutionRecipe, Recipe
    from lamarckian.record.run import Run

FILM_FRAMES = 1800

app = typer.Typer(
    name="lamarckian",
    help="Evolutionary reinforcement learning for games whose clock does not wait.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A built-in recipe (see `lamarckian recipes`) or a path to one.")]
NewRun = Annotated[Path | None, typer.Option(help="The run's folder. Default: runs/<recipe>-<time>.")]
RunSeed = Annotated[int | None, typer.Option(min=0, help="The run's seed. Default: the recipe's.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete a run that is in the folder.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Settings that differ from the recipe.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Against = Annotated[
    str | None,
    typer.Option(
        help="Opponent: a bot of the game, the folder of a run, or module:Class. Default: as in the recipe; of a league, its youngest."
    ),
]
Which = Annotated[str, typer.Option("--checkpoint", help="best, last, or the steps of one.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the matches.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the result and errors.")]
Film = Annotated[bool, typer.Option("--video/--no-video", help="At the end, film a match if the game can be drawn.")]


def main() -> None:
    """Runs the command line; an error that a user can meet is a message and an exit code, never a traceback."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch comes: its threads share the cores with the actors
    try:
        app()
    except LamarckianError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


@app.command()
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: NewRun = None,
    seed: RunSeed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    video: Film = True,
) -> None:
    """Trains the agent that a recipe describes."""
    from lamarckian.recipe import load
    from lamarckian.record.run import create, default_folder

    resolved = load(recipe, _changes(overrides, seed))
    with create(run or default_folder(recipe), resolved, overwrite) as opened:
        _train(opened, resolved, quiet, video, resumed=False)


@app.command()
def evolve(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: NewRun = None,
    seed: RunSeed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Optimises the problem that a recipe describes."""
    from lamarckian.recipe import EvolutionRecipe, load
    from lamarckian.record.run import create, default_folder

    resolved = load(recipe, _changes(overrides, seed), EvolutionRecipe)
    with create(run or default_folder(recipe), resolved, overwrite) as opened:
        _evolve(opened, resolved, quiet, resumed=False)


@app.command()
def resume(run: RunFolder, overrides: Overrides = None, quiet: Quiet = False, video: Film = True) -> None:
    """Goes on with a run from its newest checkpoint."""
    from lamarckian.evaluate.changes import waiting
    from lamarckian.recipe import EvolutionRecipe
    from lamarckian.record.run import resume as reopen

    asked, taken = waiting(run)
    opened, recipe = reopen(run, [*asked, *(overrides or ())])
    with opened:
        try:
            if isinstance(recipe, EvolutionRecipe):
                _evolve(opened, recipe, quiet, resumed=True)
            else:
                _train(opened, recipe, quiet, video, resumed=True, taken=taken)
        except MisuseError:
            opened.undo_resume()
            raise


@app.command()
def evaluate(
    run: RunFolder,
    against: Against = None,
    matches: Annotated[int, typer.Option(min=1, help="Matches to play.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    checkpoint: Which = "best",
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Draw actions as in training, rather than take the likeliest.")] = False,
    seed: Seed = 0,
) -> None:
    """Plays matches with a trained agent and reports how it did."""
    import msgspec

    from lamarckian.record.run import open_training

    opened = open_training(run)
    from lamarckian.evaluate.matches import evaluate as play

    report: Any = play(opened, against, matches, checkpoint, stochastic, seed)
    values = msgspec.to_builtins(report)
    if as_json:
        print(json.dumps(values, default=str))
        return
    _print_table([(name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value)) for name, value in values.items()])


@app.command()
def video(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(help="A .gif, or an .mp4 where ffmpeg is installed. Default: match.gif in the run.")] = None,
    against: Against = None,
    checkpoint: Which = "best",
    seed: Seed = 0,
) -> None:
    """Films the first minute of a match of a trained agent."""
    from lamarckian.record.run import open_training
    from lamarckian.record.video import check_video, write_video

    opened = open_training(run)
    path = out or opened.video_path
    check_video(path)
    from lamarckian.evaluate.matches import film

    print(write_video(path, islice(film(opened, against, checkpoint, seed), FILM_FRAMES)))


@app.command()
def tournament(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs of one game.")],
    bots: Annotated[str, typer.Option(metavar="NAME,...", help="Bots of the game that take part.")] = "",
    matches: Annotated[int, typer.Option(help="Matches of each pair, half of them from either side.")] = 20,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where files go. Default: runs/tournament-<time>.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    checkpoints: Annotated[str, typer.Option(help="Which of each run take part: last, best, all, or league.")] = "best",
) -> None:
    """Lets trained agents and bots play, everyone against everyone, and rates them."""
    from lamarckian.evaluate.tournament import tournament as play
    from lamarckian.record.run import default_folder
    from lamarckian.record.standings import table, write_standings

    standings = play(runs, _listed(bots), matches, seed, checkpoints)
    folder = out or default_folder("tournament")
    paths = write_standings(folder, standings)
    if as_json:
        print(paths[0].read_text(), end="")
        return
    print(table(standings))
    print(f"\nwritten to {folder}: {', '.join(path.name for path in paths)}")


@app.command()
def record(
    recipe: RecipeName,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the matches go; a folder with matches of this game gets more.")],
    overrides: Overrides = None,
    agents: Annotated[
        str, typer.Option(metavar="ROLE=AGENT,...", help="Who plays: bots of the game, folders of runs, or module:Class.")
    ] = "",
    roles: Annotated[str, typer.Option(metavar="ROLE,...", help="Whose actions are kept. Default: the roles that learn.")] = "",
    matches: Annotated[int, typer.Option(min=1, help="Matches to play.")] = 20,
    seed: Seed = 0,
) -> None:
    """Plays matches among bots and trained agents, and keeps what they did, to learn from."""
    from lamarckian.recipe import load

    resolved = load(recipe, overrides or ())
    pairs = [item.partition("=") for item in _listed(agents)]
    for role, equals, agent in pairs:
        if not (role and equals and agent):
            raise MisuseError(f"--agents: given {agents!r}; it reads ROLE=AGENT,..., such as left=tracker,right=runs/pong")
    from lamarckian.evaluate.recording import record as play

    recordings = play(resolved, {role: agent for role, _, agent in pairs}, _listed(roles), matches, out, seed)
    scores = [entry.score for entry in recordings.recorded]
    _print_table(
        [
            ("matches", f"{len(recordings.matches):,}"),
            ("steps", f"{sum(entry.steps for entry in recordings.recorded):,}"),
            ("score", f"{sum(scores) / len(scores):.4g}"),
            ("folder", str(out)),
        ]
    )


@app.command("set")
def set_weights(
    run: RunFolder,
    changes: Annotated[list[str], typer.Argument(metavar="rewards.NAME=NUMBER...", help="New weights of rewards.")],
) -> None:
    """Changes the weights of a run's rewards, while it goes on too."""
    from lamarckian.evaluate.changes import ask

    weights, at_work = ask(run, changes)
    what = ", ".join(f"rewards.{name} = {weight:g}" for name, weight in weights.items())
    when = "from one of the next updates on" if at_work else f"the run is not going on now; from when it does: lamarckian resume {run}"
    print(f"{what}: {when}")


@app.command()
def keys(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the key goes; the file must not be there yet.")]) -> None:
    """Makes the key of a cluster: copy the file to each of its machines."""
    from lamarckian.transport.keys import Keys

    Keys.create(file)
    print(f"{file}: only you can read it. Copy it to each machine of the cluster; whoever has it, and nobody else, is let in")


@app.command()
def status(
    run: RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C or the run's end.")] = False,
) -> None:
    """Shows how a run stands: machines, processes, rates and queues."""
    from lamarckian.record.run import open_run
    from lamarckian.record.status import pictures

    for picture in pictures(open_run(run), as_json, watch):
        print(picture)


@app.command()
def recipes() -> None:
    """Lists the built-in recipes."""
    from lamarckian.recipe import built_in

    _print_table(list(built_in().items()))


@app.command()
def games() -> None:
    """Lists the games, and what is missing to play them."""
    from importlib.util import find_spec

    from lamarckian.plugins import EXTRAS, names, plugin

    missing = {extra: module for module, extra in EXTRAS.items() if find_spec(module) is None}
    rows = []
    for name in names("game"):
        if name in missing:
            rows.append((name, f"cannot be used: it needs {missing[name]}: pip install 'lamarckian[{name}]'"))
            continue
        try:
            found: Any = plugin("game", name)
        except LamarckianError as error:
            rows.append((name, f"cannot be used: {error}"))
            continue
        bots = ", ".join(getattr(found, "bots", ()))
        rows.append((name, (found.__doc__ or "").strip().partition("\n")[0] + (f" Bots: {bots}." if bots else "")))
    _print_table(rows)


@app.command()
def schema() -> None:
    """Prints the JSON schema of recipes, for editors."""
    from lamarckian.recipe import schema as recipe_schema

    print(json.dumps(recipe_schema(), indent=1))


def _train(run: Run, recipe: Recipe, quiet: bool, video: bool, resumed: bool, taken: int | None = None) -> None:
    from lamarckian.record.checkpoint import saved
    from lamarckian.record.progress import Progress

    if recipe.cluster is None:
        from lamarckian.evaluate.training import train as learn
    else:
        from lamarckian.evaluate.supervisor import supervise as learn
    with Progress(str(run.folder), recipe.stop, quiet) as progress:
        progress.note(f"run {run.folder}")
        try:
            summary = learn(recipe, run, progress, resumed, taken)
        except KeyboardInterrupt:
            _stopped(run.folder, bool(saved(run)))
    made = _drawn(_pictures(run, video and not summary.interrupted), quiet)
    _print_table(
        [
            ("steps", f"{summary.steps:,}"),
            ("score", f"no {summary.scored} has finished" if summary.score is None else f"{summary.score:.4g}"),
            ("minutes", f"{summary.minutes:.1f}"),
            ("checkpoint", summary.checkpoint),
            *((name, str(path)) for name, path in made.items()),
            *(() if summary.interrupted else (("evaluate", f"lamarckian evaluate {run.folder}"),)),
        ]
    )
    _exit_if(summary.interrupted, run.folder)


def _evolve(run: Run, recipe: EvolutionRecipe, quiet: bool, resumed: bool) -> None:
    from lamarckian.evaluate.evolution import draw_front
    from lamarckian.evaluate.evolution import evolve as optimise
    from lamarckian.record.checkpoint import saved
    from lamarckian.record.metrics import show
    from lamarckian.record.plots import plot_progress
    from lamarckian.record.progress import Progress

    with Progress(str(run.folder), recipe.stop, quiet, unit="evaluations") as progress:
        progress.note(f"run {run.folder}")
        try:
            outcome = optimise(recipe, run, progress, resumed)
        except KeyboardInterrupt:
            _stopped(run.folder, bool(saved(run)))
    pictures: dict[str, Callable[[], Path | None]] = {"front": lambda: draw_front(recipe, run)}
    if outcome.measure is not None:
        pictures["curve"] = lambda: plot_progress(run)
    made = _drawn(pictures, quiet)
    show(run, made, outcome.evaluations)
    measure = [] if outcome.measure is None else [(outcome.measure[0], f"{outcome.measure[1]:.6g}")]
    _print_table(
        [
            ("evaluations", f"{outcome.evaluations:,}"),
            ("generations", f"{outcome.generations:,}"),
            *measure,
            ("front", f"{outcome.front} in {run.folder / 'front.csv'} and front.json"),
            *((("failed", f"{outcome.failed:,}"),) if outcome.failed else ()),
            ("minutes", f"{outcome.minutes:.1f}"),
            ("checkpoint", str(outcome.checkpoint)),
            *((f"{name}.png", str(path)) for name, path in made.items()),
        ]
    )
    _exit_if(outcome.interrupted, run.folder)


def _stopped(folder: Path, saved: bool) -> NoReturn:
    hint = f"to go on from the last checkpoint: lamarckian resume {folder}" if saved else "there is no checkpoint yet"
    print(f"stopped without saving; {hint}", file=sys.stderr)
    raise typer.Exit(1) from None


def _exit_if(interrupted: bool, folder: Path) -> None:
    if interrupted:
        print(f"interrupted; saved. To go on: lamarckian resume {folder}", file=sys.stderr)
        raise typer.Exit(1)


def _drawn(pictures: Mapping[str, Callable[[], Path | None]], quiet: bool) -> dict[str, Path]:
    """The pictures that there is something to draw for; one that fails never fails the run."""
    made = {}
    for name, draw in pictures.items():
        try:
            path = draw()
        except Exception as error:  # a game may fail to be drawn in ways of its own, and the work is done
            if not quiet:
                print(f"note: {error}", file=sys.stderr)
        else:
            if path is not None:
                made[name] = path
    return made


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _changes(overrides: list[str] | None, seed: int | None) -> list[str]:
    return [*(overrides or ()), *([f"seed={seed}"] if seed is not None else ())]


def _pictures(run: Run, video: bool) -> dict[str, Callable[[], Path | None]]:
    """How the curve is drawn and a match is filmed."""
    from lamarckian.record.plots import plot_curve

    def record() -> Path:
        from lamarckian.evaluate.matches import film
        from lamarckian.record.video import write_video

        return write_video(run.video_path, islice(film(run, None, "best", 0), FILM_FRAMES))

    return {"curve": lambda: plot_curve(run), **({"video": record} if video else {})}


def _print_table(rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
