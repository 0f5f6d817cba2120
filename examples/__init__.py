"""Five example systems on Windlass. Each has its own folder, and is short enough to read as a whole."""
