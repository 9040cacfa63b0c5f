"""What an actor counts."""

import numpy as np
import pytest

from lamarckian.actor.tally import Tally
from lamarckian.errors import NumericsError


def test_a_reward_that_is_not_finite_is_told_with_its_role_match_and_step():
    """Lanes are match 0, 1, 2 of the left role, then of the right one: lane 4 is match 1 of the right, and on its second step."""
    tally = Tally(["left", "right"], matches=3, rewards=2)
    tally.steps(np.arange(6), np.zeros((6, 2)))
    with pytest.raises(NumericsError, match=r"a reward is not finite: \[ 0\. nan\] \(role 'right', match 1, step 2\)"):
        tally.steps(np.array([1, 4]), np.array([[0.0, 0.0], [0.0, np.nan]]))
