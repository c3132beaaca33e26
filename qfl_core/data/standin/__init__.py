"""Generated data that stand in for the official files, and how close they come to them."""
