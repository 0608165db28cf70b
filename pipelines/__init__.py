"""Moving batches between machines: recipe, splits, passes, driver, reports, command line. The only room with Beam."""
