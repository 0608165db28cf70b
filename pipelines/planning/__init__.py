"""Planning: which input files there are, what a run's folder knows of them, and how they are cut into splits."""
