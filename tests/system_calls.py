"""Stops a process at any of its system calls that change something: to kill it, to interrupt it,
to let the call fail, or to let another process run meanwhile.

The calls are counted by the kernel (ptrace(2)), whoever makes them: Python, SQLite, or the threads
of a library. Between two of them nothing changes that another process could see, so a kill at each
is a kill at every moment.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
from collections.abc import Callable
from contextlib import suppress

SUPPORTED = platform.system() == "Linux" and platform.machine() == "x86_64"

# Numbers of x86-64. Opening counts where it may write, fcntl where it locks.
_OPENAT = 257
_OPEN = {2, _OPENAT}
_FCNTL = 72
_WRITE = {1, 18, 20, 40, 42, 44, 46, 285, 296, 326}
_NAMES = {82, 83, 84, 85, 86, 87, 88, 258, 263, 264, 265, 266, 316}
_OTHERS = {73, 74, 75, 76, 77, 90, 91, 268, 277, 306, 452}
_CHANGES = _OPEN | _WRITE | _NAMES | _OTHERS | {_FCNTL}
_MAY_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LOCKS = {6, 7, 37, 38}

_TRACEME, _POKEUSER, _CONTINUE, _SET_OPTIONS, _GET_CALL = 0, 6, 24, 0x4200, 0x420E
_OPTIONS = 0x100000 | 1 | 8  # killed with the tracer; system calls are marked; threads too
_ALL = 0x40000000
_NUMBER, _RESULT = 15 * 8, 10 * 8
_ENTRY = 1
_STANDARD_ERROR = 2


class Stopped:
    """A process that is stopped before a system call.

    Attributes
    ----------
    call : int
        The number of the system call.
    """

    def __init__(self, child: int, thread: int, call: int) -> None:
        self._child = child
        self._thread = thread
        self.call = call
        self.result: int | None = None

    def kill(self) -> None:
        """Kill the process: the call is not made."""
        os.kill(self._child, signal.SIGKILL)

    def interrupt(self) -> None:
        """Interrupt the process by Ctrl-C: the call is made."""
        os.kill(self._child, signal.SIGINT)

    def fail(self) -> None:
        """Let the call fail: the disk has an error."""
        _ptrace(_POKEUSER, self._thread, _NUMBER, -1)
        self.result = -errno.EIO


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    return int(_LIBRARY.ptrace(request, pid, address, data))


_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.ptrace.argtypes = [ctypes.c_long] * 4
_LIBRARY.ptrace.restype = ctypes.c_long
_CALL = ctypes.create_string_buffer(96)


def _entered(thread: int) -> tuple[int, list[int]] | None:
    """Return the number and arguments of the call that a thread enters; None if it leaves one."""
    _ptrace(_GET_CALL, thread, 96, ctypes.addressof(_CALL))
    if _CALL.raw[0] != _ENTRY:
        return None
    numbers = memoryview(_CALL.raw)[24:80].cast("q").tolist()
    return numbers[0], numbers[1:]


def _changes(call: int, arguments: list[int]) -> bool:
    """Whether a system call may change what others see."""
    if call not in _CHANGES:
        return False
    if call in _OPEN:
        return bool(arguments[2 if call == _OPENAT else 1] & _MAY_WRITE)
    if call == _FCNTL:
        return arguments[1] in _LOCKS
    return call not in _WRITE or arguments[0] > _STANDARD_ERROR


NOT_STOPPED = 128
"""Added to the exit code of a process that makes fewer calls."""


def stopped_at(number: int, then: Callable[[Stopped], object], action: Callable[[], int]) -> int:
    """Run ``action`` in a child, and stop it once, before its call of that number that changes.

    Returns
    -------
    The exit code of the child: what ``action`` returns, below 128, or 9 if it was killed; and 128
    more if it was never stopped.
    """
    tracer = os.fork()  # which waits for whatever thread there is, and for nothing else
    if tracer:
        return os.waitstatus_to_exitcode(os.waitpid(tracer, 0)[1])
    code = 255
    try:
        code = _traced(number, then, action)
    finally:
        os._exit(code)


def _traced(number: int, then: Callable[[Stopped], object], action: Callable[[], int]) -> int:
    child = os.fork()
    if not child:
        code = 99
        try:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            code = action()
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    _ptrace(_SET_OPTIONS, child, 0, _OPTIONS)
    _ptrace(_CONTINUE, child)
    failing: dict[int, int] = {}
    while True:
        thread, status = os.waitpid(-1, _ALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread != child:
                continue
            code = abs(os.waitstatus_to_exitcode(status))
            return code if number <= 0 else code + NOT_STOPPED
        sent = os.WSTOPSIG(status)
        if sent != signal.SIGTRAP | 0x80:
            # A thread begins with a stop; other signals are passed on.
            _ptrace(_CONTINUE, thread, 0, 0 if sent in (signal.SIGTRAP, signal.SIGSTOP) else sent)
            continue
        entered = _entered(thread)
        if entered is None and thread in failing:
            _ptrace(_POKEUSER, thread, _RESULT, failing.pop(thread))
        elif entered is not None and _changes(*entered):
            number -= 1
            if number == 0:
                stopped = Stopped(child, thread, entered[0])
                then(stopped)
                if stopped.result is not None:
                    failing[thread] = stopped.result
        with suppress(ProcessLookupError):
            _ptrace(_CONTINUE, thread)
