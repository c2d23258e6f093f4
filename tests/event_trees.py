"""Minimal /proc and /sys trees of processors whose events are in the table."""

_DEVICES = "sys/bus/event_source/devices"


def _cpu(vendor: str, family: int, model: int) -> dict[str, str]:
    lines = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
    return {"proc/cpuinfo": f"processor\t: 0\n{lines}\nprocessor\t: 1\n{lines}\n"}


def _unit(name: str, type: int, **formats: str) -> dict[str, str]:
    folder = f"{_DEVICES}/{name}"
    return {
        f"{folder}/type": f"{type}\n",
        **{f"{folder}/format/{field}": f"{bits}\n" for field, bits in formats.items()},
    }


_INTEL_CORE = _unit("cpu", 4, event="config:0-7", umask="config:8-15", cmask="config:24-31")


def _imc(number: int, type: int) -> dict[str, str]:
    """A memory controller of a machine with two sockets; units 0 and 28 read its counters.

    Its named events are Cascade Lake's, which older kernels also use for later processors.
    """
    folder = f"{_DEVICES}/uncore_imc_{number}"
    events = {"read": "0x03", "write": "0x0c"}
    return {
        **_unit(f"uncore_imc_{number}", type, event="config:0-7", umask="config:8-15"),
        f"{folder}/cpumask": "0,28\n",
        **{f"{folder}/events/cas_count_{k}": f"event=0x04,umask={v}\n" for k, v in events.items()},
        **{f"{folder}/events/cas_count_{k}.scale": "6.103515625e-5\n" for k in events},
        **{f"{folder}/events/cas_count_{k}.unit": "MiB\n" for k in events},
    }


CASCADE_LAKE = {
    **_cpu("GenuineIntel", 6, 85), **_INTEL_CORE, **_imc(0, 13), **_imc(1, 14),
    f"{_DEVICES}/uncore_imc_free_running_0/type": "20\n",
}  # fmt: skip
ICE_LAKE = {**_cpu("GenuineIntel", 6, 106), **_INTEL_CORE, **_imc(0, 13)}
SAPPHIRE_RAPIDS = {**_cpu("GenuineIntel", 6, 143), **_INTEL_CORE, **_imc(0, 70)}
ZEN_4 = {
    **_cpu("AuthenticAMD", 25, 17),
    **_unit("cpu", 4, event="config:0-7,32-35", umask="config:8-15"),
    **_unit("amd_umc_0", 30, event="config:0-7", rdwrmask="config:8-9"),
    f"{_DEVICES}/amd_umc_0/cpumask": "0\n",
    **_unit("amd_umc_1", 31, event="config:0-7", rdwrmask="config:8-9"),
    f"{_DEVICES}/amd_umc_1/cpumask": "0\n",
}

# Type and config of the counters of each quantity, from the sources named in the table.
COUNTERS = {
    "Cascade Lake": (CASCADE_LAKE, {
        "L2_load": [(4, 0x0151)], "L2_store": [(4, 0x0451)],
        "L3_load": [(4, 0x1FF1)], "L3_store": [(4, 0x40F0)],
        "memory_load": [(13, 0x0304)] * 2 + [(14, 0x0304)] * 2,
        "memory_store": [(13, 0x0C04)] * 2 + [(14, 0x0C04)] * 2,
        "tlb_misses": [(4, 0x0E08), (4, 0x0E49)],
    }),
    "Ice Lake": (ICE_LAKE, {
        "L2_load": [(4, 0x0151)], "L3_load": [(4, 0x1FF1)], "L3_store": [(4, 0x02F2)],
        "memory_load": [(13, 0x0F04)] * 2, "memory_store": [(13, 0x3004)] * 2,
        "tlb_misses": [(4, 0x0E08), (4, 0x0E49)],
    }),
    "Sapphire Rapids": (SAPPHIRE_RAPIDS, {
        "L2_load": [(4, 0x0151)], "L3_load": [(4, 0x1F25)], "L3_store": [(4, 0x0226)],
        "memory_load": [(70, 0xCF05)] * 2, "memory_store": [(70, 0xF005)] * 2,
        "tlb_misses": [(4, 0x0E12), (4, 0x0E13)],
    }),
    "Zen 4": (ZEN_4, {
        "L2_load": [(4, 0xFF44)], "L3_load": [(4, 0x0864), (4, 0xFF71), (4, 0xFF72)],
        "memory_load": [(30, 0x010A), (31, 0x010A)], "memory_store": [(30, 0x020A), (31, 0x020A)],
        "tlb_misses": [(4, 0xF045)],
    }),
}  # fmt: skip
