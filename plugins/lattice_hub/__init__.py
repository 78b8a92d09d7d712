"""Model sources of ``lattice pull``, and the commands ``pull`` and ``models``. It must not know how a model is run."""
