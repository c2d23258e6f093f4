"""Cases of STREAM."""

from shapes import STREAMING_SHAPES, built, streaming_samples

SAMPLES = {
    **streaming_samples("stream"),
    # Its four kernels need barriers, which the last shape does not have.
    "stream.rotation": [built("stream.rotation", **shape) for shape in STREAMING_SHAPES[:-1]],
}
# The rotation uses the entries of the four kernels.
OWN_ENTRIES = ("stream.rotation",)
PER_ELEMENT = {
    **{"stream.copy": (16, 0), "stream.scale": (16, 1), "stream.add": (24, 1)},
    **{"stream.triad": (24, 2), "stream.rotation": (80, 4)},
}
