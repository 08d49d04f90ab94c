"""`python -m tests.faults.stock_worker LANE…`: a worker of ours on kombu's own transport."""

import runpy
import sys

from workers import consumer

consumer.TRANSPORT = "redis"
sys.argv = ["workers", "worker", *sys.argv[1:]]
runpy.run_module("workers", run_name="__main__")
