"""What the ledgers tell, for people: as values (``model``), and those as a page (``page``, ``charts``), JSON or CSV
(``files``)."""
