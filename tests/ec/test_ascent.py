import numpy as np
import pytest

from lamarckian.ec.ascent import SGD, Adam


def test_adam_makes_the_steps_that_one_computes_by_hand():
    adam = Adam(0.1, 2)
    first = adam.step(np.array([4.0, -0.5])).copy()
    assert first == pytest.approx([0.1, -0.1])  # the first step is the learning rate, by the sign
    second = adam.step(np.array([1.0, 0.0]))
    mean = np.array([0.9 * 0.4 + 0.1, 0.9 * -0.05]) / (1 - 0.81)
    square = np.array([0.999 * 0.016 + 0.001, 0.999 * 0.00025]) / (1 - 0.998001)
    assert second == pytest.approx(0.1 * mean / (np.sqrt(square) + 1e-8), rel=1e-12)


def test_sgd_makes_the_steps_that_one_computes_by_hand():
    sgd = SGD(0.5, 0.8, 2)
    assert sgd.step(np.array([1.0, -2.0])).tolist() == [0.5, -1.0]
    assert sgd.step(np.array([1.0, 0.0])) == pytest.approx([0.5 * 1.8, 0.5 * -1.6])


@pytest.mark.parametrize("make", [lambda: Adam(0.1, 3), lambda: SGD(0.1, 0.9, 3)])
def test_an_optimiser_goes_on_from_what_it_saved(make):
    gradients = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    whole, half, rest = make(), make(), make()
    for gradient in gradients[:3]:
        whole.step(gradient), half.step(gradient)
    rest.load(half.save())
    half.step(gradients[0])  # what was saved is not touched by going on
    for gradient in gradients[3:]:
        assert np.array_equal(whole.step(gradient), rest.step(gradient))
