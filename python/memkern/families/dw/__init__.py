"""The domain-wall operator of lattice QCD."""

PUBLIC = {"dw": "operator:case"}
