-- As SET LOCAL, which takes no parameter.
SELECT set_config('windlass.tenant', :tenant::text, true)
