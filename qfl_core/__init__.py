"""Quantum federated learning with deep-unfolded, proximal local training (DUQFL-Prox)."""
