"""Configuration models and their YAML. Imports nothing of the other rooms."""
