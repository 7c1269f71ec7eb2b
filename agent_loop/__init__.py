"""The coach: attempts, evidence, proposals and selection. Sees Attempt → Evidence only."""
