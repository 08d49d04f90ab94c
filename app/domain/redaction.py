"""Bytes of unknown origin, made fit to be kept and read: whatever can be a secret is masked.

Too much is masked rather than too little: any long word may be a key, and a webhook's path is itself a credential.
"""

import base64
import json
import re

MASK = "***"
MOST_READ = 64 * 1024  # bytes that are looked at: more than anybody keeps, and done in a moment

_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|auth(?!ors?\b)|(?:api|access|private)[-_ ]?key|signature"
    r"|credential|cookie|session|jwt)[\w-]{0,32}"
)
_NAMED = re.compile(_NAMES, re.IGNORECASE)
# Each rule takes time in proportion to what it reads: nothing that follows a repetition without bound can fail.
_RULES = [
    (re.compile(pattern.encode(), re.IGNORECASE | re.DOTALL), mask.encode())
    for pattern, mask in (
        (r"-----BEGIN [^\n-]{0,40}KEY-----(?:(?!-----END).)*", MASK),
        (r"\b(bearer|basic)(?:\s|%20|\+){1,8}[^\s\"'<>]+", rf"\1 {MASK}"),
        # A name and its value: quoted inside a quoted text, quoted, a list or an object, bare.
        (
            rf"({_NAMES}\\{{0,8}}[\"']?\s{{0,8}}(?:[:=]>?|,|->|%3[ad])\s{{0,8}})"
            r"(?:(\\+[\"'])(?:\\.|[^\"'\\])*|(\")(?:\\.|[^\"\\])*|(')(?:\\.|[^'\\])*|[\[{][^\n]*|[^\n\"'&<>]+)",
            rf"\1\2\3\4{MASK}",
        ),
        (rf"({_NAMES})\s{{1,8}}(?:is\s{{1,8}})?[^\s\"'&<>]+", rf"\1 {MASK}"),
        (rf"({_NAMES}[^ -~][^a-z0-9]{{0,11}})[!-~]+", rf"\1{MASK}"),  # as a pickle has it
        (r"\b(whsec_|whsk_|dhk_|eyJ)[\w+/=.-]*", rf"\1{MASK}"),
        (r"(?:[\w+/=%-]|\\/){32,}", MASK),
    )
]
_URL = re.compile(rb"((?::|%3a)(?:\\{0,4}/|%2f){2})([^\s\"'<>/?#\\%]*)([^\s\"'<>]*)", re.IGNORECASE)
_WORD = bytes(set(range(256)) - set(b" \t\r\n\"'"))


def redact(raw: bytes) -> bytes:
    """`raw` with its secrets masked; of more than `MOST_READ` bytes only the beginning.

    JSON is read and written anew, so that no escape hides a name, and a broker envelope's base64 body is opened, so
    that people can read it. Anything else is searched as it is, less its NULs: UTF-16 looks like ASCII then.
    """
    if len(raw) > MOST_READ:  # the word that the cut goes through is no longer what it was
        return _masked(raw[:MOST_READ].replace(b"\0", b"").rstrip(_WORD)) + MASK.encode()
    try:
        tree = _opened(json.loads(raw))
        text = json.dumps(_without_secrets(tree), ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError):
        text = raw.replace(b"\0", b"")
    return _masked(text)


def _masked(text: bytes) -> bytes:
    text = _URL.sub(_url, text)
    for pattern, mask in _RULES:
        text = pattern.sub(mask, text)
    return text


def _url(found: re.Match[bytes]) -> bytes:
    """As far as its host; with an @ behind the first slash nobody knows which part is the host."""
    start, authority, rest = found.groups()
    _, at, host = authority.rpartition(b"@")
    if b"@" in rest:
        return bytes(start) + MASK.encode()
    return b"".join([start, at and b"***@", host, rest and b"/***"])


def _opened(tree: object) -> object:
    match tree:
        case {"body": str(body), "properties": {"body_encoding": "base64"} as properties, **others}:
            try:
                return {"body": _read(base64.b64decode(body, validate=True)), "properties": properties, **others}
            except ValueError:
                return tree
        case _:
            return tree


def _read(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _masked(body.replace(b"\0", b"")).decode(errors="backslashreplace")


def _without_secrets(tree: object) -> object:
    match tree:
        case dict():
            return {key: MASK if _NAMED.search(key) else _without_secrets(each) for key, each in tree.items()}
        case list():
            return [_without_secrets(each) for each in tree]
        case _:
            return tree
