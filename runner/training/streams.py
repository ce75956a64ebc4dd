"""Which random streams a training uses: those of the published one, or the named streams; or He
initialisation, from torch's global stream."""

PUBLISHED_SEEDS = range(42, 47)
"""Seeds of the published trainings."""
NAMED = "named"
PUBLISHED = "published"
HE = "he"


def streams_of(setting: str, seed: int) -> str:
    """What the setting "named", "published" or "he" means at one seed: published streams exist for
    the published seeds only.

    >>> streams_of("published", 42), streams_of("published", 47), streams_of("named", 42)
    ('published', 'named', 'named')
    >>> streams_of("he", 42), streams_of("he", 47)
    ('he', 'he')
    """
    if setting == PUBLISHED and seed not in PUBLISHED_SEEDS:
        return NAMED
    return setting
