SELECT version, min_compatible FROM {migrations} ORDER BY version
