"""Entry point of ``python -m proxy``, which is the same as the command ``sidefetch``."""

import sys

from proxy.cli import main

if __name__ == "__main__":
    sys.exit(main())
