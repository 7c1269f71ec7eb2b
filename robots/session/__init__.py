"""Hardware evaluation sessions: the frozen plan, the trials with their verdicts, the signed record."""
