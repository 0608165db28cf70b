"""Entry point of a rank: ``python -m trainer DIR``, directly or started by ``torchrun`` or ``headrace train``."""

import os
import signal
import sys

if __name__ == "__main__":
    # Importing torch takes seconds. A Ctrl-C meanwhile reaches every rank, and must not print a traceback for each.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    from trainer.worker import main

    code = main()
    # Skip the interpreter's shutdown: connections to other ranks may still be open, and closing them there can abort
    # the process, after a failure as after success.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
