"""The parts of ``bin/bench scale`` (``bench_scale``): how a broker's costs grow with what it holds."""
