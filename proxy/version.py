"""Which Sidefetch this is; here, since an installed package's metadata is read by what reads mail."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
