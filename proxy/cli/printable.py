"""Text that clients or brokers choose, for a terminal."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """Replace the unprintable characters of *text*, such as control codes of the terminal or the text direction."""
    return "".join(each if each.isprintable() else "?" for each in text)
