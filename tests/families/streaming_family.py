"""Records of figures of streaming kernels."""

from plotting import LONG, MIB, Family, Results, frame, own_and_faulty
from streaming_figure_records import (
    LONG_PLATFORM,
    barriers,
    bs,
    everything,
    loops,
    matvec,
    meshes,
    raider,
    stream,
    threads,
)

from memkern.families.streaming.findings import findings

FIGURES = (
    *("barrier-cost", "bs-fit", "bs-mesh", "loops-cycles", "loops-tlb-misses", "matvec"),
    *("matvec-traffic", "raider-kernels", "raider-scaling", "raider-sizes", "saturation", "sizes"),
)

TABLES = ("bs-t0-wmax", "loops-cycles", "raider-systems", "raider-table")

PUBLISHED = ("raider-kernels", "raider-scaling", "raider-sizes")  # figures that need no records

INPUTS = {
    **own_and_faulty(everything, "bandwidth_GBps"),
    "several": lambda: Results(
        [
            *everything(),
            *(
                row | {"bandwidth_GBps": 3 * row["bandwidth_GBps"]}
                for row in everything(platform=LONG_PLATFORM, environment_id="e2")
                if row["kernel"] != "launch.barrier"
            ),
            *barriers(counts=(1, 8, 112), name=LONG),
            *threads(counts=(1, 8, 112), name=LONG, environment_id="e2"),
        ]
    ),
    "few": lambda: frame(
        [
            *stream(sizes=[MIB, 2 * MIB], nt=False)[:2],
            *bs(numbers=[3])[:4],
            *meshes()[:3],
            *raider()[:1],
            *loops(names=["triad"], unrolls=[0])[:2],
            *threads(counts=(1, 2), names=["stream.add"]),
            *barriers(counts=(2,)),
            *matvec()[:2],
        ]
    ),
}

FAMILY = Family(
    section="streaming",
    findings=findings,
    title="Streaming",
    command="",
    figures=FIGURES,
    tables=TABLES,
    everything=everything,
    inputs=INPUTS,
    lacking=(["valid", "disturbed"], ["kernel", "valid"]),
    integers=("elements", "threads", "degree"),
    disturbed=lambda rows: rows.groupby("kernel").cumcount().eq(5) | rows["bytes_B"].eq(2**30),
    missing=[],
    images=11,
    shown="Wmax",
    published=(*PUBLISHED, "bs-fit", "bs-mesh", "bs-t0-wmax", "loops-cycles"),
    independent=("raider-systems",),
    # Of several unrollings with page walks, an undisturbed one is drawn.
    without_markers=(*PUBLISHED, "loops-tlb-misses"),
)
