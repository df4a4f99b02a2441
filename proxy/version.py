"""The version of Sidefetch, as a constant: to read it from the metadata of the package imports the mail parser."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
