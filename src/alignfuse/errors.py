"""Errors that a user can mend."""


class UserError(Exception):
    """A user's mistake in one clear line: what, where (file and row) and the remedy. The command line exits with 2."""
