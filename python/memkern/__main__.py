"""``python -m memkern`` is the command ``memkern``."""

import sys

from memkern.cli import main

sys.exit(main())
