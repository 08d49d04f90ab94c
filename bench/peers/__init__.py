"""duehook beside other ways to send webhooks, each set up as its own documentation advises."""
