"""What is measured, a module each, which names its job ``JOB``; see :mod:`benchmarks._job`."""
