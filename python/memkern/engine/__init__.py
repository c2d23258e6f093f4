"""The engine: it prepares cases, chooses variants, samples, judges, records and sweeps."""
