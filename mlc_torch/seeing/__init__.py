"""Reports on a graph: summary, picture, memory, profile."""
