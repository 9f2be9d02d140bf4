"""Random programs, run on the package and on its slow twins."""
