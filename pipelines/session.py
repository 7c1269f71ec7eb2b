"""`pipeline session`: counted trials of one or two checkpoints by a frozen plan, each with a verdict, then signed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.configs.models import Sim2RealConfig
    from robocoach.robots.rollout import Rollout
    from robocoach.robots.session.events import Verdict, VerdictKind
    from robocoach.robots.session.plan import Contestant, Plan, Trial
    from robocoach.robots.session.run import Operator, SessionRecord
    from robocoach.robots.thinker import ChunkPolicy

ABOUT = """Trials that count: a plan that is frozen first, a verdict for each trial, a record that is signed. With two
checkpoints every scene is run by both, in random order. Keys in a session: g go, s success, f failure, i invalid,
u undo, n note, space stops the arm, q leaves; go on with --resume."""
SECTIONS = (
    "task",
    "seed",
    "session",
    "deploy.robot",
    "deploy.host",
    "deploy.serial",
    "deploy.max_ticks",
    "deploy.rate",
    "deploy.blend_steps",
    "deploy.min_clock_ratio",
    "safety",
    "camera",
)
FROZEN = ("task", "seed", "session.", "deploy.", "safety.", "camera.")
"""Settings that a plan keeps."""
DEMONSTRATOR = "demonstrator"
EXTRAS = [
    Extra("--checkpoint", "checkpoint folder; twice for a comparison", "DIR", many=True),
    Extra("--policy", "demonstrator: the task's scripted expert in place of a checkpoint, twin only", "NAME"),
    Extra("--campaign", "campaign whose attempt awaits the operator: sets --checkpoint and --out", "DIR"),
    Extra("--out", "folder of the session (default: runs/session-<task>-<time>)", "DIR"),
    Extra("--resume", "go on with the session in --out (default: the last one in runs/)"),
    Extra("--plan-only", "write the plan and the placement sheets, and end; --resume begins the trials"),
    Extra("--operator", "who stands at the arm and judges", "NAME"),
    Extra("--sign", "sign the session in --out with a typed name; once signed, countersign it", "NAME"),
    Extra("--accept", "provenance fields of the checkpoints that may differ, comma separated", "FIELDS"),
    Extra(
        "--sim-rate",
        "success in simulation such as 45/50 (default: from score.json); once a checkpoint",
        "K/N",
        many=True,
    ),
    Extra("--data", "dataset whose start frames the camera mount is compared with before each trial", "DIR"),
    Extra("--config", "YAML file of settings", "FILE"),
]


def main(arguments: Sequence[str]) -> int:
    """Begins, resumes or signs a session; its files are made anew at the end of each."""
    parsed = parse(*parser("session", ABOUT, SECTIONS, EXTRAS, bare=True), arguments)
    from robocoach.configs import load

    extras = parsed.extras
    if extras["campaign"]:
        _of_campaign(extras)
    folder = _folder(extras, parsed.values.get("task", "stack-cube"))
    if extras["sign"] is not None:
        return _sign(folder, extras["sign"])
    if extras["resume"]:
        made = _resumed(folder, parsed.values, parsed.names, extras)
    else:
        file = Path(extras["config"]) if extras["config"] else None
        made = _begin(folder, load.load(parsed.values, file=file, names=parsed.names), extras)
    if extras["plan_only"]:
        print(f"the plan is frozen; begin the trials with: {_resume_command(folder)}")
        return 0
    return _run(folder, made, extras)


def _of_campaign(extras: dict[str, Any]) -> None:
    """Checkpoint and folder of the attempt that waits; a session that was begun there is gone on with."""
    from robocoach.pipelines import campaign_hardware

    if extras["checkpoint"] or extras["out"]:
        raise UserError("--campaign names checkpoint and folder itself; leave --checkpoint and --out out")
    _, checkpoint, folder = campaign_hardware.awaiting(Path(extras["campaign"]))
    extras["out"] = str(folder)
    if (folder / "plan.json").is_file():
        extras["resume"] = True
    else:
        extras["checkpoint"] = [str(checkpoint)]


def _folder(extras: dict[str, Any], task: str) -> Path:
    if extras["out"]:
        return Path(extras["out"])
    if extras["resume"] or extras["sign"] is not None:
        found = sorted(Path("runs").glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise UserError(f"no session in {Path('runs').resolve()}; name its folder with --out DIR")
        return found[-1].parent
    return Path("runs") / f"session-{task}-{time.strftime('%Y%m%d-%H%M%S')}"


def _resume_command(folder: Path) -> str:
    from robocoach.pipelines.cli import command

    return f"{command()} session --resume --out {shlex.quote(str(folder))}"


def code_version() -> str:
    """The program's version: what git says of the source where there is a repository, else the package's."""
    from importlib.metadata import version

    root = Path(__file__).resolve().parents[1]
    if (root / ".git").exists():
        told = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode == 0:
            return f"robocoach {version('robocoach')} ({told.stdout.strip()})"
    return f"robocoach {version('robocoach')}"


def _begin(folder: Path, config: Sim2RealConfig, extras: dict[str, Any]) -> Plan:
    """Freezes the plan of a new session. Raises UserError before anything is written."""
    from robocoach.configs import load
    from robocoach.datasets import splits
    from robocoach.pipelines import session_report, stages
    from robocoach.robots.session import plan as plans
    from robocoach.robots.session import run
    from robocoach.sim.tasks import get_task

    if (folder / plans.PLAN_FILE).exists():
        raise UserError(f"{folder} holds a session already; go on with {_resume_command(folder)}")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--out {folder} holds other files; take a new folder")
    stages.check_settings(config)
    contestants = _contestants(config, extras)
    _check(config, extras, len(contestants))
    settings = config.session
    names = [contestant.name for contestant in contestants]
    secret = plans.seal(names) if settings.blind else None
    made = plans.make_plan(
        get_task(config.task),
        contestants,
        splits.seeds("session", config.seed, settings.trials),
        distractors=settings.distractors,
        extra_trials=settings.extra_trials,
        labels=sorted(secret.names) if secret else names,
        commitment=secret.commitment if secret else "",
        time_limit_s=config.deploy.max_ticks / 10,
        robot=config.deploy.robot,
        serial=config.deploy.serial,
        operator=extras["operator"] or "",
        verdict=settings.verdict,
        reference=settings.reference,
        simulated=_simulated(contestants, extras),
        settings={
            key: value for key, value in load.flatten(config.model_dump(), "settings").items() if key.startswith(FROZEN)
        },
        accept=tuple(_words(extras["accept"])),
        code_version=code_version(),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    try:
        run.begin(folder, made, secret)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be written ({error.strerror}); take another folder") from None
    print(f"session in {folder}: {_told(made)}")
    print(f"  {session_report.could_see(settings.trials, len(contestants), settings.reference)}")
    if settings.verdict == "ask" or extras["plan_only"]:
        _write_sheets(made, folder)
    return made


def _told(made: Plan) -> str:
    who = " against ".join(contestant.name for contestant in made.contestants)
    blind = ", blind" if made.blind else ""
    return f"{made.task}, {who}{blind}, {len(made.scenes)} scenes, {len(made.trials)} trials, plan {made.digest[:16]}"


def _write_sheets(made: Plan, folder: Path) -> None:
    from robocoach.robots.session import placement

    files = placement.write_sheets(made, folder / placement.FOLDER)
    print(f"  placement sheets: {files[0]} … {files[-1].name} (print at 100 %)")


def _words(text: str | None) -> list[str]:
    return sorted({word.strip() for word in (text or "").split(",") if word.strip()})


def _check(config: Sim2RealConfig, extras: dict[str, Any], checkpoints: int) -> None:
    settings, robot = config.session, config.deploy.robot
    if settings.blind and checkpoints < 2:
        raise UserError("--blind hides which of two checkpoints runs; give --checkpoint twice, or leave it out")
    if settings.verdict == "auto" and robot != "twin":
        raise UserError(f"--verdict auto needs ground truth, which only --robot twin has, not {robot}; leave it out")
    if settings.verdict == "ask" and not (extras["operator"] or "").strip():
        raise UserError("a session names who judges: add --operator NAME (or, on the twin, --verdict auto)")
    if settings.distractors and robot == "twin":
        raise UserError("--distractors are put on a real table; the twin has the task's objects only")
    if config.deploy.dry_run:
        raise UserError("a session counts trials, and --dry-run moves nothing; use pipeline deploy --dry-run")
    if robot != "twin" and not config.deploy.serial:
        raise UserError("the record names the arm: add --serial, the number on its base")


def _contestants(config: Sim2RealConfig, extras: dict[str, Any]) -> list[Contestant]:
    """The checkpoints, proven whole, with names as short as tells them apart. Raises UserError."""
    from robocoach.robots.session.plan import Contestant

    given = [Path(text) for text in extras["checkpoint"] or []]
    if extras["policy"]:
        if extras["policy"] != DEMONSTRATOR or given:
            raise UserError(f"--policy {extras['policy']}: only {DEMONSTRATOR} is known, and it takes no --checkpoint")
        if config.deploy.robot != "twin":
            raise UserError("the scripted demonstrator needs ground truth, which only --robot twin has")
        return [Contestant(DEMONSTRATOR, "", "the task's scripted expert")]
    if not 1 <= len(given) <= 2:
        raise UserError(
            f"a session takes --checkpoint once or twice, not {len(given)} times (or --policy {DEMONSTRATOR})"
        )
    digests = [_digest(path) for path in given]
    if len(set(digests)) < len(digests):
        raise UserError("both checkpoints are the same, byte for byte; give two different ones")
    return [
        Contestant(name, digest, str(path))
        for name, digest, path in zip(_short_names(given), digests, given, strict=True)
    ]


def _digest(checkpoint: Path) -> str:
    from robocoach.policies.checkpoint import verify
    from robocoach.policies.files import MANIFEST_FILE, sha256

    verify(checkpoint)
    return sha256(checkpoint / MANIFEST_FILE)


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path that tell them apart, without `checkpoints/last`."""
    parts = [path.resolve().parts[1:] for path in paths]
    shortened = [part[:-2] if len(part) > 2 and part[-2] == "checkpoints" else part for part in parts]
    if len({*shortened}) < len(shortened):
        shortened = parts
    for length in range(1, max(map(len, shortened)) + 1):
        names = ["/".join(part[-length:]) for part in shortened]
        if len({*names}) == len(names) and not all(name.isdigit() for name in names):
            return names
    return ["/".join(part) for part in shortened]


