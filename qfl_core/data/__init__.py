"""Datasets: where they come from, how they become angles, how clients share them."""
