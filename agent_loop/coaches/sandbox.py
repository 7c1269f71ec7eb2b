"""Runs a stranger's program in one folder, with a clean environment, a time limit, and as much of a wall as there is.

With `bwrap`, or else with `unshare`, the file system outside of the folder is read-only to the program, one folder (the
campaign, where validation results lie) is hidden from it, and all of its processes end with it. Everything else that
the user may read stays readable, and the network stays open: a coding agent needs both. Where neither tool works there
is **no isolation**: the program runs with all rights of the user, and only its process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal

from robocoach.configs.errors import UserError

Wall = Literal["bwrap", "unshare", "none"]
KEPT_BYTES = 200_000
"""Of each output stream the last so many bytes are kept."""
GRACE_S = 5.0
"""Between asking a program to end and ending it."""
COACH_ENV = "ROBOCOACH_COACH_ENV"
"""Names of variables, comma separated, that the program gets besides the clean environment."""

# Makes a mount namespace read-only but for the folder $1, with $2 (if any) hidden. Descriptor 9 keeps the folder
# reachable while what lies above it is covered. Afterwards no capability is left that could undo it.
_UNSHARED = r"""
set -eu
folder=$1 hidden=$2; shift 2
exec 9<"$folder"
mount --make-rprivate /
if [ -n "$hidden" ]; then mount -t tmpfs -o mode=0755,size=1m hidden "$hidden"; mkdir -p "$folder"; fi
mount -c --bind /proc/self/fd/9 "$folder"
exec 9<&-
exec 8</proc/self/mountinfo
while read -r _ _ _ _ point flags _ <&8; do
  point=$(printf '%b' "$(printf %s "$point" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')")
  [ "$point" = "$folder" ] && continue
  [ -e "$point" ] || continue  # covered by what is hidden
  case ",$flags," in *,ro,*) continue ;; esac
  flags=$(printf %s ",$flags," | sed 's/,rw,/,/;s/^,//;s/,$//')
  mount -o "remount,bind,ro${flags:+,$flags}" "$point"
done
exec 8<&-
cd "$folder"
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    timed_out: bool
    stdout: str
    stderr: str

    @property
    def decisive(self) -> str:
        """The line of its errors that says most: the last that names an error, else the last one."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        named = [line for line in lines if _TELLING.search(line)]
        return (named or lines or ["it wrote nothing"])[-1][:300]


_TELLING = re.compile(r"error|exception|fatal|denied|refused|not found|limit|invalid|cannot", re.IGNORECASE)


def environment(folder: Path) -> dict[str, str]:
    """PATH, HOME and TMPDIR (the folder), LANG, and what ROBOCOACH_COACH_ENV names; UserError when one is missing."""
    found = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    for name in filter(None, (part.strip() for part in os.environ.get(COACH_ENV, "").split(","))):
        if name not in os.environ:
            raise UserError(f"{COACH_ENV} names {name}, which is not set; set it, or take it out of {COACH_ENV}")
        found[name] = os.environ[name]
    return found


@cache
def wall() -> Wall:
    """What isolates programs on this machine, found by trying."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("bwrap", "unshare"):
            if not shutil.which(kind) or (kind == "unshare" and not shutil.which("setpriv")):
                continue
            command = _walled(kind, ["true"], Path(folder).resolve(), None)
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0:
                    return kind
    return "none"


def _walled(kind: Wall, argv: Sequence[str], folder: Path, hidden: Path | None) -> list[str]:
    """The command line that runs `argv` in the folder behind a wall."""
    if kind == "bwrap":
        cover = ["--tmpfs", str(hidden)] if hidden is not None else []
        keep = ["--bind", str(folder), str(folder), "--chdir", str(folder)]
        alone = ["--unshare-user", "--unshare-pid", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        return ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *cover, *keep, *alone, "--", *argv]
    if kind == "unshare":
        alone = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        script = ["sh", "-c", _UNSHARED, "sandbox", str(folder), str(hidden or "")]
        return ["unshare", *alone, *script, *argv]
    return list(argv)


def run(argv: Sequence[str], folder: Path, hidden: Path | None, environ: Mapping[str, str], timeout_s: float) -> Ended:
    """Runs a program in the folder to its end, or to the time limit; nothing of it is left running afterwards.

    Raises UserError when it cannot be started.
    """
    command = _walled(wall(), argv, folder.resolve(), hidden.resolve() if hidden is not None else None)
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "KILL", "--", *command]  # a killed campaign leaves no agent behind
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(f"{argv[0]} cannot be started ({error}); name another program after cmd:") from None
    streams = [_Kept(process.stdout), _Kept(process.stderr)]
    timed_out = False
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
    stdout, stderr = (stream.text() for stream in streams)
    return Ended(process.returncode, timed_out, stdout, stderr)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


class _Kept:
    """The end of an output stream, read as it comes, so that a chatty program neither blocks nor fills the memory."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            return
        with stream:
            while piece := os.read(stream.fileno(), 65_536):
                self._pieces.append(piece)
                self._size += len(piece)
                while self._size - len(self._pieces[0]) > KEPT_BYTES:
                    self._size -= len(self._pieces.popleft())

    def text(self) -> str:
        """What was kept; waits a little for the stream to end."""
        self._thread.join(GRACE_S)
        return b"".join(self._pieces)[-KEPT_BYTES:].decode(errors="replace")
