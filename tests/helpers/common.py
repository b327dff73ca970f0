"""What most tests use, imported in one line: cases, marks, made vectors, releases, refusals."""
# ruff: noqa: F401

import pytest

from helpers.commands import STAIRCASE, fails
from helpers.documents import ROOT, csv_lines
from helpers.made_datasets import (
    DIM,
    FolderView,
    bucket_at,
    directions,
    low_rank,
    normal,
    overlap,
    photographs,
    picked,
    tables,
    top,
    topics,
    true_cosines,
    uniform,
    unit,
    vectors,
    watched,
    write_dataset,
)
from helpers.memory import peak_memory
from helpers.processes import finished, free_port, needs_posix, python, succeeds, travelled, typed
from helpers.refusals import interrupt, interrupted_at, refuses
from helpers.releases import (
    all_bytes,
    build,
    codes_of,
    counted,
    dataset_of,
    filled_index,
    flipped,
    names_in,
    projected,
    reopened,
    write_codes,
)
from helpers.specs import (
    FAMILIES,
    attribute_spec,
    codebook,
    designed,
    dp,
    example,
    folded,
    length,
    needed,
    record_spec,
    small,
    with_variant,
)
from helpers.streams import Scripted, Seeded, seed_noise

known_noise = pytest.mark.usefixtures("known_noise")
some_queries = pytest.mark.usefixtures("some_queries")
few_queries = pytest.mark.usefixtures("few_queries")
