"""The paper: Algorithms 1 to 3, the controller, the seven methods, losses and metrics."""
