"""A coach from its name, as `--coach` takes it; a name that is none is refused before long work starts."""

from __future__ import annotations

from robocoach.agent_loop.tree import Coach
from robocoach.configs.errors import UserError

NAMES = ("rules", "tpe", "random", "one-shot", "none", "llm:PROVIDER:MODEL", "cmd:PROGRAM")


def make_coach(name: str) -> Coach:
    """The coach of that name. Raises UserError, one line, that names the valid ones."""
    kind, _, rest = name.partition(":")
    if name == "rules":
        from robocoach.agent_loop.coaches.rules import RuleCoach

        return RuleCoach()
    if name == "tpe" or name == "random":
        from robocoach.agent_loop.coaches.search import SearchCoach

        return SearchCoach(name)
    if name == "one-shot":
        from robocoach.agent_loop.coaches.fixed import OneShotCoach

        return OneShotCoach()
    if name == "none":
        from robocoach.agent_loop.coaches.fixed import NoCoach

        return NoCoach()
    if kind == "llm":
        provider, _, model = rest.partition(":")
        if not provider.strip() or not model.strip():
            raise UserError(f"--coach {name}: expected llm:PROVIDER:MODEL, such as llm:openai:NAME-OF-THE-MODEL")
        from robocoach.agent_loop.coaches.llm import LLMCoach

        return LLMCoach(provider, model)
    if kind == "cmd":
        if not rest.strip():
            raise UserError(f"--coach {name}: expected cmd:PROGRAM, the command line of a coding agent")
        from robocoach.agent_loop.coaches.command import CommandCoach

        return CommandCoach(rest)
    raise UserError(f"--coach {name}: no such coach; choose from {', '.join(NAMES)}")
