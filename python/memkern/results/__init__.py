"""What follows from records alone: comparisons, verdicts, slowdowns, efficiencies, merged files.

Records and their files are those of `memkern.formats`.
"""

from memkern.formats import *  # noqa: F403
from memkern.formats import __all__ as __all__
