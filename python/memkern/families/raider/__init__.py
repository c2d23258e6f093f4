"""RaiderSTREAM: streaming through indices."""
