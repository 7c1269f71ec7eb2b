"""Policy plugins that LeRobot's own tools discover (`--plug.discover_packages_path=robocoach.policies.lerobot`)."""
