"""LeRobot plugins for robots and cameras, importable without any hardware SDK."""
