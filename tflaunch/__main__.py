"""`python -m tflaunch`."""

import sys

from tflaunch.main import main

sys.exit(main())
