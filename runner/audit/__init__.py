"""Checks of the papers' printed formulas: one module per paper, one `Formula` per statement."""
