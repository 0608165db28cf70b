"""Moving batches between machines: recipe, splits, passes, driver, reports, command line. The only room with Beam."""

import logging

# Beam says at import, in every process and on the root logger, that a Google Cloud library is missing which nothing
# here uses. Everything else that it warns of is let through.
logging.getLogger().addFilter(lambda record: not str(record.msg).startswith("apitools not found"))
