"""`duehook demo`: the main job on real processes with real faults, judged by what receivers and database hold."""
