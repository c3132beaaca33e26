"""Questions that need training: each module asks one and answers it with a table."""
