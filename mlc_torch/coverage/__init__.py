"""How much of ML Compute's public surface is here: the list of it, as data, and the comparison with what is declared."""
