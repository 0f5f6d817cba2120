"""The HTTP API, over real stores."""