def _simulated(contestants: Sequence[Contestant], extras: dict[str, Any]) -> dict[str, str]:
    """Name → success in simulation, as given or as found beside the checkpoint. Raises UserError."""
    from robocoach.pipelines.session_report import parse_rate, simulated_rate

    given = list(extras["sim_rate"] or [])
    if len(given) > len(contestants):
        raise UserError(f"--sim-rate was given {len(given)} times for {len(contestants)} checkpoints")
    for text in given:
        parse_rate(text)
    found = {contestant.name: simulated_rate(Path(contestant.source)) for contestant in contestants}
    found |= {contestant.name: text for contestant, text in zip(contestants, given, strict=False)}
    return {name: text for name, text in found.items() if text}


def _resumed(folder: Path, values: dict[str, Any], names: dict[str, str], extras: dict[str, Any]) -> Plan:
    """The frozen plan; what is given beside it must agree. Raises UserError."""
    from robocoach.configs import load
    from robocoach.robots.session import placement
    from robocoach.robots.session import plan as plans

    made = plans.read_plan(folder)
    wanted = load.flatten(load.build({**made.settings, **values}, names).model_dump(), "settings")
    plans.same_as(made, wanted)
    given = [str(Path(text)) for text in extras["checkpoint"] or []]
    if given and given != [contestant.source for contestant in made.contestants]:
        raise UserError("the plan is frozen with other checkpoints; leave --checkpoint out")
    if extras["operator"] not in (None, made.operator):
        raise UserError(
            f"the plan names operator {made.operator}; leave --operator out, or begin a session of your own"
        )
    print(f"session in {folder}: {_told(made)}")
    if made.verdict == "ask" and not (folder / placement.FOLDER / "true-scale.pdf").is_file():
        _write_sheets(made, folder)
    return made


