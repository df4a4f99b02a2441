"""Clients that would take memory or time from others, against a whole Sidefetch with honest clients beside them."""
