"""The domain-wall operator of lattice QCD."""
