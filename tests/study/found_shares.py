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
        recall = truth.recall(ids, within, 10).mean()
        found[query] = precision, recall
    return found


def found_precision(spec, base, queries):
    """Precision@10 of the true 50 of exact queries, by cosine."""
    ids = filled_index(spec, base).search(queries, k=10).ids
    return ground_truth(base, queries, 50).precision(ids, 10, 50).mean()


def assert_found(row, shares, most, within=10):
    """Both that are promised of a row of a plan differ from what is found by less than that."""
    for query, (precision, recall) in shares.items():
        promised = row.found(query)
        assert abs(promised.precision - precision) < most, (row, query)
        within_so_many = promised.recall_within(within)
        assert abs(within_so_many - recall) < most, (row, query)