def _run(folder: Path, made: Plan, extras: dict[str, Any]) -> int:
    from robocoach.configs import load
    from robocoach.pipelines import session_report, stages
    from robocoach.pipelines.cli import Interrupted
    from robocoach.robots import camera_compare
    from robocoach.robots.rig import open_rig
    from robocoach.robots.session import run

    if run.read_record(folder).state.closed:
        return _report(folder)
    config = load.build(made.settings)
    stages.check_settings(config)
    if made.verdict == "ask" and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a session with an operator needs a terminal; on the twin --verdict auto needs none")
    policies = _policies(made)  # before the twin runs: its clock has to keep time
    reference = camera_compare.load(Path(extras["data"])) if extras["data"] else None
    try:
        with open_rig(config.deploy, config.task, config.camera) as rig:
            if made.verdict == "ask":
                from robocoach.pipelines.session_screen import operate

                record = operate(rig, policies, folder, reference=reference)
            else:
                record = run.run_session(rig, policies, folder, _narrator(made), reference=reference)
    except KeyboardInterrupt:
        raise Interrupted(_resume_command(folder)) from None
    finally:
        session_report.write(run.read_record(folder))
    if not record.state.closed:
        print(f"left open; go on with: {_resume_command(folder)}")
    return _report(folder)


def _policies(made: Plan) -> dict[str, ChunkPolicy]:
    """Every checkpoint of the plan, loaded; refuses one that has changed. Raises UserError."""
    from robocoach.robots.scripted import ScriptedPolicy

    found: dict[str, ChunkPolicy] = {}
    for contestant in made.contestants:
        if contestant.name == DEMONSTRATOR and not contestant.digest:
            found[contestant.name] = ScriptedPolicy(made.task)
            continue
        source = Path(contestant.source)
        if _digest(source) != contestant.digest:
            raise UserError(f"{source} is not the checkpoint that was planned with; restore it, or begin a new session")
        from robocoach.policies.checkpoint import load_policy

        found[contestant.name] = load_policy(source, threads=1)
    return found


