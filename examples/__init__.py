"""Five systems on Windlass, each in a folder of its own, small enough to be read in one go."""
