"""Franka through franky, cameras, the safety envelope, the FCI twin and the 10 Hz control loop."""
