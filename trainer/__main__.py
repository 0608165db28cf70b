"""Where a rank starts: ``python -m trainer DIR``, or as ``torchrun`` and ``headrace train`` start several of them."""

import os
import signal
import sys

if __name__ == "__main__":
    # Importing torch takes seconds. Ctrl-C reaches every rank meanwhile, and must not end each in a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    from trainer.worker import main

    code = main()
    # Without the interpreter's own end: connections to other ranks may still be open, and closing them there can abort,
    # after a failure and after success.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
