"""The list of mutants can't rot: every edit applies, every test exists, every invariant and every guard has one."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.ledgers import rows
from tests.mutants.every import MUTANTS
from tests.mutants.mutant import Edit, Mutant, NoLongerAppliesError
from tests.mutants.running import ROOT, copy_tree, run_tests

# Constraints of the database that guard none of the invariants: what they keep out would be nonsense, and harmless.
ELSEWHERE = {
    "api_keys_check": "who may ask, not what becomes of it",
    "api_keys_hash_check": "a hash is one",
    "api_keys_hash_key": "a key is one",
    "api_keys_scope_check": "a scope is one",
    "api_keys_tenant_check": "a name is one",
    "audit_log_tenant_check": "a name is one",
    "endpoints_check": "a disabled endpoint has the time of it",
    "endpoints_event_types_check": "an endpoint wants something",
    "endpoints_max_in_flight_check": "a limit is above zero",
    "endpoints_rate_per_second_check": "a rate is above zero",
    "endpoints_signing_check": "a way of signing is one",
    "endpoints_status_check": "a state of an endpoint is one",
    "endpoints_tenant_check": "a name is one",
    "jobs_check": "done is not more than all",
    "jobs_done_check": "done is not below zero",
    "jobs_erasing": "one erasure of a tenant at a time is enough",
    "jobs_status_check": "a state of a job is one",
    "jobs_tenant_check": "a name is one",
    "kept_answers_body_check": "a digest is one",
    "kept_answers_request_check": "a digest is one",
    "kept_answers_status_check": "only a success is kept",
    "kept_answers_tenant_check": "a name is one",
    "paces_check": "a closed pace has its time and its why",
    "paces_check1": "failures have a beginning",
    "paces_closed_why_check": "a why is one",
    "poison_messages_digest_key": "a message that comes again counts up",
    "poison_messages_reason_check": "a reason is one",
    "processes_counted_check": "a count is a number",
    "processes_gauges_check": "a gauge is a number",
    "reservations_seq_key": "the number of an id is drawn once",
    "service_horizon_check": "a time is one",
    "service_max_age_check": "a time is above zero",
    "service_max_event_bytes_check": "a size is above zero",
    "service_scan_share_check": "a share is a per cent",
    "service_single_check": "there is one row of settings",
    "sql_grants_tenant_check": "a name is one",
}
# Trigger functions of the same kind.
TRIGGERS_ELSEWHERE = {
    "audit_refused": "the log of who changed what",
    "endpoint_begins": "an endpoint has a pace",
    "keep_counted": "what ended processes had counted",
    "key_stays_revoked": "who may ask, not what becomes of it",
    "refuse_erasing": "nothing is made for a tenant that is being erased",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_edit_still_says_what_to_remove(mutant: Mutant) -> None:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        before = texts.get(edit.path) or (ROOT / edit.path).read_text(encoding="utf-8")
        texts[edit.path] = edit.applied(before)


def test_every_mutant_is_named_once_and_told_in_a_sentence() -> None:
    assert [name for name, count in Counter(each.name for each in MUTANTS).items() if count > 1] == []
    assert [each.name for each in MUTANTS if not (" " in each.guard and each.guard.endswith("."))] == []
    assert [each.name for each in MUTANTS if not (each.tests and each.edits and each.change)] == []


def test_every_test_that_is_named_exists() -> None:
    """Read and not collected: pytest takes a minute over so many names."""
    named = {test.partition("[")[0].partition("::")[::2] for mutant in MUTANTS for test in mutant.tests}
    there: set[tuple[str, str]] = set()
    for path in {path for path, _ in named}:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        there |= {(path, each.name) for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert named - there == set()


def test_every_invariant_of_the_design_has_mutants() -> None:
    assert {each.invariant for each in MUTANTS} == set(range(1, 12))


def test_every_trigger_function_has_a_mutant_or_a_reason(engine: Engine) -> None:
    known = set(
        rows(
            engine,
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'duehook'::regnamespace"
            " AND prorettype = 'trigger'::regtype",
        )
    )
    _each_is_listed_once(known, TRIGGERS_ELSEWHERE)


def test_every_constraint_and_unique_index_has_a_mutant_or_a_reason(engine: Engine) -> None:
    constraints = """SELECT conname::text FROM pg_constraint
         WHERE connamespace = 'duehook'::regnamespace AND contype IN ('c', 'u') AND conparentid = 0"""
    indexes = """SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE c.relnamespace = 'duehook'::regnamespace AND i.indisunique
           AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid)"""
    _each_is_listed_once({*rows(engine, constraints), *rows(engine, indexes)}, ELSEWHERE)


def _each_is_listed_once(known: set[str], elsewhere: dict[str, str]) -> None:
    covered = {name for mutant in MUTANTS for name in mutant.covers}
    assert known - covered - set(elsewhere) == set(), "without a mutant: list one that removes it, or say why not"
    assert set(elsewhere) - known == set(), "listed, and not there"
    assert set(elsewhere) & covered == set(), "a mutant removes it: it needs no reason"


def test_what_is_covered_is_there(engine: Engine) -> None:
    everything = """SELECT proname::text FROM pg_proc UNION SELECT conname::text FROM pg_constraint
        UNION SELECT relname::text FROM pg_class"""
    assert {name for mutant in MUTANTS for name in mutant.covers} - set(rows(engine, everything)) == set()


def test_a_text_that_is_not_there_once_no_longer_applies(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\nb = 1\n")
    with pytest.raises(NoLongerAppliesError, match="2 times"):
        Edit("code.py", "= 1", "= 2").apply(tmp_path)
    with pytest.raises(NoLongerAppliesError, match="0 times"):
        Edit("code.py", "c", "d").apply(tmp_path)
    Edit("code.py", "a = 1", "a = 2").apply(tmp_path)
    assert (tmp_path / "code.py").read_text() == "a = 2\nb = 1\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_mutant_s_own_code_is_what_runs_and_only_a_test_that_fails_kills_it(tmp_path: Path) -> None:
    tree = copy_tree(ROOT, tmp_path / "tree")
    (tree / "tests" / "unit" / "test_where.py").write_text(
        "import subprocess, sys, app, workers, tests.waiting\n"
        "CODE = 'import app, workers, outbox_relay; print(app.__path__[0], workers.__path__[0])'\n"
        "def test_here():\n"
        f"    assert app.__path__[0].startswith({str(tree)!r}) and tests.waiting.__file__.startswith({str(tree)!r})\n"
        "    for how in ([], ['-P']):\n"
        "        said = subprocess.run([sys.executable, *how, '-c', CODE], capture_output=True, text=True, cwd='/')\n"
        f"        assert said.stdout.split() == [{str(tree / 'app')!r}, {str(tree / 'workers')!r}], said\n"
        "def test_fails():\n    assert False\n"
        "def test_breaks(nothing): ...\n"
    )
    run = run_tests(tree, ["tests/unit/test_where.py"])
    assert (run.exit_code, run.failed, run.broke) == (1, ["test_fails"], ["test_breaks"]), run.words
    assert run_tests(tree, ["tests/unit/test_where.py::test_gone"]).exit_code == 4


def test_the_sql_in_force_is_what_is_mutated() -> None:
    """A function that a later migration replaces is mutated there."""
    folder = ROOT / "app/ledger/migrations/sql"
    last: dict[str, str] = {}
    for file in sorted(folder.glob("*/*.sql")):
        for name in re.findall(r"CREATE (?:OR REPLACE )?FUNCTION duehook\.(\w+)", file.read_text(encoding="utf-8")):
            last[name] = f"app/ledger/migrations/sql/{file.relative_to(folder)}"
    for mutant in MUTANTS:
        for edit in mutant.edits:
            if edit.path.endswith(".sql") and (name := _function_round(edit)):
                assert last[name] == edit.path, f"{mutant.name}: {name} is defined anew in {last[name]}"


def _function_round(edit: Edit) -> str | None:
    """The function whose body the edit is in."""
    text = (ROOT / edit.path).read_text(encoding="utf-8")
    before = text[: text.index(edit.old)]
    begun = re.findall(r"CREATE (?:OR REPLACE )?FUNCTION duehook\.(\w+)", before)
    return begun[-1] if begun and before.count("$$") % 2 == 1 else None
