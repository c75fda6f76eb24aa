"""Those who take part, a module each; see :mod:`benchmarks._contestants`."""
