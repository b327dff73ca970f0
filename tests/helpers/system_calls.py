"""Stops a process at any of its system calls that change something: to kill it, to interrupt it,
to let the call fail, or to let another process run meanwhile.

The calls are counted by the kernel (ptrace(2)), whoever makes them: Python, SQLite, or the threads
of a library. Between two of them nothing changes that another process could see, so a kill at each
is a kill at every moment.
"""

import ctypes
import errno
import os
import platform
import signal
import struct
from contextlib import suppress
from pathlib import Path

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

_TRACEME = 0
_POKEUSER = 6
_CONTINUE = 7
_SET_OPTIONS = 0x4200
_GET_CALL = 0x420E
_OPTIONS = 0x100000 | 0x80 | 8  # killed with the tracer; stopped by its filter; threads too
_AT_A_CALL = signal.SIGTRAP | 7 << 8
_ALL = 0x40000000
_NUMBER = 15 * 8
_RESULT = 10 * 8
_STANDARD_ERROR = 2
_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 22
_FILTER_MODE = 2
_LOAD = 0x20
_IF_EQUAL = 0x15
_RETURN = 6
_ALLOW = 0x7FFF0000
_TRACE = 0x7FF00000


class Stopped:
    """A process that is stopped before a system call.

    Attributes
    ----------
    number : int
        Of its calls that change something, this is the one before which it is stopped.
    """

    def __init__(self, child, thread, number):
        self._child = child
        self._thread = thread
        self.number = number

    def kill(self):
        """Kill the process: the call is not made."""
        os.kill(self._child, signal.SIGKILL)

    def interrupt(self):
        """Interrupt the process by Ctrl-C: the call is made."""
        os.kill(self._child, signal.SIGINT)

    def fail(self):
        """Let the call fail: the disk has an error."""
        _ptrace(_POKEUSER, self._thread, _NUMBER, -1)
        _ptrace(_POKEUSER, self._thread, _RESULT, -errno.EIO)


def _ptrace(request, pid, address=0, data=0):
    return int(_LIBRARY.ptrace(request, pid, address, data))


_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.ptrace.argtypes = [ctypes.c_long] * 4
_LIBRARY.ptrace.restype = ctypes.c_long
_CALL = ctypes.create_string_buffer(96)


def _filter():
    """The program of a seccomp filter that stops at calls that may change something."""
    calls = sorted(_CHANGES)
    lines = [(_LOAD, 0, 0, 0)]
    lines += [(_IF_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _TRACE)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    return program, struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(program))


_PROGRAM, _HEADER = _filter()


def _be_traced():
    """Stop, until a tracer has set its options; from then on at the calls of the filter alone."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    _LIBRARY.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if _LIBRARY.prctl(_SET_FILTER, _FILTER_MODE, _HEADER, 0, 0):
        raise OSError("no filter of system calls can be set")


def _stopped_call(thread):
    """Return the number and arguments of the call at which a thread is stopped."""
    _ptrace(_GET_CALL, thread, 96, ctypes.addressof(_CALL))
    numbers = memoryview(_CALL.raw)[24:80].cast("q").tolist()
    return numbers[0], numbers[1:]


def _changes(call, arguments):
    """Whether a system call may change what others see."""
    if call not in _CHANGES:
        return False
    if call in _OPEN:
        return bool(arguments[2 if call == _OPENAT else 1] & _MAY_WRITE)
    if call == _FCNTL:
        return arguments[1] in _LOCKS
    return call not in _WRITE or arguments[0] > _STANDARD_ERROR


def _runs(thread):
    """Whether a thread of ``/proc`` computes, or is inside a system call that waits for a disk."""
    try:
        state = (thread / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False
    return state in "RD"


def _wait_for_threads(process):
    """Wait until each thread of a process is stopped or sleeps.

    The stop of one does not stop the others: what they change meanwhile is done, or not begun.
    """
    threads = Path(f"/proc/{process}/task")
    while any(map(_runs, threads.iterdir())):
        os.sched_yield()


NOT_STOPPED = 128
"""Added to the exit code of a process that makes fewer calls."""


def stopped_at(numbers, then, action):
    """Run ``action`` in a child, and stop it before its calls of those numbers that change.

    There must be no other child: this waits for every thread there is.

    Returns
    -------
    The exit code of the child: what ``action`` returns, below 128, or 9 if it was killed; and 128
    more if it was never stopped.
    """
    child = os.fork()
    if not child:
        code = 99
        try:
            _be_traced()
            code = action()
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    _ptrace(_SET_OPTIONS, child, 0, _OPTIONS)
    _ptrace(_CONTINUE, child)
    calls = 0
    added = NOT_STOPPED
    while True:
        thread, status = os.waitpid(-1, _ALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread != child:
                continue
            return abs(os.waitstatus_to_exitcode(status)) + added
        sent = os.WSTOPSIG(status)
        if status >> 8 == _AT_A_CALL:
            call, arguments = _stopped_call(thread)
            if _changes(call, arguments):
                calls += 1
                if calls in numbers:
                    added = 0
                    _wait_for_threads(child)
                    then(Stopped(child, thread, calls))
        # A thread begins with a stop; other signals are passed on.
        passed_on = 0 if sent in (signal.SIGTRAP, signal.SIGSTOP) else sent
        with suppress(ProcessLookupError):
            _ptrace(_CONTINUE, thread, 0, passed_on)
