"""`warmstack-fetch`: brings a model's files into the hub volume as an immutable snapshot with a manifest."""
