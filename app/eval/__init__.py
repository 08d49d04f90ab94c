"""`duehook eval`: the named faults on real processes, judged by their business effects against thresholds."""
