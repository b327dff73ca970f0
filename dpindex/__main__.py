"""The command ``dpindex``: Ctrl-C is answered in one sentence, also while modules are imported."""

from __future__ import annotations

import gc
import os
import signal


def main() -> None:
    """Run the command line."""
    # Idle threads of OpenBLAS spin for this many doublings of a clock tick: 0.4 ms, not 0.1 s.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    # Looking for garbage among what is imported would take a tenth of a short command's time.
    gc.set_threshold(100_000)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        from dpindex.cli import main as run  # Ctrl-C is ignored, as in a background job

        run()
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _leave)
    from dpindex.cli import main as run

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # just before or after ``run`` answers it
        _leave()
    finally:  # all that is left is to end
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(*_: object) -> None:
    """Leave at once: an exception could be caught, or turned into another, by what is imported."""
    os.write(2, b"dpindex: interrupted; what was committed is kept. Run it again.\n")
    os._exit(130)


def _end(number: int, frame: object) -> None:
    """End in order, so that temporary folders go: the default action leaves them."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
