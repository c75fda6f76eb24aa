"""Numbers of things, in texts for people."""


def counted(number: int, thing: str, things: str = "") -> str:
    """A number of things, with the noun in singular or plural.

    Args:
        number: how many.
        thing: the noun for one.
        things: the noun for others; default: ``thing`` with an "s".

    >>> counted(1, "worker"), counted(1200, "object"), counted(2, "entry", "entries")
    ('1 worker', '1,200 objects', '2 entries')
    """
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
