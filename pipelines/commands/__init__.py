"""The subcommands of ``headrace``. Each module imports what is heavy inside its functions, so that help stays quick."""
