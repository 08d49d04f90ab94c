"""Invariant 11: a secret, a payload or a full URL never reaches a log, a Celery argument, Flower or a metric label."""

from tests.mutants.mutant import Edit, Mutant

LOGS = "app/logs.py"
POISON = "app/core/poison.py"
FAULTS = "tests/unit/test_faults.py::test_no_way_into_a_log_takes_an_exception_s_words_along"
REPR = "tests/unit/test_repr.py::test_a_thing_that_holds_a_secret_does_not_show_it"
KEPT = "tests/integration/test_poison.py::test_no_secret_is_kept_nor_logged"
RAISED = "tests/integration/test_poison.py::test_what_is_raised_is_recorded_with_the_ids_and_goes_on_without_its_words"
LOG_OF_THE_DATABASE = (
    "tests/integration/test_poison.py::test_the_log_of_the_database_holds_neither_a_refused_statement_nor_its_row"
)
REDACTED = "tests/unit/test_redaction.py::"


def _mutant(name: str, guard: str, edit: Edit | tuple[Edit, ...], change: str, *tests: str) -> Mutant:
    return Mutant(name, 11, guard, edit if isinstance(edit, tuple) else (edit,), change, tests)


SECRETS = (
    _mutant(
        "exception-with-its-words",
        "An exception is logged without its words.",
        Edit(
            "app/domain/faults.py",
            '    return " ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None), constraint)))',
            '    return " ".join(filter(None, (type(error).__name__, str(error), constraint)))',
        ),
        "its text is told with its kind",
        FAULTS,
    ),
    _mutant(
        "libraries-log-exceptions",
        "What libraries log goes the same way.",
        Edit(
            LOGS,
            "foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared, _cut_asyncio_short],",
            "foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared[:2], _cut_asyncio_short],",
        ),
        "exceptions of the standard library's loggers are formatted by it",
        FAULTS,
    ),
    _mutant(
        "asyncio-quotes",
        "asyncio's own words about a task are cut to their first line.",
        Edit(
            LOGS,
            "foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared, _cut_asyncio_short],",
            "foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],",
        ),
        "they are logged whole",
        FAULTS,
    ),
    _mutant(
        "uncaught-with-its-words",
        "What nobody caught is told like any other.",
        Edit(LOGS, "    sys.excepthook = _uncaught\n", ""),
        "Python's own excepthook stays",
        FAULTS,
    ),
    _mutant(
        "uncaught-in-a-thread",
        "In a thread too.",
        Edit(LOGS, "    threading.excepthook = _uncaught_in_thread\n", ""),
        "Python's own excepthook stays",
        FAULTS,
    ),
    _mutant(
        "raised-to-celery",
        "A task raises without its words: Celery logs them and shows them to Flower.",
        Edit(
            POISON,
            "        raise FailedError(kinds(error)) from None",
            "        raise FailedError(str(error)) from error",
        ),
        "the words go on",
        RAISED,
    ),
    _mutant(
        "poison-kept-as-it-came",
        "A message that nobody can act on is kept redacted.",
        Edit(POISON, "            body=redact(found.raw)[:MOST_KEPT],", "            body=found.raw[:MOST_KEPT],"),
        "its body is kept as it came",
        KEPT,
    ),
    _mutant(
        "poison-texts-as-they-came",
        "So are the task it names and what is wrong with it.",
        Edit(
            POISON,
            '    return redact(text.encode(errors="replace")).decode(errors="replace")[:MOST_TEXT]',
            '    return text.encode(errors="replace").decode(errors="replace")[:MOST_TEXT]',
        ),
        "texts are kept as they came",
        KEPT,
    ),
    _mutant(
        "url-unmasked",
        "A webhook's path is itself a credential: a URL is told as far as its host.",
        Edit("app/domain/redaction.py", "    text = _URL.sub(_url, text)\n", ""),
        "URLs are left as they are",
        f"{REDACTED}test_a_secret_is_masked",
        KEPT,
    ),
    _mutant(
        "names-unmasked",
        "What stands under a secret's name is masked; the rules for texts stand behind short ones.",
        Edit(
            "app/domain/redaction.py",
            "{key: MASK if _NAMED.search(key) else _without_secrets(each) for key, each in tree.items()}",
            "{key: _without_secrets(each) for key, each in tree.items()}",
        ),
        "names in JSON are not looked at",
        f"{REDACTED}test_a_secret_is_masked",
    ),
    _mutant(
        "payload-shown",
        "A new event does not show its data.",
        Edit(
            "app/ledger/events.py",
            "    type: str\n    data: str = field(repr=False)\n",
            "    type: str\n    data: str = field()\n",
        ),
        "data is in its repr",
        REPR,
    ),
    _mutant(
        "endpoint-shows-its-url",
        "An endpoint does not show its URL.",
        Edit(
            "app/core/endpoints.py",
            "    url: str = field(repr=False)\n    event_types",
            "    url: str = field()\n    event_types",
        ),
        "url is in its repr",
        REPR,
    ),
    _mutant(
        "secret-shown",
        "What was created or rotated does not show its secret.",
        Edit(
            "app/core/endpoints.py",
            "    endpoint: Endpoint\n    secret: str = field(repr=False)",
            "    endpoint: Endpoint\n    secret: str = field()",
        ),
        "secret is in its repr",
        REPR,
    ),
    _mutant(
        "row-in-an-error",
        "A statement's parameters are in no error.",
        Edit("app/ledger/database.py", "        hide_parameters=True,  #", "        hide_parameters=False,  #"),
        "hide_parameters off",
        "tests/integration/test_poison.py::test_an_error_of_the_database_holds_none_of_the_row",
    ),
    _mutant(
        "statement-in-the-database-s-log",
        "A refused statement is not in the log of the database.",
        Edit("app/local/postgres.py", '    "log_min_error_statement": "panic",\n', ""),
        "PostgreSQL's own default",
        LOG_OF_THE_DATABASE,
    ),
    _mutant(
        "row-in-the-database-s-log",
        "The row that it names is not either.",
        Edit("app/local/postgres.py", '    "log_error_verbosity": "terse",\n', ""),
        "PostgreSQL's own default",
        LOG_OF_THE_DATABASE,
    ),
    _mutant(
        "relay-tells-the-url",
        "The relay names what went wrong and not its words, which may hold the broker's URL.",
        Edit("outbox_relay/relay.py", "type(error.__cause__ or error).__name__", "repr(error.__cause__ or error)"),
        "the words are logged",
        "tests/integration/test_relay.py::test_what_is_wrong_with_a_broker_is_told_without_its_words",
    ),
    _mutant(
        "message-with-more-than-ids",
        "A wake-up names ids and when they are due, nothing else.",
        Edit(
            "workers/message.py",
            "        case [list(ids), list(dues)] if task in WITH_IDS and len(ids) == len(dues) <= MOST_IDS:",
            "        case [list(ids), list(dues), *_] if task in WITH_IDS and len(ids) == len(dues) <= MOST_IDS:",
        ),
        "further arguments are let through",
        "tests/unit/test_message_gate.py::test_what_nobody_can_act_on_is_kept_out",
    ),
    _mutant(
        "wakeup-tells-whose-it-is",
        "Its arguments and what Flower shows of them are numbers.",
        Edit(
            "outbox_relay/wire.py",
            "            ids = [row.ref for row in wakeup.rows]\n",
            '            ids: list[Any] = [f"{row.tenant}:{row.ref}" for row in wakeup.rows]\n',
        ),
        "the tenant goes into the arguments",
        "tests/integration/test_relay.py::test_a_wake_up_holds_numbers_alone",
    ),
    _mutant(
        "stored-unsealed",
        "Secrets and header values are stored sealed.",
        Edit(
            "app/ledger/sealing.py",
            "        return self._fernet.encrypt(text.encode())",
            "        return text.encode()",
        ),
        "seal keeps the text",
        "tests/contract/test_secrets.py::test_neither_secret_nor_header_is_stored_as_it_is",
    ),
    _mutant(
        "refusal-quotes-the-url",
        "A URL that is refused is not quoted.",
        Edit(
            "app/domain/urls.py",
            'return Unacceptable("a host is a DNS name, an IPv4 address or an IPv6 address in brackets")',
            'return Unacceptable(f"a host is a DNS name, an IPv4 address or an IPv6 address in brackets,'
            ' and not {host}")',
        ),
        "the sentence holds the host",
        "tests/unit/test_urls.py::test_any_other_url_is_refused_in_a_sentence_that_does_not_quote_it",
    ),
    _mutant(
        "settings-shown",
        "Settings do not show their secrets.",
        Edit(
            "app/settings.py", "    metrics_token: SecretStr | None = Field(", "    metrics_token: str | None = Field("
        ),
        "SecretStr → str",
        "tests/unit/test_settings.py::test_no_secret_shows_when_settings_are_printed",
    ),
    _mutant(
        "settings-refusal-quotes",
        "A URL whose password is not escaped is refused before anybody names a piece of it.",
        Edit(
            "app/settings.py",
            '    return bool(parts.scheme) and ("@" not in url or (url.count("@") == 1 and "@" in parts.netloc))',
            "    return bool(parts.scheme)",
        ),
        "every URL that can be split is taken",
        "tests/unit/test_settings.py::test_a_url_whose_password_is_not_escaped_is_refused_without_a_piece_of_it",
    ),
)
