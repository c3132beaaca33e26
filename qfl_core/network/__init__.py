"""A federation over a network, on Flower: the same rounds, with clients where their data lives."""
