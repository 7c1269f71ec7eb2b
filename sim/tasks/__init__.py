"""One module a task: scene, stages, success, randomisation and the scripted demonstrator."""
