"""The ground floor: errors, named random streams, tables of names, paths, files, checks, progress, display."""
