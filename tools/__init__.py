"""Tools for readers and maintainers; nothing in ``qfl_core`` imports them."""
