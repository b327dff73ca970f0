"""Pictures of rebuilt images: one for each method, of images of the stated shape."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dpindex import Spec, attribute, record
from dpindex.base.errors import InputError
from dpindex.study.evaluate import image_attack, spec_grid

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("known_noise")

IMAGES = np.random.default_rng(0).uniform(0, 255, (40, 12))


@pytest.mark.slow
def test_a_picture_for_each_method_and_length() -> None:
    public = {"adjacency": attribute(1.0), "scale": 255.0, "bounds": (0.0, 1.0)}
    specs = [
        *(Spec("raw-staircase", 12, epsilon=e, **public) for e in (1.0, 2.0)),
        *(Spec("dp-signoporp-rr", 12, k=k, epsilon=2.0, **public) for k in (4, 12)),
        Spec("record-cap", 12, k=64, epsilon=8.0, adjacency=record()),
        Spec("none-oporp", 12, k=12, **public),
    ]
    pictures = image_attack(IMAGES, specs, (3, 4))
    assert [
        picture.title.removeprefix("Images rebuilt from codes of ") for picture in pictures
    ] == [
        "raw-staircase, k = 12",
        "dp-signoporp-rr, k = 4",
        "dp-signoporp-rr, k = 12",
        "record-cap, k = 64",
    ]
    assert [picture.file for picture in pictures] == [f"inversion-{i}.png" for i in (1, 2, 3, 4)]
    assert all(picture.png.startswith(b"\x89PNG") for picture in pictures)
    assert "attribute(beta=255)" in pictures[0].caption
    assert "private as they are" in pictures[0].caption


@pytest.mark.slow
def test_images_are_brought_to_norm_1_for_methods_that_hide_whole_records() -> None:
    """Bytes are outside the bounds of noise on directions, as on the page of a report."""
    (spec,) = spec_grid(12, ["raw-gaussian"], [8.0], adjacency=record()).specs
    assert spec.bounds == (-1.0, 1.0)
    for images in (IMAGES, IMAGES.astype(np.uint8), csr_matrix(IMAGES)):
        (picture,) = image_attack(images, [spec], (3, 4))
        assert picture.png.startswith(b"\x89PNG")


def test_another_number_of_pixels_is_refused() -> None:
    with pytest.raises(InputError, match="12 columns, not the 3 × 5 numbers"):
        image_attack(
            IMAGES, [Spec("raw-staircase", 12, epsilon=1.0, adjacency=attribute(1.0))], (3, 5)
        )
