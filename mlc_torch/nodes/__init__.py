"""What a graph is made of: nodes, and which tensors a call feeds."""