def _narrator(made: Plan) -> Operator:
    """The automatic operator, telling each verdict in a line."""
    from robocoach.robots.session.run import AutoOperator

    class Narrator(AutoOperator):
        def verdict(self, trial: Trial, rollout: Rollout, choices: tuple[VerdictKind, ...]) -> Verdict:
            given = super().verdict(trial, rollout, choices)
            again = f", again for {trial.replaces}" if trial.replaces else ""
            why = f" ({given.reason})" if given.reason else ""
            print(
                f"  trial {trial.number} of {len(made.trials)}, scene {trial.scene}, {trial.label}{again}: "
                f"{given.kind}{why}, {rollout.ticks / rollout.rate_hz:.1f} s at {rollout.rate_hz:.2f} Hz",
                flush=True,
            )
            return given

    return Narrator()


def _sign(folder: Path, name: str) -> int:
    from robocoach.robots.session.run import Session

    with Session(folder) as session:
        session.sign(name)
    return _report(folder)


def _report(folder: Path) -> int:
    from robocoach.pipelines import session_report
    from robocoach.robots.session import run

    record: SessionRecord = run.read_record(folder)
    content = session_report.write(record)
    print(session_report.line(content))
    print(f"{folder / session_report.PAGE}")
    if content["status"] != "signed":
        from robocoach.pipelines.cli import command

        print(f"sign it with: {command()} session --sign 'YOUR NAME' --out {shlex.quote(str(folder))}")
    return 0
