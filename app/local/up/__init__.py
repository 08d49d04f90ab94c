"""`duehook up`: the whole service on this machine, each part a process of its own."""
