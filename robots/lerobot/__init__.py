"""LeRobot plugins: the Franka robot and its teleoperators (`--plug.discover_packages_path=robocoach.robots.lerobot`).

LeRobot's loader imports every direct submodule; none of them imports a hardware SDK before it connects.
"""
