"""``python -m memkern.cli`` is the command ``memkern`` too."""

import sys

from memkern.cli import main

sys.exit(main())
