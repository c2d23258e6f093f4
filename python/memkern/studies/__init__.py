"""Studies of a machine that use the engine: checks, comparisons, scaling, ECM."""
