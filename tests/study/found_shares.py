"""What an index finds of the truth, to be compared with what a plan promises of it."""

from helpers.common import filled_index

from dpindex.study import ground_truth


def found_shares(
    spec,
    base,
    queries,
    within=10,
    denoiser=None,
    metric="cosine",
):
    """By mode of query: precision@10 of the true 50, and recall of the true 10 within so many."""
    index = filled_index(spec, base, metric=metric)
    if denoiser is not None:
        index.fit_denoiser(denoiser)
    truth = ground_truth(base, queries, 50, metric)
    found = {}
    for query in ("private", "exact"):
        ids = index.search(queries, k=within, query=query).ids
        precision = truth.precision(ids, 10, 50).mean()
        found[query] = precision, truth.recall(ids, within, 10).mean()
    return found


def assert_found(row, shares, most, within=10):
    """Both that are promised of a row of a plan differ from what is found by less than that."""
    for query, (precision, recall) in shares.items():
        promised = row.found(query)
        assert abs(promised.precision - precision) < most, (row, query)
        assert abs(promised.recall_within(within) - recall) < most, (row, query)
