"""Records of figures of streaming kernels."""

from plotting import LONG, MIB, Family, Results, frame
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

PUBLISHED = ("raider-kernels", "raider-scaling", "raider-sizes")  # figures that need no records

INPUTS = {
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
    everything=everything,
    missing=[],
    images=11,
    shown="Wmax",
    marked=("At the largest size (256 MiB): copy 45 GB/s (disturbed) with non-temporal stores",),
)
