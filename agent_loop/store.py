"""`campaign.db`: the tree of attempts, their results, the events and the running account of a campaign (SQLite, WAL).

Every write is one transaction, so a kill leaves the last committed state, and every state follows on an allowed one.
What lies in an attempt's folder is not repeated here. One writer at a time (the run's lock sees to it), with as many
threads as it likes; readers may look at any moment.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from robocoach.agent_loop.tree import State
from robocoach.configs.errors import UserError

SCHEMA_VERSION = 2
FOLLOWS: Mapping[State, frozenset[State]] = {
    "proposed": frozenset({"rejected", "preflight", "training", "failed", "abandoned"}),
    "preflight": frozenset({"proposed", "training", "failed", "abandoned"}),
    "training": frozenset({"evaluating", "failed", "abandoned"}),
    "evaluating": frozenset({"awaiting operator", "done", "failed", "abandoned"}),
    "awaiting operator": frozenset({"done", "failed", "abandoned"}),
    "rejected": frozenset(),
    "done": frozenset(),
    "failed": frozenset(),
    "abandoned": frozenset(),
}
"""Which state may follow on which; `preflight` goes back to `proposed` when the coach mends what could not run."""
_STATES = ", ".join(f"'{state}'" for state in get_args(State))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS attempt (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempt(number),
    start TEXT NOT NULL CHECK (start IN ('parent', 'base')),
    move TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ({_STATES})),
    coach TEXT NOT NULL,
    rule TEXT NOT NULL,
    rationale TEXT NOT NULL,
    change TEXT NOT NULL,
    reverted INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    cost_usd REAL NOT NULL DEFAULT 0,
    results TEXT NOT NULL DEFAULT '{{}}',
    created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    attempt INTEGER,
    detail TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_COLUMNS = "number, parent, start, move, state, coach, rule, rationale, change, reverted, reason, cost_usd, results"


@dataclass(frozen=True)
class Attempt:
    """A node of the tree, as it is kept."""

    number: int
    parent: int | None
    start: str
    move: str
    """`begin`, `extend`, `roll back` or `restart`."""
    state: State
    coach: str
    rule: str
    rationale: str
    change: dict[str, Any]
    """Dotted key → [parent's value, its value], computed."""
    reverted: bool
    reason: str
    cost_usd: float
    results: dict[str, Any]
    """By name: `batch`, `validation`, `heldout`, `training`, `seconds`, `trend`, `stages`, …"""


@dataclass(frozen=True)
class Event:
    """Something that happened, with the time in seconds since 1970."""

    at: float
    kind: str
    attempt: int | None
    detail: dict[str, Any]


class Campaign:
    """The store of one campaign. Opening creates it; a file that is no such store raises UserError."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / "campaign.db"
        self._lock = threading.RLock()
        try:
            where = f"{self.path.resolve().as_uri()}?mode=ro" if read_only else str(self.path)
            self._db = sqlite3.connect(where, uri=read_only, isolation_level=None, check_same_thread=False)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise UserError(f"{self.path} is of store version {version}, this program writes {SCHEMA_VERSION}")
            if not read_only:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.executescript(_SCHEMA)
                self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self.path} is damaged ({error}); move it away or take another --out") from None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def add(
        self,
        number: int,
        *,
        parent: int | None = None,
        start: str = "base",
        move: str = "begin",
        coach: str = "",
        rule: str = "",
        rationale: str = "the configuration as given",
        change: Mapping[str, Any] | None = None,
        reason: str = "",
        cost_usd: float = 0.0,
    ) -> None:
        """Adds a node in state `proposed`; one that is there already is proposed anew, its results kept."""
        with self._transaction() as db:
            db.execute(
                f"INSERT INTO attempt ({_COLUMNS}, created_at) VALUES"
                " (?, ?, ?, ?, 'proposed', ?, ?, ?, ?, 0, ?, ?, '{}', ?) ON CONFLICT (number) DO UPDATE SET"
                " parent=excluded.parent, start=excluded.start, move=excluded.move, state='proposed',"
                " coach=excluded.coach, rule=excluded.rule, rationale=excluded.rationale, change=excluded.change,"
                " reason=excluded.reason, cost_usd=excluded.cost_usd",
                (
                    number,
                    parent,
                    start,
                    move,
                    coach,
                    rule,
                    rationale,
                    json.dumps(dict(change or {})),
                    reason,
                    cost_usd,
                    time.time(),
                ),
            )

    def advance(
        self, number: int, state: State, *, reason: str | None = None, reverted: bool | None = None, **results: Any
    ) -> None:
        """Moves an attempt on and adds results to it, at once. Staying in a state only adds.

        Raises ValueError when the state does not follow on the attempt's own.
        """
        with self._transaction() as db:
            row = db.execute("SELECT state, results FROM attempt WHERE number=?", (number,)).fetchone()
            if row is None:
                raise ValueError(f"there is no attempt {number}")
            if state != row[0] and state not in FOLLOWS[row[0]]:
                raise ValueError(f"attempt {number} is {row[0]}, {state} does not follow on that")
            db.execute(
                "UPDATE attempt SET state=?, results=?, reason=COALESCE(?, reason), reverted=COALESCE(?, reverted)"
                " WHERE number=?",
                (state, json.dumps({**json.loads(row[1]), **results}), reason, reverted, number),
            )

    def record(self, kind: str, attempt: int | None = None, **detail: Any) -> None:
        """Appends an event."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO event (at, kind, attempt, detail) VALUES (?, ?, ?, ?)",
                (time.time(), kind, attempt, json.dumps(detail)),
            )

    def put(self, **values: Any) -> None:
        """Sets entries of the running account (JSON values), all at once."""
        with self._transaction() as db:
            for name, value in values.items():
                db.execute(
                    "INSERT INTO account VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value=excluded.value",
                    (name, json.dumps(value)),
                )

    def get(self, name: str, default: Any = None) -> Any:
        """An entry of the running account."""
        with self._lock:
            row = self._db.execute("SELECT value FROM account WHERE name=?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def attempts(self) -> list[Attempt]:
        """All nodes, oldest first."""
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM attempt ORDER BY number").fetchall()
        return [
            Attempt(*row[:8], json.loads(row[8]), bool(row[9]), row[10], row[11], json.loads(row[12])) for row in rows
        ]

    def events(self, kind: str | None = None) -> list[Event]:
        """Events in their order, of one kind when it is given."""
        with self._lock:
            rows = self._db.execute("SELECT at, kind, attempt, detail FROM event ORDER BY number").fetchall()
        return [Event(at, k, attempt, json.loads(detail)) for at, k, attempt, detail in rows if kind in (None, k)]

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
