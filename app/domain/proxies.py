"""An egress proxy, as its operator writes it: `http://[user:password@]host:port`."""

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from app.domain.urls import Unacceptable, parse_url

_SHAPE = re.compile(r"http://(?:(?P<login>[^/?#]*)@)?(?P<place>[^/?#@]+:[0-9]+)/?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the proxy is, and the value of its Proxy-Authorization header, which never shows in print."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def parse_proxy(text: str) -> Proxy | Unacceptable:
    """Reads a proxy's URL, or says in one sentence what is wrong with it, without a word of it.

    User and password are percent-encoded where they hold `/`, `?`, `#`, `@`, `%` or a colon in the user's name.
    """
    shape = _SHAPE.fullmatch(text)
    if not shape:
        return Unacceptable("write it as http://host:port or http://user:password@host:port, with no path")
    url = parse_url(f"http://{shape['place']}/")
    if isinstance(url, Unacceptable):
        return url
    if shape["login"] is None:
        return Proxy(url.origin.host, url.origin.port)
    user, colon, password = (unquote(part) for part in shape["login"].partition(":"))
    if not colon or ":" in user:
        return Unacceptable("the login of a proxy is user:password, and the user's name holds no colon")
    credentials = base64.b64encode(f"{user}:{password}".encode(errors="replace")).decode()
    return Proxy(url.origin.host, url.origin.port, f"Basic {credentials}")
