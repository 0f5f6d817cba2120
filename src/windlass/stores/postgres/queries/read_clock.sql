-- COPY cannot be used under row-level security.
SELECT {now}, row_security_active('{jobs}')
