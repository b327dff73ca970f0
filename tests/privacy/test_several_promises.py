"""One release with two promises: how they are said, compared, added up and booked."""

import pytest
from helpers.common import dp, normal, record_spec, refuses

import dpindex as dpi
from dpindex import Codebook, Guarantee, Privatizer, Spec, attribute, compose, l2
from dpindex.accounting import add_up, shuffled
from dpindex.accounting.ledger import Ledger

BETA = attribute(0.5)
BOOK = Codebook(normal(8, 4))


def both(epsilon=2.0, record=8.0):
    also = (dp(record, dpi.record()),)
    return Guarantee(epsilon, 0.0, "DP", BETA, also=also)


def spec(epsilon=2.0, record=8.0, **terms):
    stated = {"adjacency": BETA, "codebook": BOOK, **terms}
    return Spec("codebook-softmax", 4, epsilon=epsilon, record_epsilon=record, **stated)


def test_both_are_said_wherever_a_promise_is():
    promise = both()
    assert spec().guarantee == promise
    for text in (str(promise), promise.protects(), promise.odds(), promise.units):
        assert "any two vectors" in text
        assert "0.5" in text
    statement = promise.statement(4)
    also = [dp(8.0, dpi.record()).to_dict()]
    assert statement["guarantee"]["also"] == also
    lines = " ".join(statement["does_not_protect"])
    assert "never more than 8" in lines
    assert "up to 8" not in lines.replace("never more than 8", "")
    assert "also" not in dp(2.0, BETA).to_dict()
    assert [str(one) for one in promise.promises] == [
        "epsilon = 2 (pure DP) under attribute(beta=0.5)",
        "epsilon = 8 (pure DP) under record (any two vectors)",
    ]


@pytest.mark.parametrize(
    "change, epsilon",
    [
        (BETA, 2.0),
        (attribute(0.1), 2.0),
        (attribute(1.0), 4.0),
        (attribute(5.0), 8.0),
        (l2(3.0), 8.0),
        (dpi.record(), 8.0),
    ],
)
def test_of_two_bounds_on_a_change_the_smaller_holds(change, epsilon):
    assert both().at(change) == dp(epsilon, change)


def test_a_change_of_the_collection_is_neither():
    with refuses("count different changes"):
        both().at(dpi.privacy.Records("replace"))


def test_each_kind_adds_up_by_itself():
    assert add_up(both(2, 8), both(1, 4)) == both(3, 12)
    assert compose([spec(), spec(1.0, 4.0)]) == both(3, 12)
    # Another release without the second promise: only the first can be added up.
    alone = dp(1.0, BETA)
    total = dp(3.0, BETA)
    assert add_up(both(), alone) == total
    assert add_up(alone, both()) == total
    mixed = compose([spec(), spec(record=None)], at=BETA)
    assert mixed.epsilon == 4.0


def test_tight_totals_have_both():
    many = compose([spec(0.1, 0.5)] * 40, delta=1e-6)
    first, second = many.promises
    assert first.adjacency == BETA
    assert second.adjacency == dpi.record()
    assert first.epsilon < 4.0
    assert second.epsilon < 20.0
    assert first.delta == 1e-6
    assert second.delta == 1e-6
    # Each is what releases with that promise alone have.
    for kept, alone in (
        (first, spec(0.1, None)),
        (second, record_spec("record-cap", 4, k=64, epsilon=0.5)),
    ):
        total = compose([alone] * 40, delta=1e-6)
        assert kept.epsilon == pytest.approx(total.epsilon)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


def test_a_ledger_books_both(ledger):
    ledger.record(spec(), ["ann", "bob"])
    ledger.record(spec(1.0, 4.0), ["ann"], allow_rerelease=True)
    twice, once = ledger.totals()
    assert not twice.apart
    promises = [(promise.epsilon, str(promise.adjacency)) for promise in twice.guarantees]
    assert promises == [
        (3.0, "attribute(beta=0.5)"),
        (12.0, "record (any two vectors)"),
    ]
    assert [g.epsilon for g in once.guarantees] == [2.0, 8.0]
    assert "and epsilon = 12" in str(twice)


WHOLE = record_spec("record-codebook", 4, epsilon=3.0, codebook=BOOK)


@pytest.mark.parametrize(
    "others, together, alone",
    [
        ([spec(1.0, None)], {"attribute": 3.0}, {"record": 8.0}),
        ([WHOLE], {"attribute": 5.0, "record": 11.0}, {}),
        ([WHOLE, spec(1.0, None)], {"attribute": 6.0}, {"record": 11.0}),
    ],
)
def test_a_ledger_never_forgets_a_release_without_the_second_promise(
    ledger, others, together, alone
):
    """Every release counts for the attribute; the record's number may stand alone."""
    for released in (spec(), *others):
        ledger.record(released, ["ann"], allow_rerelease=True)
    (total,) = ledger.totals()
    assert {g.adjacency.kind: g.epsilon for g in total.guarantees} == together
    assert {g.adjacency.kind: g.epsilon for g in total.alone} == alone
    said = "not every release promises DP under record (any two vectors)"
    assert total.apart == (said if alone else "")


def test_sizes_of_one_kind_are_compared_and_the_other_bounds_them(ledger):
    ledger.record(spec(), ["ann"])
    wide = spec(adjacency=attribute(5.0), bounds=(-9.0, 9.0))
    ledger.record(wide, ["ann"], allow_rerelease=True)
    (total,) = ledger.totals()
    found = {str(g.adjacency): g.epsilon for g in total.guarantees}
    assert found == {
        "attribute(beta=0.5)": 4.0,
        "attribute(beta=5)": 10.0,  # the first release is bounded by its promise about records
        "record (any two vectors)": 16.0,
    }


def test_a_shuffle_amplifies_the_promise_about_records():
    assert shuffled(both(), 10_000, 1e-6) == shuffled(both().also[0], 10_000, 1e-6)


def test_a_device_accepts_by_the_promise_of_the_spec():
    Privatizer(spec(), max_epsilon=2.0)
    with refuses("where at most"):
        Privatizer(spec(), max_epsilon=1.9)
