"""Folders of a processor's clock policies."""

from registers import CPU

POLICIES = {
    f"{CPU}/cpufreq/policy{k}/{name}": f"{kHz}\n"
    for k in range(2)
    for name, kHz in {"cpuinfo_min_freq": 800000, "cpuinfo_max_freq": 3500000,
                      "scaling_min_freq": 2000000, "scaling_max_freq": 3500000}.items()
}  # fmt: skip
