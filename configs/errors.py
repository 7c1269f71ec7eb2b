"""The one exception for a user's mistake: its text is the single line the user reads, with the mend in it."""


class UserError(Exception):
    """Something the user can mend. The command line prints the message, without a traceback, and exits with 2.

    The message is one line: what is wrong, what was expected, what to do.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
