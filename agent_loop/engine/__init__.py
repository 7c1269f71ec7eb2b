"""The engine of a campaign: what is tried in which order, resumable at every step. See `search.py` for the order."""

from robocoach.agent_loop.engine.running import Running
from robocoach.agent_loop.engine.search import STOP_FILE, Engine, Finished

__all__ = ["STOP_FILE", "Engine", "Finished", "Running"]
