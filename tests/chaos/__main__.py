"""`make chaos`: a run from the command line; its folder stays when something is wrong."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.plan import KINDS, Plan
from tests.chaos.run import UnsettledError, report, run


def main() -> int:
    """0 when nothing was lost, doubled or otherwise wrong."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Load, faults, and what the receivers say of it.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=20.0, help="what the load is spread over")
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind of fault")
    plan = Plan(**vars(parser.parse_args()))
    # The parser draws a seed once, as it is made.
    arguments = " ".join(f"--{name} {value}" for name, value in vars(parser.parse_args()).items() if value is not None)
    again = f'make chaos ARGS="{arguments}"'
    folder = Path(tempfile.mkdtemp(prefix="duehook-chaos-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user when root runs this
    print(f"Seed {plan.seed}; the same again: {again}", flush=True)
    try:
        ended = run(plan, folder, lambda line: print(line, flush=True))
    except UnsettledError as error:
        print(f"VIOLATION: {error}\nThe logs are in {folder}; the same again: {again}")
        return 1
    print(report(ended))
    if ended.verdict.violations:
        print(f"The logs are in {folder}; the same again: {again}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
