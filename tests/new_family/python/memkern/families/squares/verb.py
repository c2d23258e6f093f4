"""The verb squares."""

from memkern.cli.verbs import kernel_verb

SQUARES_VERB = kernel_verb(
    "squares",
    "squares of elements",
    ("memkern squares", "memkern squares -n 1000", "memkern squares -t 1,2"),
)
