-- As SET LOCAL does, which takes no parameter.
SELECT set_config('windlass.tenant', :tenant::text, true)
