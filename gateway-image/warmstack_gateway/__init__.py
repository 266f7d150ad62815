"""PID 1 of the gateway: starts Caddy and relays what Caddy lets in to an engine that is ready."""
