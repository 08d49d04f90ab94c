"""All mutants, by invariant."""

from tests.mutants.deliveries import DELIVERIES
from tests.mutants.events import EVENTS
from tests.mutants.isolation import ISOLATION
from tests.mutants.outbox import OUTBOX
from tests.mutants.outcomes import AMBIGUOUS
from tests.mutants.reservations import RESERVATIONS
from tests.mutants.secrets import SECRETS
from tests.mutants.wakeups import WAKEUPS

MUTANTS = (*RESERVATIONS, *EVENTS, *DELIVERIES, *OUTBOX, *WAKEUPS, *AMBIGUOUS, *ISOLATION, *SECRETS)
