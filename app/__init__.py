"""duehook: makes things happen when they are due, and proves it."""
