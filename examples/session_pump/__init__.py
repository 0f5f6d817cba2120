"""Messages of sessions: one after the other within a session, sessions side by side, and nothing kept in memory."""
