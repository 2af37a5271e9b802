"""Reports of runs: one self-contained HTML page with charts and pictures."""
