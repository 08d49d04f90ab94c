"""What this folder raises: one sentence for whoever started the service."""


class LocalServiceError(Exception):
    """A local PostgreSQL or Redis can't be had; the message says why and what to change.

    Never holds a password.
    """
