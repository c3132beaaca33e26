"""The report: one page that shows claims, figures, tables, every run and its origin, from what is on disk."""
