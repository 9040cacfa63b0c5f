"""What a run leaves behind: its folder, metrics, progress display, checkpoints, curves and videos."""
