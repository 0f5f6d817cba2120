"""Messages of sessions: in order within a session, sessions in parallel, and no state in memory."""
