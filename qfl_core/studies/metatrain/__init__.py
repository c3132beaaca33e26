"""Train the controller's phi over many federations, so that a new one starts from what the others have taught.

:mod:`tasks` makes the federations, :mod:`curve` judges a controller on one of them, :mod:`search` improves it, and
:mod:`command` writes the file that ``controller: pretrained`` reads.
"""
