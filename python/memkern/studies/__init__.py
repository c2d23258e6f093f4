"""Studies of a machine that use the engine: checks, calibration, comparisons, scaling, ECM."""
