"""The passes of a run, in the order in which the driver makes them: see ``pipelines.driver``."""
