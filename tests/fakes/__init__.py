"""Stand-ins at the process boundary: the real protocol, and faults that a real run can't make on demand."""
