"""Results derived from records: comparisons, verdicts, slowdowns, efficiencies, merged files.

`memkern.formats` defines records and their files.
"""

from memkern.formats import *  # noqa: F403
from memkern.formats import __all__ as __all__

__dir__ = __all__.copy  # public names only
