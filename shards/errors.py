"""Errors that are the user's to mend: one sentence with the value, its place and the remedy."""


class UserError(ValueError):
    """A mistake in a recipe, an option or an input, raised before any data is read.

    The command line prints it alone, without a traceback, and exits with code 2.
    """

    def __init__(self, what: str, *, place: str = "", remedy: str = "") -> None:
        self.what, self.place, self.remedy = what, place, remedy
        super().__init__(". ".join(part.rstrip(".") for part in (what, place and f"Where: {place}", remedy) if part))


class IncompleteError(UserError):
    """Output that carries no marker of completion, or whose marker and files disagree. It is never read as whole."""
