"""Errors that the user can fix: one sentence with the value, its place and the remedy."""


class UserError(ValueError):
    """A mistake in a recipe, an option or an input, raised before any data is read.

    The command line prints it alone, without a traceback, and exits with code 2.
    """

    def __init__(self, what: str, *, place: str = "", remedy: str = "") -> None:
        self.what, self.place, self.remedy = what, place, remedy
        super().__init__(". ".join(part.rstrip(".") for part in (what, place and f"Where: {place}", remedy) if part))


class IncompleteError(UserError):
    """Output without a marker of completion, or whose files disagree with the marker. It is never read as complete."""
