"""``python -m proxy`` is ``sidefetch``."""

import sys

from proxy.cli import main

if __name__ == "__main__":
    sys.exit(main())
