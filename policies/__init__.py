"""π0.5 and π0.5-nano, their processors and checkpoints, and the trainer."""
