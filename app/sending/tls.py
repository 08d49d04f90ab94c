"""Whose certificates are believed."""

import ssl


def client_context(ca_bundle: str | None) -> ssl.SSLContext:
    """Verifies against the system's authorities and those of the PEM file `ca_bundle`; TLS 1.2 and later.

    Without the strict reading of RFC 5280 that Python 3.13 made its default: many a private authority leaves out
    key identifiers, and whether a receiver is trusted must not hang on the version of Python.
    """
    context = ssl.create_default_context()
    if ca_bundle is not None:
        context.load_verify_locations(cafile=ca_bundle)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
