"""RaiderSTREAM: streaming through indices."""

PUBLIC = {"raider": "kernels:raider"}
