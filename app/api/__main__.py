"""`duehook api`: serves the HTTP API until it is told to stop."""

from app.api.app import CONNECTIONS
from app.api.server import serve
from app.core.presence import Presence
from app.process import begin_with_ledger, end
from app.settings import SettingsError

# Seconds to wait for a lock or a connection, then 503: those who want one locked row must not hold every connection.
PATIENCE = 2.0

runtime = begin_with_ledger("api", pool_size=CONNECTIONS, patience=PATIENCE)
try:
    with Presence(runtime.engine, "api"):
        serve(runtime, runtime.settings.api_host, runtime.settings.api_port)
except SettingsError as error:
    end("api", error)
finally:
    runtime.close()
