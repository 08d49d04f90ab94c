"""Is the service there, and can it do its work? Without a retry, and no key is needed."""

from dataclasses import replace

from app.client.calls import get
from app.client.nouns import Carrier, Noun, talks
from app.client.reading import one
from app.client.shapes import Live, Ready
from app.client.talks import Talk


class Health(Noun[Carrier]):
    """What the service says of itself."""

    @talks
    def live(self) -> Talk[Live]:
        """That the process answers; it asks nobody else."""
        return self._ask(replace(get("/healthz", one(Live)), answers_at_once=True))

    @talks
    def ready(self) -> Talk[Ready]:
        """Whether requests can be served, each dependency by name."""
        return self._ask(replace(get("/readyz", one(Ready)), answers_at_once=True))
